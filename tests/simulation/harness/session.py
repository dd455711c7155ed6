"""A session with simulated nodes, and the clock of its controller, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from muster.forecast.event_queue import EventQueue
from muster.lifecycle.events import NodeEvent
from muster.lifecycle.status import NodeRef
from simulation.harness.world import World

#: Seconds by which a wait takes longer, as in reality: afterwards the deadline has passed even if
#: floats are rounded.
_LATENCY = 0.001


class Deadlock(Exception):  # noqa: N818
    """The controller waits without a timeout, and no event is left."""


class VirtualClock:
    """See `control.clock.Clock`.

    ahead: seconds that the wall clock is ahead of virtual time. no_earlier: a time that an earlier
    controller has seen; as in `control.clock.SteadyClock`.
    """

    def __init__(self, queue: EventQueue, ahead: float = 0.0, no_earlier: float = 0.0) -> None:
        self._queue = queue
        self._ahead = max(ahead, no_earlier - queue.now)

    def now(self) -> float:
        return round(self._queue.now + self._ahead, 6)


class SimulatedSession:
    """See `engines.base.Session`. `wake` replaces the file descriptors.

    A new session first receives the present state of the nodes.
    """

    def __init__(self, queue: EventQueue, world: World) -> None:
        self._queue = queue
        self._world = world
        self._received: list[NodeEvent] = world.current_events()
        self._woken = False
        world.deliver = self.receive

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

    def receive(self, events: Sequence[NodeEvent]) -> None:
        """Receive events of nodes."""
        self._received += events

    def wake(self) -> None:
        """End a wait early: there is a request."""
        self._woken = True

    def events(self, timeout: float | None, wake: int) -> list[NodeEvent]:
        """See `Session.events`. Raises Deadlock."""
        until = math.inf if timeout is None else self._queue.now + (timeout and timeout + _LATENCY)
        while not self._received and not self._woken and self._queue.now < until:
            if until == math.inf and self._queue.next() is None:
                raise Deadlock
            self._queue.advance(until)
        received, self._received, self._woken = self._received, [], False
        return received

    def close(self) -> None:
        """See `Session.close`."""
        self._world.lose_all()

    def finish_logs(self) -> None:
        """See `Session.finish_logs`. There are no logs."""
