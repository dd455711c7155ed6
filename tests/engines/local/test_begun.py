"""Marks of programs that may have run."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.engines.local.begun import begun
from muster.lifecycle.status import NodeRef
from muster.storage.home import RunDir


@pytest.mark.parametrize(
    ("content", "found"),
    [(b"12\n", True), (b"1\n", False), (b"123\n", False), (b"12", False), (b"", False)],
)
def test_a_mark_is_for_one_life(tmp_path: Path, content: bytes, found: bool) -> None:
    """Half a mark is none: the program is started when it is whole."""
    run = RunDir(tmp_path)
    run.node(3).mkdir(parents=True)
    (run.node(3) / "begun").write_bytes(content)
    (run.node(4) / "begun").mkdir(parents=True)
    refs = [NodeRef(rank, 12) for rank in range(5)]
    assert begun(run, refs) == ({3} if found else set())


def test_a_run_that_is_gone(tmp_path: Path) -> None:
    assert begun(RunDir(tmp_path / "gone"), [NodeRef(0, 0)]) == frozenset()
