"""Files with given content, in a node's folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from muster.node import given_files
from muster.node.launch_message import GivenFile


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_written_in_place(tmp_path: Path) -> None:
    """A mount of one of them shows the new content."""
    path = tmp_path / "conf" / "d" / "a"
    given_files.write([GivenFile(str(path), "first, and longer", 0o400)])
    before = path.stat().st_ino
    assert (path.read_text(), mode(path)) == ("first, and longer", 0o400)
    given_files.write([GivenFile(str(path), "second", 0o640)])
    assert (path.read_text(), mode(path), path.stat().st_ino) == ("second", 0o640, before)


def test_bytes(tmp_path: Path) -> None:
    given_files.write([GivenFile(str(tmp_path / "a"), "AP\n8B", 0o644, is_base64=True)])
    assert (tmp_path / "a").read_bytes() == b"\0\xff\1"
    with pytest.raises(OSError, match="the content of the file a is not base64"):
        given_files.write([GivenFile(str(tmp_path / "a"), "A", 0o644, is_base64=True)])


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A program may have put it there."""
    (tmp_path / "other").write_text("kept")
    (tmp_path / "other").chmod(0o640)
    os.symlink(tmp_path / "other", tmp_path / "a")
    with pytest.raises(OSError):
        given_files.write([GivenFile(str(tmp_path / "a"), "x", 0o644)])
    assert ((tmp_path / "other").read_text(), mode(tmp_path / "other")) == ("kept", 0o640)


def test_removing_ignores_what_is_gone(tmp_path: Path) -> None:
    files = [GivenFile(str(tmp_path / name), "x", 0o400) for name in ("a", "b")]
    given_files.write(files)
    (tmp_path / "a").unlink()
    given_files.remove(files)
    assert list(tmp_path.iterdir()) == []
