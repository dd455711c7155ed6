"""The clock of a run: epoch seconds that never jump.

Deadlines and delays of a run must not move when the clock of the machine is set.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of epoch seconds that never decrease."""

    def now(self) -> float:
        """The current time."""
        ...


class SteadyClock:
    """The time of the wall clock when the object was created, plus the time passed since then.

    no_earlier: a lower limit, the last time that a predecessor recorded (epoch seconds).
    """

    def __init__(self, no_earlier: float = 0.0) -> None:
        self._offset = max(time.time(), no_earlier) - _seconds_since_boot()

    def now(self) -> float:
        # to the microsecond, as it is stored: the status in memory is the one that is read again
        return round(self._offset + _seconds_since_boot(), 6)


def _seconds_since_boot() -> float:
    """Seconds since the machine was booted, including the time it slept where the system knows."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
