"""Copies of outputs appear as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client.output_copies import copy_content
from muster.errors import Unreadable


def test_a_copy_has_the_mode_and_the_time_of_the_file(tmp_path: Path) -> None:
    target = tmp_path / "copies" / "log"
    copy_content(iter([b"be", b"fore"]), target, 0o640, 2.0)
    info = target.stat()
    assert (target.read_bytes(), info.st_mode & 0o7777, info.st_mtime) == (b"before", 0o640, 2)
    assert [path.name for path in target.parent.iterdir()] == ["log"]


def test_a_read_error_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")

    def broken() -> Iterator[bytes]:
        yield b"new"
        raise Unreadable("Input/output error")

    with pytest.raises(Unreadable, match="Input/output"):
        copy_content(broken(), target, 0o640, 2.0)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
