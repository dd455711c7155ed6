"""Detects that a program has stopped writing output."""

from __future__ import annotations

import os
import stat
from typing import List, Sequence, Tuple

_FileState = Tuple[int, int]  # size, mtime in ns


class HangDetector:
    """Detects that none of some files was written to for `timeout` seconds.

    `now` is the caller's monotonic clock, in seconds. Files are looked at only when the timeout is
    over. Paths that are not regular files are ignored; if none is left, no hang is ever detected.
    """

    def __init__(self, paths: Sequence[str], timeout: float, now: float) -> None:
        self._paths = [path for path in paths if _is_regular(path)]
        self._timeout = timeout
        self._state = self._read_state()
        self._looked_at = self._silent_since = now
        #: The failure message, once a hang is detected.
        self.failed = ""

    @property
    def due(self) -> float | None:
        """When to call `step`; None = never."""
        return None if self.failed or not self._paths else self._silent_since + self._timeout

    def reset(self, now: float) -> None:
        """Restart the timeout."""
        self._silent_since = now

    def step(self, now: float, wall: float) -> None:
        """Look at the files if it is time to. Sets `failed`. wall: epoch seconds, to compare with
        the files' times."""
        if self.due is None or now < self.due:
            return
        before, self._state = self._state, self._read_state()
        if self._state == before:
            self.failed = "nothing was written for %g s" % self._timeout
            return
        age = wall - max(changed for _, changed in self._state) / 1e9
        # a file was written since the last poll; a time outside that span means that a clock was
        # set, or that the file system's clock differs
        self._silent_since = now - age if 0 <= age <= now - self._looked_at else now
        self._looked_at = now

    def _read_state(self) -> List[_FileState]:
        return [_file_state(path) for path in self._paths]


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _file_state(path: str) -> _FileState:
    try:
        found = os.stat(path)
    except OSError:
        return (-1, 0)  # a program may remove its own output
    return (found.st_size, found.st_mtime_ns)
