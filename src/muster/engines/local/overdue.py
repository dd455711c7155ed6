"""Agents that were told to end their node at once, and have not answered yet."""

from __future__ import annotations

import os
import signal
import time

_ANSWER = 5.0  # seconds they have before they are ended themselves


class Overdue:
    def __init__(self) -> None:
        self._until: dict[int, float] = {}  # by pid

    def expect(self, pid: int) -> None:
        """It was told just now, or before."""
        self._until.setdefault(pid, time.monotonic() + _ANSWER)

    def forget(self, pid: int) -> None:
        """It has answered, or is gone."""
        self._until.pop(pid, None)

    def patience(self) -> float | None:
        """Seconds after which `end` wants to be called although nothing happened."""
        return max(0.0, min(self._until.values()) - time.monotonic()) if self._until else None

    def end(self) -> None:
        """End those whose time is over."""
        now = time.monotonic()
        for pid in [pid for pid, at in self._until.items() if at <= now]:
            del self._until[pid]
            os.kill(pid, signal.SIGKILL)
