"""Measuring the disk usage of a node's files."""

from __future__ import annotations

import os
from pathlib import Path

from muster.node.disk_usage import DiskUsage, count


class Clock:
    """tick: seconds that each reading takes."""

    now = 100.0
    tick = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def used(folder: Path) -> int:
    *_, total = count(str(folder))
    return total


def put(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_each_file_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    put(folder / "a", 100_000)
    put(folder / "deep/er/b", 200_000)
    both = used(folder)
    assert both >= 300_000
    os.link(folder / "a", folder / "c")
    (folder / "link").symlink_to(tmp_path)
    put(tmp_path / "elsewhere", 1_000_000)
    assert used(folder) < both + 100_000
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 30)
    assert used(folder) < both + 100_000, "holes use no space"


def test_a_removed_folder_uses_nothing(tmp_path: Path) -> None:
    assert used(tmp_path / "removed") == 0


def test_disk_usage_is_reported_once(tmp_path: Path) -> None:
    clock = Clock()
    use = DiskUsage(str(tmp_path), 500_000, clock)
    put(tmp_path / "a", 600_000)
    assert not use.step(), "too early"
    assert use.due is not None
    clock.now = use.due
    assert use.step()
    assert (use.due, use.step(), use.measure_at_end()) == (None, False, False)


def test_disk_usage_is_measured_again_later(tmp_path: Path) -> None:
    clock = Clock()
    use = DiskUsage(str(tmp_path), 500_000, clock)
    clock.now += 2
    assert not use.step()
    assert use.due == clock.now + 10
    put(tmp_path / "a", 600_000)
    assert not use.step()
    assert use.measure_at_end(), "at the end, also before it is due"
    assert use.used >= 600_000


def test_many_files_are_counted_in_slices(tmp_path: Path) -> None:
    """Slices are short, and the pauses between them a hundred times as long."""
    for number in range(3000):
        (tmp_path / str(number)).write_bytes(b"x")
    whole = used(tmp_path)
    clock = Clock()
    use = DiskUsage(str(tmp_path), whole - 1, clock)
    clock.tick = 0.006
    slices, found = 0, False
    while not found:
        assert use.due is not None
        clock.now = started = use.due
        found = use.step()
        slices += 1
        assert clock.now - started < 0.04
        assert found or use.due > clock.now + 1
    assert 4 < slices < 12
    assert use.used == whole


def test_the_last_count_ends_in_time(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / str(number)).write_bytes(b"x")
    whole = used(tmp_path)
    clock = Clock()
    use = DiskUsage(str(tmp_path), whole - 1, clock)
    clock.tick = 0.1
    assert not use.measure_at_end()
    assert 0 < use.used < whole, "what was counted by then"
    clock.tick = 0.0
    assert use.measure_at_end()
