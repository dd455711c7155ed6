"""Space that is kept for the store's own writes, and given up when the disk is full.

A full disk must not keep Muster from recording that a run has ended, or from canceling and deleting
runs. The reserve is a folder of files: they are space, and on file systems that count their files
also the right to make some, which SQLite needs for its WAL and the WAL's index.

    MUSTER_HOME/reserve/0
    MUSTER_HOME/reserve/3       made last and truncated first: where it is, the reserve is whole,
                                and whoever watches it learns that the disk is full
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

_FILES = 4
_EACH = 1 << 20  # bytes
#: The reserve is made, or made again, only if this many times its size is free: on a disk that
#: stays almost full it would come and go.
_PLENTY = 4


class Reserve:
    """The reserve of one MUSTER_HOME. folder: where it is."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / str(number) for number in range(_FILES)]
        self.folder = folder

    @property
    def mark(self) -> Path:
        """A file that shrinks when the reserve is given up."""
        return self._files[-1]

    @property
    def whole(self) -> bool:
        """Whether it is there."""
        try:
            return self.mark.stat().st_size > 0
        except OSError:
            return False

    @property
    def lacks_space(self) -> bool:
        """Whether it is not there because the disk is full, or nearly."""
        try:
            return not self.whole and not self._plenty()
        except OSError:  # the folder is gone, and the reserve with it
            return False

    def give_up(self, wal: Path) -> None:
        """Free what is reserved and allot it to the WAL, before a program that goes on writing
        takes it."""
        freed = False
        for file in reversed(self._files):
            with suppress(FileNotFoundError):  # another process gives it up as well
                os.truncate(file, 0)
                file.unlink()
                freed = True
        if freed:
            _allot(wal, _FILES * _EACH)

    def restore(self) -> None:
        """Have it there if there is plenty of space."""
        try:
            if self.whole or not self._plenty():
                return
            self.folder.mkdir(mode=0o700, exist_ok=True)
            for file in self._files:
                _fill(file)
        except OSError:  # the disk filled up meanwhile, or is read-only
            shutil.rmtree(self.folder, ignore_errors=True)

    def _plenty(self) -> bool:
        disk = os.statvfs(self.folder.parent)
        if disk.f_files and disk.f_favail < _PLENTY * _FILES:
            return False
        return disk.f_bavail * disk.f_frsize >= _PLENTY * _FILES * _EACH


def _fill(file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, _EACH)
        else:
            os.write(descriptor, os.urandom(_EACH))  # zeros may be stored as a hole
    finally:
        os.close(descriptor)


_KEEP_SIZE = 1


def _allot(file: Path, size: int) -> None:
    """Have so much space for a file, beyond what is in it. Nothing where that is not possible: it
    is a precaution."""
    import ctypes

    allot = getattr(ctypes.CDLL(None), "fallocate", None)  # Linux
    if allot is None:
        return
    with suppress(FileNotFoundError):  # nobody has the database open
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            allot(descriptor, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size))
        finally:
            os.close(descriptor)
