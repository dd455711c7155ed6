"""The files of object storage."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from muster.storage.home import Home
from muster.storage.objects import (
    KEPT,
    NewFile,
    ObjectReader,
    copy_file,
    discard,
    path_of,
    remove_unused,
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def write(home: Home, *blocks: bytes) -> str:
    """A file with these bytes. Returns its name."""
    file = NewFile(home)
    file.write(blocks)
    file.hash(blocks)
    assert (file.size, file.md5()) == (
        sum(map(len, blocks)),
        hashlib.md5(b"".join(blocks)).digest(),
    )
    file.finish()
    return file.name


def age(home: Home, *names: str) -> None:
    """Make files as old as those that are looked at."""
    for name in names:
        os.utime(path_of(home, name), (0, time.time() - KEPT))


def read(home: Home, names: Sequence[str], sizes: Sequence[int], start: int, stop: int) -> bytes:
    reader = ObjectReader(home, [*zip(names, sizes, strict=True)], start, stop)
    found = b""
    while block := reader.read(4):
        assert len(block) <= 4
        found += block
    reader.close()
    return found


def test_a_file_has_all_blocks(home: Home) -> None:
    blocks = [bytes([number % 256]) * (number % 7) for number in range(3000)]
    name = write(home, *blocks)
    assert path_of(home, name).read_bytes() == b"".join(blocks)
    assert path_of(home, name).stat().st_mode & 0o777 == 0o600


def test_a_large_file_is_flushed_while_it_is_written(home: Home) -> None:
    blocks = [bytes([number]) * (1 << 20) for number in range(20)]
    file = NewFile(home)
    for block in blocks:
        file.write([block])
    file.finish()
    assert path_of(home, file.name).read_bytes() == b"".join(blocks)


def test_a_write_that_is_cut_short_is_continued(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, single = os.writev, os.write
    monkeypatch.setattr(os, "writev", lambda fd, blocks: whole(fd, [b"".join(blocks)[:5]]))
    monkeypatch.setattr(os, "write", lambda fd, data: single(fd, data[:3]))
    name = write(home, b"0123", b"4567", b"89abc")
    assert path_of(home, name).read_bytes() == b"0123456789abc"


def test_a_file_that_is_discarded_is_gone(home: Home) -> None:
    file = NewFile(home)
    file.write([b"half"])
    file.discard()
    assert not path_of(home, file.name).exists()


@pytest.mark.parametrize("start", range(0, 11))
@pytest.mark.parametrize("stop", range(0, 11))
def test_ranges_of_several_files(home: Home, start: int, stop: int) -> None:
    names = [write(home, part) for part in (b"012", b"", b"3456789")]
    assert read(home, names, [3, 0, 7], start, stop) == b"0123456789"[start:stop]


def test_a_file_that_is_too_short_is_an_error(home: Home) -> None:
    name = write(home, b"012")
    with pytest.raises(EOFError, match=f"{name} is damaged"):
        ObjectReader(home, [(name, 5)], 0, 5)
    reader = ObjectReader(home, [(name, 3)], 0, 3)
    os.truncate(path_of(home, name), 0)
    with pytest.raises(EOFError, match="shorter"):
        reader.read(3)
    reader.close()


def test_what_is_not_a_file_is_not_read(home: Home) -> None:
    link, folder = path_of(home, write(home, b"012")), path_of(home, write(home, b"012"))
    for path in (link, folder):
        path.unlink()
    folder.mkdir()
    with pytest.raises(EOFError, match="is damaged"):
        ObjectReader(home, [(folder.name, 3)], 0, 3)
    link.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        ObjectReader(home, [(link.name, 3)], 0, 3)


def test_what_is_read_outlives_its_name(home: Home) -> None:
    name = write(home, b"0123456789")
    reader = ObjectReader(home, [(name, 10)], 0, 10)
    discard(home, [name])
    assert not path_of(home, name).exists()
    assert reader.read(100) == b"0123456789"
    reader.close()
    with pytest.raises(FileNotFoundError):
        ObjectReader(home, [(name, 10)], 0, 10)


def test_files_of_one_object_are_kept_while_it_is_read(home: Home) -> None:
    names = [write(home, b"01234"), write(home, b"56789")]
    age(home, *names)
    reader = ObjectReader(home, [(name, 5) for name in names], 0, 10)
    assert reader.read(5) == b"01234"
    discard(home, names)
    assert remove_unused(home, lambda _: set(), time.time()) == 0
    assert reader.read(5) == b"56789"
    reader.close()
    assert remove_unused(home, lambda _: set(), time.time() + KEPT + 1) == 2


def test_what_no_record_names_is_removed_later(home: Home) -> None:
    assert remove_unused(home, lambda _: set(), time.time()) == 0
    used, unused, fresh = (write(home, b"1") for _ in range(3))
    age(home, used, unused)
    looked_up: list[str] = []

    def find(names: Sequence[str]) -> set[str]:
        looked_up.extend(names)
        return {used} & {*names}

    assert remove_unused(home, find, time.time()) == 1
    assert sorted(looked_up) == sorted([used, unused])
    assert [path_of(home, name).exists() for name in (used, unused, fresh)] == [True, False, True]


def test_a_copy_is_another_file_with_the_same_bytes(home: Home) -> None:
    name = write(home, b"0123")
    age(home, name)
    copied = copy_file(home, name)
    discard(home, [name])
    assert path_of(home, copied).read_bytes() == b"0123"
    # it is young, whatever the age of the first one
    assert remove_unused(home, lambda _: set(), time.time()) == 0


def test_a_copy_where_there_are_no_links(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links")

    monkeypatch.setattr(os, "link", refuse)
    name = write(home, b"0123")
    copied = copy_file(home, name)
    assert path_of(home, copied).read_bytes() == b"0123"
    assert not path_of(home, copied).samefile(path_of(home, name))
