"""The record of pods whose ends were reported."""

from __future__ import annotations

from pathlib import Path

from muster.engines.kubernetes.ended_pods import EndedPod, add_ended, read_ended
from muster.lifecycle.status import NodeRef

FIRST, SECOND = EndedPod(NodeRef(3, 0), "uid-a"), EndedPod(NodeRef(0, 7), "uid-b")


def test_what_is_added_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ended"
    assert read_ended(path) == []
    add_ended(path, [])
    assert not path.exists()
    add_ended(path, [FIRST])
    add_ended(path, [SECOND])
    assert read_ended(path) == [FIRST, SECOND]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ended"
    add_ended(path, [FIRST, SECOND])
    content = path.read_bytes()
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        add_ended(path, [SECOND])
        found = read_ended(path)
        assert found[-1] == SECOND
        assert found[:-1] in ([], [FIRST])
