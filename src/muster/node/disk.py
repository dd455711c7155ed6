"""How much disk a node uses for its own files, where nothing limits it: measured now and then."""

from __future__ import annotations

import os
import stat
from typing import Callable, List, Set, Tuple

#: Seconds to the first look and between looks, unless looking takes long: it takes a hundredth of
#: the node's time at most.
_FIRST, _OFTEN, _SHARE = 1.0, 10.0, 100.0
#: With less than this free (bytes), it was the disk that a program failed of.
_NO_ROOM = 64 << 10


class DiskUse:
    """What is in a folder. allowed: in bytes. clock: seconds, monotonic."""

    def __init__(self, folder: str, allowed: int, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._allowed = allowed
        self._clock = clock
        #: When to look; None = never again.
        self.due: float | None = clock() + _FIRST

    def step(self) -> bool:
        """Look, if it is time to. Whether it is too much, for the first time."""
        return self.due is not None and self._clock() >= self.due and self.look()

    def look(self) -> bool:
        """The same, whatever the time."""
        if self.due is None:
            return False
        before = self._clock()
        if used(self._folder, self._allowed) > self._allowed:
            self.due = None
            return True
        now = self._clock()
        self.due = now + max(_OFTEN, (now - before) * _SHARE)
        return False


def used(folder: str, enough: int) -> int:
    """Bytes that the files below a folder take on its disk, each counted once; counting ends with
    more than `enough`."""
    total = 0
    seen: Set[Tuple[int, int]] = set()
    try:
        disk = os.stat(folder).st_dev
    except OSError:  # the program has removed it
        return 0
    left: List[str] = [folder]
    while left and total <= enough:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
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
    return total


def is_full(folder: str) -> bool:
    """Whether a node's own disk has no room left; it was mounted in the node's folder."""
    try:
        disk = os.statvfs(os.path.join(folder, "disk"))
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _NO_ROOM or not disk.f_favail


def _look(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
