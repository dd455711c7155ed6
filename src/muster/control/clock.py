"""What time it is, for a run: the wall clock's seconds, which never jump.

Deadlines and waits of a run must not move because somebody sets the machine's clock.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """now: epoch seconds, never less than before."""

    def now(self) -> float: ...


class SteadyClock:
    """The wall clock as it was when this was made, and from there on the time that has passed.

    no_earlier: what a predecessor has seen already (epoch seconds).
    """

    def __init__(self, no_earlier: float = 0.0) -> None:
        self._offset = max(time.time(), no_earlier) - _passed()

    def now(self) -> float:
        return self._offset + _passed()


def _passed() -> float:
    """Seconds since the machine was started, those it slept included where the system knows."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
