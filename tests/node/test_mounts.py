"""The directories that a job mounts, on a node's host."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from muster.node.messages import FindFolders, FoldersFound, Mount
from muster.node.mounts import find_folders, link, set_up
from muster.node.transfer import open_source, send


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


@pytest.fixture
def digest(tmp_path: Path, archives: Path) -> str:
    """That of an archive with a file."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "given").write_text("given")
    descriptor = open_source(str(source))
    with (archives / "part").open("wb") as file:
        send(descriptor, ".", file, pytest.fail)
    os.close(descriptor)
    name = hashlib.sha256((archives / "part").read_bytes()).hexdigest()
    (archives / "part").rename(archives / name)
    return name


def provide(archives: Path, *mounts: Mount) -> None:
    set_up(mounts, str(archives), str(archives.parent / "sent"))


def test_directories_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to("nowhere")
    paths = [str(tmp_path / name) for name in ("", "file", "link", "dangling", "no")]
    request = FindFolders([*paths, "a\0b"])
    assert find_folders(request) == FoldersFound([paths[0], paths[2]])


def test_a_directory_is_unpacked_and_its_copy_noted(
    tmp_path: Path, archives: Path, digest: str
) -> None:
    copy = tmp_path / "node/mnt/0/data"
    provide(archives, Mount(str(copy), 0o700, digest), Mount(str(copy), 0o700, digest))
    assert (copy / "given").read_text() == "given"
    assert [path.name for path in copy.parent.iterdir()] == ["data"]
    assert len(list((tmp_path / "sent").iterdir())) == 1


def test_a_directory_that_begins_empty(tmp_path: Path, archives: Path) -> None:
    provide(archives, Mount(str(tmp_path / "node/life/a"), 0o1777))
    assert stat.S_IMODE((tmp_path / "node/life/a").stat().st_mode) == 0o1777
    assert stat.S_IMODE((tmp_path / "node/life").stat().st_mode) == 0o700
    (tmp_path / "node/life/a/own").touch()
    provide(archives, Mount(str(tmp_path / "node/life/a"), 0o1777))
    assert (tmp_path / "node/life/a/own").exists()


def test_a_directory_that_is_not_there_any_more(tmp_path: Path, archives: Path) -> None:
    with pytest.raises(OSError, match=r"^the mounted directory .*/no: it is not there$"):
        provide(archives, Mount(str(tmp_path / "no")))


def test_a_link_that_cannot_be_made_is_named(tmp_path: Path, archives: Path) -> None:
    """As where the user of a container may not write."""
    (tmp_path / "file").touch()
    place = tmp_path / "file/data"
    with pytest.raises(OSError, match=f"^the mounted directory {place}: "):
        provide(archives, Mount(str(tmp_path / "a"), 0o700, link=str(place)))


def test_an_archive_that_is_damaged_leaves_no_copy(
    tmp_path: Path, archives: Path, digest: str
) -> None:
    (archives / digest).write_bytes(b"damaged")
    with pytest.raises(OSError, match=r"^the mounted directory .*: The transfer was interrupted"):
        provide(archives, Mount(str(tmp_path / "data"), 0o700, digest))
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "sent").exists()


def test_links_take_the_place_of_what_the_code_has(tmp_path: Path, archives: Path) -> None:
    target, code = tmp_path / "data", tmp_path / "work" / "data"
    target.mkdir()
    (target / "both").write_text("of the mount")
    (code / "deep").mkdir(parents=True)
    (code / "both").write_text("of the code")
    (code / "deep" / "own").write_text("of the code")
    provide(archives, Mount(str(target), link=str(code)))
    assert code.is_symlink()
    assert (code / "both").read_text() == "of the mount"
    assert (code / "deep" / "own").read_text() == "of the code"
    link(str(tmp_path), str(code))
    assert code.resolve() == tmp_path
