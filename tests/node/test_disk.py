"""Measuring what a node's files take."""

from __future__ import annotations

import os
from pathlib import Path

from muster.node.disk import DiskUse, used

ALL = 1 << 40


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def put(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_files_count_wherever_they_are_and_once(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    put(folder / "a", 100_000)
    put(folder / "deep/er/b", 200_000)
    both = used(str(folder), ALL)
    assert both >= 300_000
    os.link(folder / "a", folder / "c")
    (folder / "link").symlink_to(tmp_path)
    put(tmp_path / "elsewhere", 1_000_000)
    assert used(str(folder), ALL) < both + 100_000
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 30)
    assert used(str(folder), ALL) < both + 100_000, "holes take no room"


def test_counting_ends_with_enough(tmp_path: Path) -> None:
    for number in range(20):
        put(tmp_path / str(number) / "a", 100_000)
    assert 150_000 < used(str(tmp_path), 150_000) < 1_000_000
    assert used(str(tmp_path / "gone"), ALL) == 0


def test_it_is_told_once(tmp_path: Path) -> None:
    clock = Clock()
    use = DiskUse(str(tmp_path), 500_000, clock)
    put(tmp_path / "a", 600_000)
    assert not use.step(), "too early"
    assert use.due is not None
    clock.now = use.due
    assert use.step()
    assert (use.due, use.step(), use.look()) == (None, False, False)


def test_it_looks_again_later(tmp_path: Path) -> None:
    clock = Clock()
    use = DiskUse(str(tmp_path), 500_000, clock)
    assert not use.look()
    assert use.due is not None
    assert use.due > clock.now
    put(tmp_path / "a", 600_000)
    assert not use.step()
    assert use.look(), "at the end, whatever the time"
