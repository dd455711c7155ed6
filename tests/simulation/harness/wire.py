"""The connection between controller and nodes: events and commands are delayed or repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from muster.engines.base import Report
from muster.forecast.event_queue import EventQueue
from muster.lifecycle.events import NodeEvent
from muster.lifecycle.status import NodeRef
from simulation.harness.faults import (
    FaultPlan,
    LateCommand,
    LateEvent,
    RepeatedCommand,
    RepeatedEvent,
)
from simulation.harness.session import SimulatedSession
from simulation.harness.world import World

#: (rank, number of the event or command of that rank) -> seconds
_Table = dict[tuple[int, int], float]
_Command = Callable[[Sequence[NodeRef]], None]


class Wire:
    """Connects the nodes with one session after another. note: records faults that take effect.
    ordered: the events of each node keep their order, also those that are late or repeated."""

    def __init__(
        self,
        queue: EventQueue,
        plan: FaultPlan,
        note: Callable[[str, str], None],
        *,
        ordered: bool = False,
    ) -> None:
        self.queue = queue
        self._ordered = ordered
        self._note = note
        self._late_events = _table(plan, LateEvent)
        self._repeated_events = _table(plan, RepeatedEvent)
        self._late_commands = _table(plan, LateCommand)
        self._repeated_commands = _table(plan, RepeatedCommand)
        self._events_sent: defaultdict[int, int] = defaultdict(int)
        self._commands_sent: defaultdict[int, int] = defaultdict(int)
        self._held: defaultdict[int, float] = defaultdict(float)
        self._events_held: defaultdict[int, float] = defaultdict(float)
        self._generation = 0
        self._event_generation = 0
        self._receiver: Callable[[Sequence[NodeEvent]], None] | None = None
        #: Called with the events that are sent to a receiver, as they are sent.
        self.check: Callable[[Sequence[NodeEvent]], None] = lambda events: None

    def connect(self, receiver: Callable[[Sequence[NodeEvent]], None] | None) -> None:
        """Deliver events to this receiver; None = to none."""
        self._receiver = receiver

    def cut(self) -> None:
        """Drop everything that is on its way."""
        self._generation += 1
        self.drop_events()

    def drop_events(self) -> None:
        """Drop the events that are on their way."""
        self._event_generation += 1
        self._events_held.clear()

    def send_events(self, events: Sequence[NodeEvent]) -> None:
        """Deliver events of nodes."""
        if self._receiver is not None:
            self.check(events)
        now: list[NodeEvent] = []
        for event in events:
            self._events_sent[event.rank] += 1
            key = (event.rank, self._events_sent[event.rank])
            late = self._late_events.get(key)
            again = self._repeated_events.get(key)
            if late is not None:
                self._note("late event", f"{late:g} s: {event}")
            if again is not None:
                self._note("repeated event", f"in {again:g} s: {event}")
            if self._ordered:
                now += self._in_order(event, late, again)
                continue
            if late is None:
                now.append(event)
            else:
                self.queue.after(late, self._deliver, self._event_generation, [event])
            if again is not None:
                self.queue.after(again, self._deliver, self._event_generation, [event])
        if now:
            self._deliver(self._event_generation, now)

    def _in_order(
        self, event: NodeEvent, late: float | None, again: float | None
    ) -> Sequence[NodeEvent]:
        """What to deliver now. The rest follows after earlier events of the node."""
        events = [event] if again is None else [event, event]
        held, now = self._events_held[event.rank], self.queue.now
        if late is not None:
            held = self._events_held[event.rank] = max(held, now + late)
        if held < now or not held:  # else an earlier one may be delivered at this very moment
            return events
        self.queue.at(held, self._deliver, self._event_generation, events)
        return ()

    def send_command(self, command: _Command, refs: Sequence[NodeRef]) -> None:
        """Deliver a command to nodes."""
        now: list[NodeRef] = []
        for ref in refs:
            self._commands_sent[ref.rank] += 1
            key = (ref.rank, self._commands_sent[ref.rank])
            if key in self._late_commands:
                self._note("late command", f"{self._late_commands[key]:g} s, to {_named(ref)}")
                held = self.queue.now + self._late_commands[key]
                self._held[ref.rank] = max(self._held[ref.rank], held)
            if self._held[ref.rank] > self.queue.now:
                self.queue.at(self._held[ref.rank], self._execute, self._generation, command, [ref])
            else:
                now.append(ref)
            if key in self._repeated_commands:
                again = self._repeated_commands[key]
                self._note("repeated command", f"in {again:g} s, to {_named(ref)}")
                self.queue.after(again, self._execute, self._generation, command, [ref])
        if now:
            command(now)

    def _deliver(self, generation: int, events: Sequence[NodeEvent]) -> None:
        if generation == self._event_generation and self._receiver is not None:
            self._receiver(events)

    def _execute(self, generation: int, command: _Command, refs: Sequence[NodeRef]) -> None:
        if generation == self._generation:
            command(refs)


class WiredSession(SimulatedSession):
    """A `SimulatedSession` behind a wire."""

    def __init__(self, world: World, wire: Wire, report: Report, closing: float) -> None:
        super().__init__(wire.queue, world, report, closing)
        self._wire = wire
        world.deliver = wire.send_events
        wire.connect(report)

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._wire.send_command(lambda refs: self._world.start(attempt, refs), nodes)

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`."""
        self._wire.send_command(self._world.signal, nodes)

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        self._wire.send_command(self._world.stop, nodes)

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        self._wire.send_command(self._world.kill, nodes)

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        self._wire.send_command(self._world.release, nodes)


_Nth = LateEvent | RepeatedEvent | LateCommand | RepeatedCommand


def _table(plan: FaultPlan, kind: type[_Nth]) -> _Table:
    return {(f.rank, f.nth): f.seconds for f in plan if isinstance(f, kind)}


def _named(ref: NodeRef) -> str:
    return f"node-{ref.rank}/{ref.incarnation}"
