"""Files to which several processes add lines."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from muster.storage import line_files
from muster.storage.line_files import append, lines

MOST = 1 << 20


def test_lines_are_read_in_the_order_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert list(lines(path)) == []
    append(path, b"one\n", MOST)
    append(path, b"two\nthree\n", MOST)
    assert list(lines(path)) == [b"one\n", b"two\n", b"three\n"]


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\ntw")
    assert list(lines(path)) == [b"one\n"]


def test_a_file_that_is_too_large_loses_its_older_half(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for number in range(100):
        append(path, b"%08d\n" % number, 500)
    found = [int(line) for line in lines(path)]
    assert path.stat().st_size <= 500
    assert found == list(range(found[0], 100))
    assert len(found) >= 25
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_reader_reads_all_of_a_file_that_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    append(path, b"".join(b"%08d\n" % number for number in range(50)), MOST)
    reading = lines(path)
    assert next(reading) == b"00000000\n"
    append(path, b"00000050\n", 100)
    assert [int(line) for line in reading] == list(range(1, 51))


def _add(path: Path, writer: int) -> None:
    for number in range(200):
        append(path, b"%d %d\n" % (writer, number), 1000)


def test_writers_do_not_lose_the_newest_lines(tmp_path: Path) -> None:
    path = tmp_path / "file"
    context = get_context("fork")
    writers = [context.Process(target=_add, args=(path, writer)) for writer in range(3)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert [each.exitcode for each in writers] == [0, 0, 0]
    found = [tuple(map(int, line.split())) for line in lines(path)]
    for writer in range(3):
        own = [number for who, number in found if who == writer]
        assert own == list(range(200 - len(own), 200))
    assert max(found, key=lambda line: line[1])[1] == 199


def test_a_file_that_was_replaced_while_waiting_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    append(path, b"old\n", MOST)
    lock, replaced = line_files.flock, []

    def locked_late(file: int, kind: int, where: Path) -> None:
        if not replaced:  # another process replaces the file before this one has the lock
            replaced.append(True)
            (tmp_path / "part").write_bytes(b"new\n")
            os.replace(tmp_path / "part", path)
        lock(file, kind, where)

    monkeypatch.setattr(line_files, "flock", locked_late)
    append(path, b"more\n", MOST)
    assert list(lines(path)) == [b"new\n", b"more\n"]


def test_threads_may_write_too(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: append(path, b"%d\n" % number, MOST), range(200)))
    assert sorted(int(line) for line in lines(path)) == list(range(200))
