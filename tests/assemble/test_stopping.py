"""Whom a stop file means."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.assemble.beats import Heart
from muster.assemble.stopping import read_stop, say_stop
from muster.assemble.workdir import BEAT, STOP, WorkDir


def test_a_stop_means_the_cluster_that_it_names(workdir: WorkDir) -> None:
    say_stop(workdir, "old", "it failed", failed=True)
    assert read_stop(workdir, "old")["why"] == "it failed"
    assert read_stop(workdir, "new") is None
    say_stop(workdir, "new", "it failed, too", failed=True)
    assert read_stop(workdir, "new")["why"] == "it failed, too"


@pytest.mark.parametrize("text", ["", "enough", "{}", '{"why": "enough"}'])
def test_a_stop_without_a_name_means_all(workdir: WorkDir, tmp_path: Path, text: str) -> None:
    (tmp_path / "job" / STOP).write_text(text)
    assert read_stop(workdir, "any") is not None
    say_stop(workdir, "any", "its own", failed=True)
    assert (tmp_path / "job" / STOP).read_text() == text


def test_a_cluster_that_was_replaced_has_no_say_any_more(workdir: WorkDir) -> None:
    Heart(workdir, BEAT, "new").beat()
    say_stop(workdir, "old", "it failed", failed=True)
    assert workdir.read(STOP) is None
    say_stop(workdir, "new", "it failed", failed=True)
    assert workdir.read(STOP) == {
        "why": "it failed",
        "failed": True,
        "cluster": "new",
        "cause": None,
    }
