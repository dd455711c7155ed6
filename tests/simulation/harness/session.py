"""A session with simulated nodes, and the loop and the clock of its driver, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from muster.engines.base import Report
from muster.engines.loop import EventLoop
from muster.forecast.event_queue import EventQueue
from muster.lifecycle.events import SessionClosed
from muster.lifecycle.status import NodeRef
from simulation.harness.world import World

#: Seconds by which a wait takes longer, as in reality: afterwards the deadline has passed even if
#: floats are rounded.
_LATENCY = 0.001


class Deadlock(Exception):  # noqa: N818
    """The driver waits without a timeout, and no event is left."""


class VirtualLoop(EventLoop):
    """A loop in virtual time. A wait ends when a participant is notified."""

    def __init__(self, queue: EventQueue) -> None:
        super().__init__()
        self._queue = queue
        #: Called before and after each wait.
        self.before_wait: Callable[[], None] = lambda: None
        self.after_wait: Callable[[], None] = lambda: None

    def now(self) -> float:
        """See `EventLoop.now`."""
        return self._queue.now

    def run_once(self) -> None:
        """See `EventLoop.run_once`. Raises Deadlock."""
        if not self.notified:
            self.before_wait()
            self._wait(self.timeout())
            self.after_wait()
        super().run_once()  # does not wait: somebody was notified, or a deadline has passed

    def _wait(self, timeout: float | None) -> None:
        until = math.inf if timeout is None else self._queue.now + (timeout and timeout + _LATENCY)
        while not self.notified and self._queue.now < until:
            if until == math.inf and self._queue.next() is None:
                raise Deadlock
            self._queue.advance(until)


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
    """See `engines.base.Session`. It first reports the present state of the nodes.

    closing: seconds that it takes to close.
    """

    def __init__(
        self, queue: EventQueue, world: World, report: Report, closing: float = 0.0
    ) -> None:
        self._queue = queue
        self._world = world
        self._report = report
        self._closing = closing
        self._closed = False
        world.deliver = report
        report(world.report_all())

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

    def notified(self) -> None:
        """See `Session.notified`."""

    def close(self) -> None:
        """See `Session.close`."""
        if not self._closed:
            self._closed = True
            self._world.lose_all()
            self._queue.after(self._closing, self._report, [SessionClosed()])

    def finish_logs(self) -> None:
        """See `Session.finish_logs`. There are no logs."""
