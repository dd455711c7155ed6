"""Reserved disk space for the store's writes, given up when the disk is full.

On a full disk, Muster must still be able to record the end of a run, and to cancel and delete runs.
The reserve is a folder of files. They reserve space and, on file systems with a limited number of
inodes, the inodes that SQLite needs for its WAL and the WAL's index.

    MUSTER_HOME/reserve/0
    MUSTER_HOME/reserve/3       created last and truncated first: it exists only if the reserve is
                                complete, and watching it shows when the disk is full
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_FILES = 4
_FILE_SIZE = 1 << 20  # bytes
#: The reserve is created only if this many times its size is free: otherwise it would be created
#: and given up in turns on a disk that stays almost full.
_MIN_FREE = 4


class Reserve:
    """The reserve of one MUSTER_HOME."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / str(number) for number in range(_FILES)]
        self.folder = folder

    @property
    def mark(self) -> Path:
        """The last file, which shrinks when the reserve is given up."""
        return self._files[-1]

    @property
    def is_complete(self) -> bool:
        """Whether the reserve is complete."""
        try:
            return self.mark.stat().st_size > 0
        except OSError:
            return False

    @property
    def lacks_space(self) -> bool:
        """Whether the reserve is missing because the disk is full, or nearly."""
        try:
            return not self.is_complete and not self._has_enough_space()
        except OSError:  # the folder was deleted
            return False

    def give_up(self, wal: Path) -> None:
        """Free the reserved space and allocate it to the WAL, before another program uses it."""
        freed = False
        for file in reversed(self._files):
            with suppress(FileNotFoundError):  # another process is giving it up
                os.truncate(file, 0)
                file.unlink()
                freed = True
        if freed:
            _allocate(wal, _FILES * _FILE_SIZE)

    def restore(self) -> None:
        """Create the reserve if it is missing and there is enough space."""
        try:
            if self.is_complete or not self._has_enough_space():
                return
            self.folder.mkdir(mode=0o700, exist_ok=True)
            for file in self._files:
                _fill(file)
        except OSError:  # the disk filled up meanwhile, or is read-only
            from shutil import rmtree

            rmtree(self.folder, ignore_errors=True)

    def _has_enough_space(self) -> bool:
        disk = os.statvfs(self.folder.parent)
        if disk.f_files and disk.f_favail < _MIN_FREE * _FILES:
            return False
        return disk.f_bavail * disk.f_frsize >= _MIN_FREE * _FILES * _FILE_SIZE


def _fill(file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, _FILE_SIZE)
        else:
            os.write(descriptor, os.urandom(_FILE_SIZE))  # zeros may be stored as a hole
    finally:
        os.close(descriptor)


_KEEP_SIZE = 1


def _allocate(file: Path, size: int) -> None:
    """Allocate space for a file beyond its content. No effect where the system does not
    support it."""
    import ctypes

    allocate = getattr(ctypes.CDLL(None), "fallocate", None)  # Linux
    if allocate is None:
        return
    with suppress(FileNotFoundError):  # the database is not open
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            allocate(descriptor, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size))
        finally:
            os.close(descriptor)
