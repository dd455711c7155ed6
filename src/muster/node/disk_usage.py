"""Measures from time to time how much disk a node uses, where no quota limits it."""

from __future__ import annotations

import os
import stat
from typing import Callable, Iterator, List, Set, Tuple

#: Seconds until the first measurement, and between two.
_FIRST, _INTERVAL = 1.0, 10.0
#: Seconds that a measurement runs before the agent turns to its other tasks, and what part (1/N) of
#: the node's time measurements may take. The last measurement delays the node's exit report.
_SLICE, _TIME_PART, _LAST_SLICE = 0.01, 100.0, 0.25
#: Files measured between two readings of the clock, so that a small folder is measured in one go
#: even on a busy machine.
_FILES_PER_SLICE = 256
#: Below this much free space (bytes, or 1/N of the disk) the disk counts as full: a file system
#: refuses a large write as a whole and leaves the space free.
_MIN_FREE, _MIN_FREE_PART = 2 << 20, 50


class DiskUsage:
    """The size of a folder, compared with what is allowed.

    allowed: in bytes. clock: monotonic, in seconds.
    """

    def __init__(self, folder: str, allowed: int, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._allowed = allowed
        self._clock = clock
        self._measurement: Iterator[int] | None = None  # the one in progress
        #: When to call `step`; None = never.
        self.due: float | None = clock() + _FIRST
        #: Bytes found so far.
        self.used = 0

    def step(self) -> bool:
        """Measure for one slice, if it is time to. Returns whether the allowed size was exceeded
        for the first time."""
        if self.due is None or self._clock() < self.due:
            return False
        before = self._clock()
        done = self._measure(before + _SLICE)
        now = self._clock()
        self.due = now + max(_INTERVAL if done else 0.0, (now - before) * _TIME_PART)
        return self._exceeded()

    def measure_at_end(self) -> bool:
        """Measure from the start, for a limited time. Returns whether the allowed size was exceeded
        for the first time."""
        if self.due is None:
            return False
        self._measurement = None
        self._measure(self._clock() + _LAST_SLICE)
        return self._exceeded()

    def _measure(self, deadline: float) -> bool:
        """Returns whether the measurement is complete."""
        if self._measurement is None:
            self._measurement = count(self._folder)
        for found in self._measurement:
            self.used = found
            if self._clock() >= deadline:
                return False
        self._measurement = None
        return True

    def _exceeded(self) -> bool:
        if self.used <= self._allowed:
            return False
        self.due = self._measurement = None
        return True


def count(folder: str) -> Iterator[int]:
    """The bytes that the files below a folder take on its disk, with each file counted once.

    Yields the sum so far every few files, and the total at the end.
    """
    total = files = 0
    seen: Set[Tuple[int, int]] = set()
    folders: List[str] = [folder]
    try:
        disk = os.stat(folder).st_dev
    except OSError:  # the program has removed it
        folders = []
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    files += 1
                    if files % _FILES_PER_SLICE == 0:
                        yield total
                    found = _stat(entry)
                    if found is None or found.st_dev != disk:
                        continue
                    if stat.S_ISDIR(found.st_mode):
                        folders.append(entry.path)
                    elif found.st_nlink > 1:
                        if (found.st_dev, found.st_ino) in seen:
                            continue
                        seen.add((found.st_dev, found.st_ino))
                    total += found.st_blocks * 512
        except OSError:  # removed, or not readable
            continue
    yield total


def is_full(folder: str) -> bool:
    """Whether the node's own disk, which is mounted in its folder, has no space left; if it has
    none, that of its folder."""
    own = os.path.join(folder, "disk")
    has_own = os.path.isdir(own)
    try:
        disk = os.statvfs(own if has_own else folder)
    except OSError:
        return False
    part = disk.f_blocks * disk.f_frsize // _MIN_FREE_PART if has_own else 0
    min_free = max(_MIN_FREE, part)
    return disk.f_bavail * disk.f_frsize < min_free or not disk.f_favail


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
