"""Listing and reading outputs that programs may change at any moment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from muster.client.output_copies import copy_content, copy_link
from muster.storage import outputs
from muster.storage.outputs import StoredOutput, find_outputs


def write(root: Path, *places: str) -> None:
    for place in places:
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(place)


def read(output: StoredOutput) -> str:
    with output.open() as file:
        return file.read().decode()


def places(root: Path, ranks: int = 2) -> list[tuple[int | None, str]]:
    return [(one.rank, str(one.path)) for one in find_outputs(root, range(ranks))]


def one_named(root: Path, name: str) -> StoredOutput:
    (found,) = [one for one in find_outputs(root, range(2)) if one.path.name == name]
    return found


def test_files_belong_to_the_node_in_whose_directory_they_are(tmp_path: Path) -> None:
    write(
        tmp_path, "rank-1/b", "rank-1/a/b", "rank-0/x", "all", "rank-2/y", "rank-01/z", "rank-x/z"
    )
    (tmp_path / "rank-0" / "empty").mkdir()
    os.mkfifo(tmp_path / "rank-0" / "pipe")
    assert places(tmp_path) == [
        (None, "all"),
        (None, "rank-01/z"),
        (None, "rank-2/y"),
        (None, "rank-x/z"),
        (0, "x"),
        (1, "a/b"),
        (1, "b"),
    ]
    assert places(tmp_path / "missing") == []


@pytest.mark.parametrize(
    ("target", "leaves", "content"),
    [
        ("model", False, "rank-0/model"),
        ("../rank-0/model", False, "rank-0/model"),
        ("../../secret", True, None),
        ("/etc/passwd", True, None),
        ("missing", False, None),
        (".", False, None),
    ],
)
def test_links_are_followed_only_inside_the_outputs(
    tmp_path: Path, target: str, leaves: bool, content: str | None
) -> None:
    root = tmp_path / "outputs"
    write(root, "rank-0/model")
    write(tmp_path, "secret")
    (root / "rank-0" / "link").symlink_to(target)
    found = one_named(root, "link")
    assert (found.link, found.leaves_outputs) == (target, leaves)
    if content is None:
        with pytest.raises(OSError):
            read(found)
    else:
        assert read(found) == content


def test_a_folder_that_was_replaced_by_a_link_is_not_entered(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    write(root, "rank-0/d/file")
    write(tmp_path, "elsewhere/file")
    found = one_named(root, "file")
    (root / "rank-0" / "d").rename(root / "old")
    (root / "rank-0" / "d").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotADirectoryError):
        found.open()


def test_a_file_that_was_replaced_by_a_pipe_does_not_block(tmp_path: Path) -> None:
    write(tmp_path, "rank-0/file")
    found = one_named(tmp_path, "file")
    (tmp_path / "rank-0" / "file").unlink()
    os.mkfifo(tmp_path / "rank-0" / "file")
    with pytest.raises(OSError, match="not a regular file"):
        found.open()


def test_reading_ends_where_the_file_ended_when_it_began(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before")
    with path.open("ab") as writer:
        found = outputs.blocks(path.open("rb"), 2)
        first = next(found)
        writer.write(b" and after")
        writer.flush()
        assert (first, [*found]) == (b"fore", [])


@pytest.mark.parametrize(
    ("rank", "path", "found"),
    [
        (0, "a/b", True),
        (None, "rank-0/a/b", True),
        (0, "../rank-0/a/b", False),
        (0, "a/../../../secret", False),
        (None, "../secret", False),
        (None, "/etc/passwd", False),
        (0, "a", False),
        (0, "", False),
        (1, "a/b", False),
        (0, "link/secret", False),
    ],
)
def test_only_paths_of_outputs_are_opened(
    tmp_path: Path, rank: int | None, path: str, found: bool
) -> None:
    root = tmp_path / "outputs"
    write(root, "rank-0/a/b")
    write(tmp_path, "secret")
    (root / "rank-0" / "link").symlink_to(tmp_path)
    if found:
        assert read(outputs.output_at(root, rank, PurePosixPath(path))) == "rank-0/a/b"
    else:
        with pytest.raises(OSError):
            outputs.output_at(root, rank, PurePosixPath(path)).open()


def test_outputs_that_became_a_link_are_not_read(tmp_path: Path) -> None:
    root, private = tmp_path / "run" / "outputs", tmp_path / "private"
    for folder in (root, private):
        folder.mkdir(parents=True)
        (folder / "file").write_text("secret")
        (folder / "link").symlink_to("file")
    found = find_outputs(root, range(1))
    assert [read(one) for one in found] == ["secret", "secret"]
    root.rename(tmp_path / "moved")
    root.symlink_to(private)
    assert find_outputs(root, range(1)) == []
    for one in found:
        with pytest.raises(OSError):
            read(one)


@pytest.mark.slow
def test_deep_folders_are_listed_and_copied(tmp_path: Path) -> None:
    """With neither recursion nor a descriptor for every level; and they are copied."""
    depth = 1200
    before = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a", dir_fd=before)
        below = os.open("a", os.O_RDONLY, dir_fd=before)
        os.close(before)
        before = below
    os.close(os.open("file", os.O_CREAT, dir_fd=before))
    os.close(before)
    try:
        assert places(tmp_path) == [(None, "a/" * depth + "file")]
        (found,) = find_outputs(tmp_path, range(1))
        content = outputs.blocks(found.open(), 0)
        copy_content(content, tmp_path / "a" / "b" / found.path, 0o644, 1.0)
        copy_link("file", (tmp_path / "a" / "b" / found.path).with_name("link"))
        assert [path for _, path in places(tmp_path / "a" / "b")] == [
            "a/" * depth + name for name in ("file", "link")
        ]
    finally:  # pytest could not: shutil.rmtree is recursive
        subprocess.run(["rm", "-rf", tmp_path / "a"], check=True)
