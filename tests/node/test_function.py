"""Where the program that calls a function stores its result."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.node import function, notebook

RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK", "NODE_RANK")


@pytest.mark.parametrize("place", range(len(RANKS)))
def test_each_process_has_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """The rank of the process takes precedence over the node's, which its processes share."""
    monkeypatch.setenv("MUSTER_OUTPUTS", str(tmp_path))
    for number, name in enumerate(RANKS):
        if number < place:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, str(number))
    folder = str(tmp_path / f"rank-{place}")
    assert (function._output_folder(), notebook.output_folder()) == (folder, folder)
