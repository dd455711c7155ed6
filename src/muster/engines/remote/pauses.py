"""Pauses before other attempts at what has failed, and what is called after one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.engines.loop import Participant, RunLoop


class Backoff:
    """The pauses between attempts, in seconds: each is the double of the one before, up to the
    longest. Not thread-safe."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def next(self) -> float:
        """The pause before the next attempt."""
        pause = self._next
        self._next = min(2 * pause, self._longest)
        return pause

    def reset(self) -> None:
        """An attempt has succeeded: begin with the first pause again."""
        self._next = self._first


class Pauses:
    """The pauses of one owner, who closes them. Not thread-safe."""

    def __init__(self, loop: RunLoop) -> None:
        self._loop = loop
        self._waiting: list[Participant] = []
        self._closed = False

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call something after a pause, unless this is closed by then."""

        def due(_ready: Mapping[int, int]) -> None:
            participant.close()
            call()

        if self._closed:
            return
        participant = self._loop.add(due)
        participant.wake_at(self._loop.now() + seconds)
        self._waiting = [one for one in self._waiting if not one.closed]
        self._waiting.append(participant)

    def close(self) -> None:
        """Call nothing any more."""
        self._closed = True
        for participant in self._waiting:
            participant.close()
