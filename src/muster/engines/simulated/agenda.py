"""Virtual time: a list of what is going to happen. It passes only from one happening to the next,
so a run of months takes as long as there is something to do in it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Agenda:
    """What is to happen, in order of time, then of being put down. Times in seconds.

    now: the virtual time. It never goes back.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Have something happen; at once, if that time is over."""
        heapq.heappush(self._heap, (time, next(self._numbers), action, arguments))

    def after(self, seconds: float, action: Callable[..., object], *arguments: Any) -> None:
        """Have something happen later."""
        self.at(self.now + seconds, action, *arguments)

    def next(self) -> float | None:
        """When the next thing happens; None = nothing ever will."""
        return self._heap[0][0] if self._heap else None

    def advance(self, until: float) -> None:
        """Go on to `until`, or to the next moment in which something happens, if that is earlier;
        then all of that moment happens. What an action raises comes through."""
        heap = self._heap
        if not heap or heap[0][0] > until:
            self.now = max(self.now, until)
            return
        self.now = max(self.now, heap[0][0])
        while heap and heap[0][0] <= self.now:
            _, _, action, arguments = heapq.heappop(heap)
            action(*arguments)
