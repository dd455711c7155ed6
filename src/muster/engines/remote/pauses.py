"""What is called after a pause, such as another attempt at what has failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.engines.loop import Participant, RunLoop


class Pauses:
    """The pauses of one owner, who closes them. Not thread-safe."""

    def __init__(self, loop: RunLoop) -> None:
        self._loop = loop
        self._waiting: list[Participant] = []

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call something after a pause, unless this is closed by then."""

        def due(_ready: Mapping[int, int]) -> None:
            participant.close()
            call()

        participant = self._loop.add(due)
        participant.wake_at(self._loop.now() + seconds)
        self._waiting = [one for one in self._waiting if not one.closed]
        self._waiting.append(participant)

    def close(self) -> None:
        """Call nothing any more."""
        for participant in self._waiting:
            participant.close()
