"""Files that a program may have replaced by something else."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.node.files import empty_folder, ensure_fifo, is_within, open_or_replace, try_remove_tree


def link_to_file(path: Path) -> None:
    path.symlink_to("theirs")


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


IN_PLACE = [link_to_file, link_to_nothing, link_to_itself]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "theirs"
    path.write_text("theirs")
    return path


@pytest.mark.parametrize("replace", [*IN_PLACE, os.mkfifo])
def test_a_replacement_of_a_file_is_removed(theirs: Path, replace: Callable[[Path], None]) -> None:
    path = theirs.with_name("ours")
    replace(path)
    descriptor = open_or_replace(path, os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, b"ours")
    os.close(descriptor)
    assert not path.is_symlink()
    assert (path.read_text(), theirs.read_text()) == ("ours", "theirs")
    assert not theirs.with_name("nowhere").exists()


def test_the_original_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("ou")
    descriptor = open_or_replace(tmp_path / "ours", os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, b"rs")
    os.close(descriptor)
    assert (tmp_path / "ours").read_text() == "ours"


@pytest.mark.parametrize("replace", [*IN_PLACE, Path.touch])
def test_a_replacement_of_a_pipe_is_removed(theirs: Path, replace: Callable[[Path], None]) -> None:
    path = theirs.with_name("ours")
    replace(path)
    ensure_fifo(path)
    ensure_fifo(path)
    assert stat.S_ISFIFO(path.lstat().st_mode)
    assert theirs.read_text() == "theirs"


@pytest.mark.parametrize("own", [ensure_fifo, lambda path: open_or_replace(path, os.O_RDONLY)])
def test_a_folder_is_not_removed(tmp_path: Path, own: Callable[[Path], object]) -> None:
    (tmp_path / "ours").mkdir()
    with pytest.raises(IsADirectoryError):
        own(tmp_path / "ours")


def test_what_stays_of_a_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    for name in ("a/one", "stays", "z"):
        (folder / name).touch()
    unlink = os.unlink

    def refuse(path: str, **options: Any) -> None:
        if os.path.basename(path) == "stays":
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        error = try_remove_tree(str(folder))
    assert error is not None and error.filename == str(folder / "stays")
    assert os.listdir(folder) == ["stays"], "the others are removed"
    assert try_remove_tree(str(folder)) is None and not folder.exists()
    assert try_remove_tree(str(folder)) is None, "there is none"


def test_a_path_is_within_a_folder_where_its_links_lead(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "node")
    assert is_within(str(tmp_path / "link" / "file"), str(tmp_path / "node"))
    assert not is_within(str(tmp_path / "node-2"), str(tmp_path / "node"))
    assert not is_within(str(tmp_path / "node"), str(tmp_path / "node"))


def test_folders_in_which_others_are_mounted_stay(tmp_path: Path) -> None:
    for name in ("kept/inside", "gone/inside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "kept/file").touch()
    empty_folder(str(tmp_path), {"kept"})
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "kept",
        "kept/file",
        "kept/inside",
    ]
