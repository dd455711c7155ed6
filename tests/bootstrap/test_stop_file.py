"""Stop files, and the clusters to which they apply."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.bootstrap.heartbeats import Heartbeat
from muster.bootstrap.stop_file import read_stop, write_stop
from muster.bootstrap.workdir import HEARTBEAT, STOP, WorkDir


def test_a_stop_file_applies_to_the_cluster_that_it_names(workdir: WorkDir) -> None:
    write_stop(workdir, "old", "it failed", failed=True)
    assert read_stop(workdir, "old")["why"] == "it failed"
    assert read_stop(workdir, "new") is None
    write_stop(workdir, "new", "it failed, too", failed=True)
    assert read_stop(workdir, "new")["why"] == "it failed, too"


@pytest.mark.parametrize("text", ["", "enough", "{}", '{"why": "enough"}'])
def test_a_stop_file_without_a_name_applies_to_all(
    workdir: WorkDir, tmp_path: Path, text: str
) -> None:
    (tmp_path / "job" / STOP).write_text(text)
    assert read_stop(workdir, "any") is not None
    write_stop(workdir, "any", "its own", failed=True)
    assert (tmp_path / "job" / STOP).read_text() == text


def test_a_cluster_that_was_replaced_writes_no_stop_file(workdir: WorkDir) -> None:
    Heartbeat(workdir, HEARTBEAT, "new").send()
    write_stop(workdir, "old", "it failed", failed=True)
    assert workdir.read(STOP) is None
    write_stop(workdir, "new", "it failed", failed=True)
    assert workdir.read(STOP) == {
        "why": "it failed",
        "failed": True,
        "cluster": "new",
        "cause": None,
    }
