"""Work of a run in threads, only some of it at the same time: an API does not take hundreds of
requests at once any faster, and a thread for each would take its memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from muster.engines.loop import RunLoop

T = TypeVar("T")


class FewThreads:
    """As `RunLoop.in_thread`, in at most so many threads at a time. Not thread-safe."""

    def __init__(self, loop: RunLoop, most: int) -> None:
        self._loop, self._most = loop, most
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0

    def in_thread(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        """Do something in a thread, now or when others have ended, in this order. done: gets what
        it returns, in the loop's thread. ended: called before, and also if it raises."""

        def finish(outcome: _Outcome[T]) -> None:
            self._start_next()
            ended()
            done(outcome.get())

        start = partial(self._loop.in_thread, partial(_outcome_of, work), finish)
        if self._running < self._most:
            self._running += 1
            start()
        else:
            self._waiting.append(start)

    def _start_next(self) -> None:
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._running -= 1


class _Outcome(Generic[T]):
    """What work has returned or raised."""

    def __init__(self, results: Sequence[T], error: Exception | None = None) -> None:
        self._results, self._error = results, error

    def get(self) -> T:
        """What was returned. Raises what was raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]


def _outcome_of(work: Callable[[], T]) -> _Outcome[T]:
    try:
        return _Outcome([work()])
    except Exception as error:  # noqa: BLE001  raised in the loop's thread
        return _Outcome([], error)
