"""What a connection waits for, in a loop."""

from __future__ import annotations

import select
from collections.abc import Mapping

from muster.engines.loop import Participant


class Waits:
    """The descriptors of a connection that a participant watches."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self._watched: set[int] = set()

    def set(self, interest: Mapping[int, int]) -> None:
        """Watch these, and no others. interest: see `Connection.interest`."""
        for descriptor in self._watched - interest.keys():
            self._participant.unwatch(descriptor)
        for descriptor, events in interest.items():
            read, write = bool(events & select.POLLIN), bool(events & select.POLLOUT)
            self._participant.watch(descriptor, read=read, write=write)
        self._watched = set(interest)

    def clear(self) -> None:
        """Watch none: before the connection is closed."""
        self.set({})
