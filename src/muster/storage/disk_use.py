"""How much disk files take. Blocks that files share by hard links or reflinks are counted once."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

#: ioctl_fiemap: the header of a request, an extent, and the flags of extents.
_FIEMAP = 0xC020660B
_REQUEST, _EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x")
_IS_LAST, _IS_SHARED = 0x1, 0x2000
_AT_ONCE = 128
#: Files with fewer bytes are not asked for what they share.
_MIN_SHARED = 1 << 20


class _File(NamedTuple):
    """What was counted of one file."""

    #: Bytes that no other file shares.
    own: int
    #: Names that were seen, and all of them.
    seen: int
    names: int


class _Ranges:
    """A set of numbers, as ranges that do not overlap."""

    def __init__(self) -> None:
        self._bounds: list[int] = []  # start, end, start, end, ...

    def add(self, start: int, end: int) -> int:
        """Add a range. Returns how many of its numbers are new."""
        bounds = self._bounds
        # even positions: ranges that touch or overlap this one are between the two
        first, last = bisect_left(bounds, start), bisect_right(bounds, end)
        first, last = first - first % 2, last + last % 2
        touched = bounds[first:last]
        known = sum(
            max(min(stop, end) - max(begin, start), 0)
            for begin, stop in zip(touched[::2], touched[1::2], strict=True)
        )
        bounds[first:last] = [min([start, *touched]), max([end, *touched])]
        return end - start - known


class DiskUse:
    """The disk that some folders and files take together."""

    def __init__(self) -> None:
        #: By (device, inode).
        self._files: dict[tuple[int, int], _File] = {}
        #: By device: the blocks counted so far of those that several files share.
        self._shared: dict[int, _Ranges] = {}
        #: Bytes on the disk.
        self.size = 0

    def add(self, path: str | Path) -> int:
        """Count a file, or a folder with its content. Returns the bytes that it adds."""
        before = self.size
        for name, found in _walk(os.fspath(path)):
            self._count(name, found)
        return self.size - before

    def _count(self, path: str, found: os.stat_result) -> None:
        key = (found.st_dev, found.st_ino)
        if key in self._files:
            known = self._files[key]
            self._files[key] = known._replace(seen=known.seen + 1)
            return
        size, own = found.st_blocks * 512, found.st_blocks * 512
        if stat.S_ISREG(found.st_mode) and size >= _MIN_SHARED:
            counted = self._shared.setdefault(found.st_dev, _Ranges())
            for place, length in shared_extents(path):
                own -= length
                size -= length - counted.add(place, place + length)
        names = 1 if stat.S_ISDIR(found.st_mode) else found.st_nlink
        self._files[key] = _File(max(own, 0), 1, names)
        self.size += max(size, 0)

    def freed(self, *, other_names: int = 0) -> int:
        """Bytes that are freed at least when all that was counted is deleted: not those of files
        that have more names elsewhere, nor blocks that are shared. other_names: how many more names
        are deleted as well."""
        return sum(
            file.own for file in self._files.values() if file.seen + other_names >= file.names
        )


def shared_extents(path: str) -> list[tuple[int, int]]:
    """Place and length of the blocks that a file shares with others; none if that is unknown."""
    if not sys.platform.startswith("linux"):
        return []
    found: list[tuple[int, int]] = []
    start, last = 0, False
    try:
        # a program may put another file in its place meanwhile
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            while not last:
                request = bytearray(_REQUEST.size + _EXTENT.size * _AT_ONCE)
                _REQUEST.pack_into(request, 0, start, 2**64 - 1 - start, 0, 0, _AT_ONCE, 0)
                fcntl.ioctl(file, _FIEMAP, request)
                count = _REQUEST.unpack_from(request)[3]
                for number in range(count):
                    at = _REQUEST.size + number * _EXTENT.size
                    logical, place, length, flags = _EXTENT.unpack_from(request, at)
                    if flags & _IS_SHARED:
                        found.append((place, length))
                    start, last = logical + length, bool(flags & _IS_LAST)
                last = last or not count
    except OSError:  # many file systems do not know extents
        return []
    return found


def disk_use(*paths: str | Path) -> int:
    """The bytes that these files and folders take on the disk."""
    use = DiskUse()
    return sum(map(use.add, paths))


def _walk(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """A path and everything below it. What vanishes meanwhile, or cannot be
    read, is left out."""
    with suppress(OSError):
        yield path, os.lstat(path)
    todo = [path] if os.path.isdir(path) and not os.path.islink(path) else []
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    yield entry.path, entry.stat(follow_symlinks=False)


def entries_of(folder: Path) -> list[Path]:
    """The entries of a folder; none if it does not exist."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
