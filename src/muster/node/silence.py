"""Noticing that a program has stopped writing."""

from __future__ import annotations

import os
import stat
from typing import List, Sequence, Tuple

_Look = Tuple[int, int]  # size, time of the last change in ns


class Silence:
    """How long nothing was written to any of some files, by its caller's clock (seconds,
    monotonic).

    Files are looked at when the time is over and not before. What is no plain file tells nothing:
    with none that is, nobody is ever found silent.
    """

    def __init__(self, paths: Sequence[str], timeout: float, now: float) -> None:
        self._paths = [path for path in paths if _is_plain(path)]
        self._timeout = timeout
        self._seen = self._look()
        self._looked = self._since = now
        self.failed = ""

    @property
    def due(self) -> float | None:
        """When to look; None = never."""
        return None if self.failed or not self._paths else self._since + self._timeout

    def renew(self, now: float) -> None:
        """Be as patient as at the start."""
        self._since = now

    def step(self, now: float, wall: float) -> None:
        """Look, if it is time to. Sets `failed`. wall: the time as files have it, epoch seconds."""
        if self.due is None or now < self.due:
            return
        before, self._seen = self._seen, self._look()
        if self._seen == before:
            self.failed = "nothing was written for %g s" % self._timeout
            return
        age = wall - max(changed for _, changed in self._seen) / 1e9
        # written since the last look: a time outside that is a clock's that was set, or the file
        # system's own
        self._since = now - age if 0 <= age <= now - self._looked else now
        self._looked = now

    def _look(self) -> List[_Look]:
        return [_look(path) for path in self._paths]


def _is_plain(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _look(path: str) -> _Look:
    try:
        found = os.stat(path)
    except OSError:
        return (-1, 0)  # a program may remove its own output
    return (found.st_size, found.st_mtime_ns)
