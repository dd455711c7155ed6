"""The bytes of object storage, in files below MUSTER_HOME:

    objects/AB/ABCDEFGHIJ        a file for an object, or for each part of one

Nothing names a file but a record in the store (`PieceRecord.file`), which is made when the file is
complete and on the disk. So a file is written at its final place, and nobody sees half of it. What
no record names after an hour is a leftover of a process that was killed, or of an object that was
replaced: `remove_unused` removes it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from muster.identity import new_id
from muster.storage.disk_use import entries_of
from muster.storage.home import Home

#: Seconds for which a file that no record names is kept: its record may be about to be made, or its
#: object may be being read.
KEPT = 3600.0
#: Buffers that one system call may take.
_MOST_BUFFERS = 1000
#: Bytes that the kernel is told to write to the disk at once.
_FLUSHED_AT_ONCE = 8 << 20
#: Files that are looked up at once.
_AT_ONCE = 500


class NewFile:
    """A file that is being written. Its methods block; `write` and `hash` may be called in two
    threads at once."""

    def __init__(self, home: Home) -> None:
        """Create it. Raises OSError."""
        #: What records call it.
        self.name = new_id()
        #: Bytes that were written.
        self.size = 0
        #: How many of them the kernel was told to write to the disk.
        self._flushing = 0
        self._path = path_of(home, self.name)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._md5 = hashlib.md5(usedforsecurity=False)

    def write(self, blocks: Sequence[bytes]) -> None:
        """Append blocks. Raises OSError."""
        for start in range(0, len(blocks), _MOST_BUFFERS):
            some = blocks[start : start + _MOST_BUFFERS]
            wanted, written = sum(map(len, some)), os.writev(self._descriptor, some)
            self.size += written
            if written < wanted:  # the disk is nearly full, or the block was very large
                rest = memoryview(b"".join(some))[written:]
                while rest:
                    written = os.write(self._descriptor, rest)
                    self.size += written
                    rest = rest[written:]
        if self.size - self._flushing >= _FLUSHED_AT_ONCE:
            self._start_flushing()

    def _start_flushing(self) -> None:
        """Have the kernel write what is there to the disk while more arrives: `finish` waits for
        less. It does so for pages that nobody will need soon; that they are soon forgotten does no
        harm."""
        if hasattr(os, "posix_fadvise"):  # not on macOS
            span = (self._flushing, self.size - self._flushing)
            os.posix_fadvise(self._descriptor, *span, os.POSIX_FADV_DONTNEED)
        self._flushing = self.size

    def hash(self, blocks: Sequence[bytes]) -> None:
        """Add blocks to the digest."""
        for block in blocks:
            self._md5.update(block)

    def md5(self) -> bytes:
        """The digest of what was hashed."""
        return self._md5.digest()

    def finish(self) -> None:
        """Close it. It is on the disk then, with its name. Raises OSError."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        _sync_folder(self._path.parent)

    def discard(self) -> None:
        """Close and remove it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._path.unlink(missing_ok=True)


class ObjectReader:
    """Reads a range of the bytes of an object. Its methods block."""

    def __init__(self, home: Home, files: Sequence[tuple[str, int]], start: int, stop: int) -> None:
        """Open the first file. files: the names and sizes of all of the object. start, stop: the
        first byte, and the first one after the range. Raises FileNotFoundError if the object was
        replaced meanwhile, and as `read`."""
        self._home = home
        self._descriptor = -1
        #: The files, with the first byte in each and the first one after it.
        self._left: list[tuple[str, int, int]] = []
        at = 0
        for name, size in files:
            first, last = max(start - at, 0), min(stop - at, size)
            if first < last:
                self._left.append((name, first, last))
            at += size
        self._left.reverse()
        self._at = self._stop = 0
        self._next_file()

    def read(self, most: int) -> bytes:
        """The next bytes, at most so many; b"" at the end. Raises OSError, EOFError."""
        if self._at == self._stop and not self._next_file():
            return b""
        block = os.pread(self._descriptor, min(most, self._stop - self._at), self._at)
        if not block:
            raise EOFError("a file of an object has become shorter")
        self._at += len(block)
        return block

    def _next_file(self) -> bool:
        self.close()
        if not self._left:
            return False
        name, self._at, self._stop = self._left.pop()
        path = path_of(self._home, name)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        found = os.fstat(self._descriptor)
        if not S_ISREG(found.st_mode) or found.st_size < self._stop:
            self.close()  # before anything is sent of it
            raise EOFError(f"{path} is damaged: it has to be a file of {self._stop} bytes or more")
        return True

    def close(self) -> None:
        """Close what is open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def path_of(home: Home, name: str) -> Path:
    """Where a file is. name: as in its record."""
    return home.objects / name[:2] / name


def copy_file(home: Home, name: str) -> str:
    """Give the bytes of a file another name, without a copy where the file system can do so.
    Returns it. Raises OSError."""
    source, copied = path_of(home, name), new_id()
    target = path_of(home, copied)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.utime(source)  # before the link: it has the same time, and is no leftover
    try:
        os.link(source, target)
    except OSError:  # too many links, or a file system without
        shutil.copyfile(source, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())
    _sync_folder(target.parent)
    return copied


def discard(home: Home, names: Sequence[str]) -> None:
    """Remove files of an object that was replaced or deleted, and what else no record names any
    more. Who reads an object of one file has it open; who reads one of several opens one after
    another: those are kept for a while."""
    if len(names) == 1:
        remove(home, names)
        return
    for name in names:
        with suppress(FileNotFoundError):
            os.utime(path_of(home, name))


def remove(home: Home, names: Sequence[str]) -> None:
    """Remove files that nobody reads: no object has had them."""
    for name in names:
        path_of(home, name).unlink(missing_ok=True)


def remove_unused(home: Home, used: Callable[[Sequence[str]], set[str]], now: float) -> int:
    """Remove old files that no record names. used: tells which of some files a record names. now:
    epoch seconds. Returns their number. Raises OSError, StoreError."""
    old, count = [*_old_files(home, now)], 0
    for start in range(0, len(old), _AT_ONCE):
        some = old[start : start + _AT_ONCE]
        unused = sorted(set(some) - used(some))
        remove(home, unused)
        count += len(unused)
    return count


def _old_files(home: Home, now: float) -> Iterator[str]:
    for folder in entries_of(home.objects):
        for path in entries_of(folder):
            with suppress(FileNotFoundError):
                if now - path.stat().st_mtime >= KEPT:
                    yield path.name


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
