"""Where the program that calls a function stores its result."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.node import function, notebook

RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK", "NODE_RANK")


@pytest.mark.parametrize("place", range(len(RANKS)))
def test_each_process_has_its_own_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """The rank of the process takes precedence over the node's, which its processes share."""
    monkeypatch.setenv("MUSTER_OUTPUTS", str(tmp_path / "outputs" / "rank-0"))
    monkeypatch.setenv("MUSTER_RUN_OUTPUTS", str(tmp_path / "outputs"))
    for number, name in enumerate(RANKS):
        if number < place:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, str(number))
    assert function._result_folder() == str(tmp_path / "results" / f"rank-{place}")


def test_the_run_is_found_with_the_variables_of_the_previous_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSTER_RUN_OUTPUTS", raising=False)
    monkeypatch.setenv("MUSTER_OUTPUTS", str(tmp_path / "outputs"))
    assert function._run_folder() == str(tmp_path)


SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "HOROVOD_LOCAL_SIZE")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("processes", "folder"), [("1", "."), ("2", "process-3")])
def test_processes_of_a_node_do_not_overwrite_each_others_notebooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, processes: str, folder: str
) -> None:
    for name in (*SIZES, *RANKS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUSTER_OUTPUTS", str(tmp_path))
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.setenv(size, processes)
    assert Path(notebook.output_folder()) == tmp_path / folder


def test_nodes_that_share_their_outputs_do_not_overwrite_each_others_notebooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MUSTER_OUTPUTS", "MUSTER_RUN_OUTPUTS"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("NODE_RANK", "2")
    assert Path(notebook.output_folder()) == tmp_path / "rank-2"
