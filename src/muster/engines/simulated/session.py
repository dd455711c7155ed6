"""A session with simulated nodes: waiting for them is going on in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from muster.engines.simulated.agenda import Agenda
from muster.engines.simulated.world import World
from muster.lifecycle.events import NodeEvent
from muster.lifecycle.status import NodeRef

_LATE = 0.001  # seconds


class Standstill(Exception):  # noqa: N818
    """Somebody waits, for ever, for what will never happen."""


class SimulatedSession:
    """See `engines.base.Session`. There are no descriptors here: `ring` is what wakes.

    Whoever opens one is told what there is already.
    """

    def __init__(self, agenda: Agenda, world: World) -> None:
        self._agenda = agenda
        self._world = world
        self._heard: list[NodeEvent] = world.present()
        self._rung = False
        world.tell = self.hear

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._world.start(attempt, nodes)

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`."""
        self._world.signal(nodes)

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        self._world.stop(nodes)

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        self._world.kill(nodes)

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        self._world.release(nodes)

    def hear(self, events: Sequence[NodeEvent]) -> None:
        """Nodes have something to tell."""
        self._heard += events

    def ring(self) -> None:
        """Somebody wants something."""
        self._rung = True

    def events(self, timeout: float | None, wake: int) -> list[NodeEvent]:
        """See `Session.events`. Raises Standstill."""
        # a little more, so that a deadline has passed when we wake, whatever floats make of it
        until = math.inf if timeout is None else self._agenda.now + (timeout and timeout + _LATE)
        while not self._heard and not self._rung and self._agenda.now < until:
            if until == math.inf and self._agenda.next() is None:
                raise Standstill
            self._agenda.advance(until)
        heard, self._heard, self._rung = self._heard, [], False
        return heard

    def close(self) -> None:
        """See `Session.close`."""
        self._world.perish()

    def seal(self) -> None:
        """See `Session.seal`. There are no logs."""
