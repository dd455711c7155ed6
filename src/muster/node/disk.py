"""How much disk a node uses for its own files, where nothing limits it: measured now and then."""

from __future__ import annotations

import os
import stat
from typing import Callable, Iterator, List, Set, Tuple

#: Seconds to the first count and between counts.
_FIRST, _OFTEN = 1.0, 10.0
#: A count goes on for so long (seconds) before the agent turns to its other tasks, and takes a
#: hundredth of the node's time at most. The one at the node's end delays the report of that end.
_SLICE, _SHARE, _LAST = 0.01, 100.0, 0.25
#: Files between two looks at the clock: a small folder is counted at once on a busy machine, too.
_STRIDE = 256
#: With less than this free (bytes, or this part of the disk), it was the disk that a program failed
#: of: a file system refuses a large write whole and keeps the room that was too small for it.
_NO_ROOM, _NO_PART = 2 << 20, 50


class DiskUse:
    """What is in a folder. allowed: in bytes. clock: seconds, monotonic."""

    def __init__(self, folder: str, allowed: int, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._allowed = allowed
        self._clock = clock
        self._count: Iterator[int] | None = None  # one that has begun
        #: When to count; None = never again.
        self.due: float | None = clock() + _FIRST
        #: Bytes that were found by now.
        self.used = 0

    def step(self) -> bool:
        """Count for a moment, if it is time to. Whether it is too much, for the first time."""
        if self.due is None or self._clock() < self.due:
            return False
        before = self._clock()
        done = self._proceed(before + _SLICE)
        now = self._clock()
        self.due = now + max(_OFTEN if done else 0.0, (now - before) * _SHARE)
        return self._exceeded()

    def last(self) -> bool:
        """Count from the beginning, as far as a short time allows. Whether it is too much, for the
        first time."""
        if self.due is None:
            return False
        self._count = None
        self._proceed(self._clock() + _LAST)
        return self._exceeded()

    def _proceed(self, deadline: float) -> bool:
        """Whether all has been counted."""
        if self._count is None:
            self._count = count(self._folder)
        for found in self._count:
            self.used = found
            if self._clock() >= deadline:
                return False
        self._count = None
        return True

    def _exceeded(self) -> bool:
        if self.used <= self._allowed:
            return False
        self.due = self._count = None
        return True


def count(folder: str) -> Iterator[int]:
    """Bytes that the files below a folder take on its disk, each counted once: those found by now,
    now and then, and all of them at last."""
    total = files = 0
    seen: Set[Tuple[int, int]] = set()
    left: List[str] = [folder]
    try:
        disk = os.stat(folder).st_dev
    except OSError:  # the program has removed it
        left = []
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    files += 1
                    if files % _STRIDE == 0:
                        yield total
                    found = _look(entry)
                    if found is None or found.st_dev != disk:
                        continue
                    if stat.S_ISDIR(found.st_mode):
                        left.append(entry.path)
                    elif found.st_nlink > 1:
                        if (found.st_dev, found.st_ino) in seen:
                            continue
                        seen.add((found.st_dev, found.st_ino))
                    total += found.st_blocks * 512
        except OSError:  # removed, or out of reach
            continue
    yield total


def is_full(folder: str) -> bool:
    """Whether a node's own disk has no room left; it was mounted in the node's folder."""
    try:
        disk = os.statvfs(os.path.join(folder, "disk"))
    except OSError:
        return False
    room = max(_NO_ROOM, disk.f_blocks * disk.f_frsize // _NO_PART)
    return disk.f_bavail * disk.f_frsize < room or not disk.f_favail


def _look(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
