"""The disk that files take, and what deleting them frees."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from muster.storage.disk_use import DiskUse, _Ranges, disk_use


def test_names_of_one_file_count_once(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    (a / "data").write_bytes(os.urandom(100_000))
    os.link(a / "data", b / "data")
    one = os.stat(a / "data").st_blocks * 512
    folders = disk_use(a) - one
    use = DiskUse()
    assert use.add(a) == one + folders
    assert use.add(b) == os.lstat(b).st_blocks * 512
    assert use.freed() == use.size == disk_use(a, b)


def test_a_file_with_a_name_elsewhere_is_not_freed(tmp_path: Path) -> None:
    a = tmp_path / "a"
    a.mkdir()
    (a / "data").write_bytes(os.urandom(100_000))
    os.link(a / "data", tmp_path / "kept")
    use = DiskUse()
    use.add(a)
    assert use.freed() == use.size - os.stat(a / "data").st_blocks * 512
    assert use.freed(other_names=1) == use.size


def test_what_does_not_exist_takes_nothing(tmp_path: Path) -> None:
    assert disk_use(tmp_path / "nothing") == 0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=12))
def test_ranges_count_every_number_once(ranges: list[tuple[int, int]]) -> None:
    counted, expected = _Ranges(), set[int]()
    for start, length in ranges:
        numbers = set(range(start, start + length))
        assert counted.add(start, start + length) == len(numbers - expected)
        expected |= numbers
