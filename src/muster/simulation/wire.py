"""What lies between controller and nodes: news and orders come late, twice, or both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from muster.engines.simulated.agenda import Agenda
from muster.engines.simulated.session import SimulatedSession
from muster.engines.simulated.world import World
from muster.lifecycle.events import NodeEvent
from muster.lifecycle.status import NodeRef
from muster.simulation.faults import (
    LateCommand,
    LateEvent,
    Plan,
    RepeatedCommand,
    RepeatedEvent,
)

#: (rank, how many it was) -> seconds
_Table = dict[tuple[int, int], float]
_Order = Callable[[Sequence[NodeRef]], None]


class Wire:
    """Outlives sessions. note: told of each fault that takes effect."""

    def __init__(self, agenda: Agenda, plan: Plan, note: Callable[[str, str], None]) -> None:
        self.agenda = agenda
        self._note = note
        self._late_events = _table(plan, LateEvent)
        self._repeated_events = _table(plan, RepeatedEvent)
        self._late_commands = _table(plan, LateCommand)
        self._repeated_commands = _table(plan, RepeatedCommand)
        self._told: defaultdict[int, int] = defaultdict(int)
        self._asked: defaultdict[int, int] = defaultdict(int)
        self._held: defaultdict[int, float] = defaultdict(float)
        self._epoch = 0
        self._hear: Callable[[Sequence[NodeEvent]], None] | None = None

    def connect(self, hear: Callable[[Sequence[NodeEvent]], None] | None) -> None:
        """From here on, this is who hears; None = nobody."""
        self._hear = hear

    def cut(self) -> None:
        """Whatever is on its way never arrives."""
        self._epoch += 1

    def tell(self, events: Sequence[NodeEvent]) -> None:
        """News from nodes."""
        now: list[NodeEvent] = []
        for event in events:
            self._told[event.rank] += 1
            key = (event.rank, self._told[event.rank])
            late = self._late_events.get(key)
            if late is None:
                now.append(event)
            else:
                self._note("late event", f"{late:g} s: {event}")
                self.agenda.after(late, self._deliver, self._epoch, [event])
            if key in self._repeated_events:
                again = self._repeated_events[key]
                self._note("repeated event", f"in {again:g} s: {event}")
                self.agenda.after(again, self._deliver, self._epoch, [event])
        if now:
            self._deliver(self._epoch, now)

    def ask(self, order: _Order, refs: Sequence[NodeRef]) -> None:
        """An order to nodes."""
        now: list[NodeRef] = []
        for ref in refs:
            self._asked[ref.rank] += 1
            key = (ref.rank, self._asked[ref.rank])
            if key in self._late_commands:
                self._note("late command", f"{self._late_commands[key]:g} s, to {_named(ref)}")
                held = self.agenda.now + self._late_commands[key]
                self._held[ref.rank] = max(self._held[ref.rank], held)
            if self._held[ref.rank] > self.agenda.now:
                self.agenda.at(self._held[ref.rank], self._reach, self._epoch, order, [ref])
            else:
                now.append(ref)
            if key in self._repeated_commands:
                again = self._repeated_commands[key]
                self._note("repeated command", f"in {again:g} s, to {_named(ref)}")
                self.agenda.after(again, self._reach, self._epoch, order, [ref])
        if now:
            order(now)

    def _deliver(self, epoch: int, events: Sequence[NodeEvent]) -> None:
        if epoch == self._epoch and self._hear is not None:
            self._hear(events)

    def _reach(self, epoch: int, order: _Order, refs: Sequence[NodeRef]) -> None:
        if epoch == self._epoch:
            order(refs)


class WiredSession(SimulatedSession):
    """See `SimulatedSession`; by way of a wire."""

    def __init__(self, world: World, wire: Wire) -> None:
        super().__init__(wire.agenda, world)
        self._wire = wire
        world.tell = wire.tell
        wire.connect(self.hear)

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._wire.ask(lambda refs: self._world.start(attempt, refs), nodes)

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`."""
        self._wire.ask(self._world.signal, nodes)

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        self._wire.ask(self._world.stop, nodes)

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        self._wire.ask(self._world.kill, nodes)

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        self._wire.ask(self._world.release, nodes)


_Nth = LateEvent | RepeatedEvent | LateCommand | RepeatedCommand


def _table(plan: Plan, kind: type[_Nth]) -> _Table:
    return {(f.rank, f.nth): f.seconds for f in plan if isinstance(f, kind)}


def _named(ref: NodeRef) -> str:
    return f"node-{ref.rank}, life {ref.incarnation}"
