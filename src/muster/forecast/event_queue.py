"""Virtual time: a queue of future events. Time jumps from one event to the next, so the simulation
of a months-long run takes only as long as its events do."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class EventQueue:
    """Events in the order of their times, then of being added. Times in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        #: The virtual time. It never decreases.
        self.now = now
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call; a time in the past means now."""
        heapq.heappush(self._heap, (time, next(self._numbers), action, arguments))

    def after(self, seconds: float, action: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call `seconds` from now."""
        self.at(self.now + seconds, action, *arguments)

    def next(self) -> float | None:
        """The time of the next event; None if the queue is empty."""
        return self._heap[0][0] if self._heap else None

    def advance(self, until: float) -> None:
        """Advance to `until`, or to the next event if that is earlier, and run all events of that
        moment. Exceptions of an event are passed on."""
        heap = self._heap
        if not heap or heap[0][0] > until:
            self.now = max(self.now, until)
            return
        self.now = max(self.now, heap[0][0])
        while heap and heap[0][0] <= self.now:
            _, _, action, arguments = heapq.heappop(heap)
            action(*arguments)
