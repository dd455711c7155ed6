"""What a controller on stage has in hand: a ledger and a session that fail it when the plan says
so, and note what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.engines.simulated.clock import VirtualClock
from muster.engines.simulated.session import SimulatedSession
from muster.errors import StoreBusy
from muster.lifecycle.effects import (
    Effect,
    Entry,
    KillNodes,
    ReleaseNodes,
    SignalNodes,
    StartNodes,
    StopNodes,
)
from muster.lifecycle.events import NodeEvent, Request
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef, RunStatus
from muster.simulation.faults import AskedMeanwhile, ControllerDies, Moment, Scaled, StoreIsBusy
from muster.simulation.story import Act, Loaded, Step, Told

if TYPE_CHECKING:
    from muster.simulation.harness import Simulation


class Crash(BaseException):
    """A controller dies. Nothing it could catch."""

    def __init__(self, fault: ControllerDies) -> None:
        super().__init__(str(fault))
        self.fault = fault


class StagedLedger:
    """See `control.ledger.Ledger`. Also counts what the present controller has done since."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._book = simulation.book
        plan = simulation.case.plan
        self._deaths = [f for f in plan if isinstance(f, ControllerDies)]
        self._busy = [[f.step, f.times] for f in plan if isinstance(f, StoreIsBusy)]
        self._asked = [f for f in plan if isinstance(f, AskedMeanwhile)]
        self._scaled = [f for f in plan if isinstance(f, Scaled) and f.step is not None]
        self.fresh = False
        self.acts = 0

    def of(self, clock: VirtualClock, by: str) -> StagedLedger:
        """Put into the hands of another controller."""
        self._clock, self._by = clock, by
        self.fresh, self.acts = False, 0
        return self

    def die(self, moment: Moment) -> None:
        """Raises Crash if now is the time for it."""
        for fault in self._deaths:
            if fault.moment is moment and self._simulation.steps >= fault.step:
                self._deaths.remove(fault)
                raise Crash(fault)

    def load(self) -> RunStatus:
        """See `Ledger.load`."""
        status = self._book.load()
        at = self._simulation.agenda.now
        self._simulation.story.lines.append(Loaded(at, self._by, status))
        return status

    def record(
        self, before: RunStatus, after: RunStatus, entries: Sequence[Entry], now: float
    ) -> None:
        """See `Ledger.record`."""
        simulation = self._simulation
        self.die(Moment.BEFORE_RECORD)
        pausing = after.state is RunState.SUSPENDED
        due = [f for f in self._asked if simulation.steps >= f.step]
        wishes = [wish for wish in due if pausing or not wish.pausing]
        looked = self._book.state()
        self._scale(late=False)
        for wish in wishes:
            self._asked.remove(wish)
            if not wish.late:
                simulation.note("asked meanwhile")
                simulation.ask(wish.what)
        for busy in self._busy:
            if simulation.steps >= busy[0] and busy[1]:
                busy[1] -= 1
                simulation.note("store busy")
                self._asked += [wish for wish in wishes if wish.late]
                raise StoreBusy("simulated")
        self._book.record(before, after, entries, now)
        self.fresh, self.acts = True, 0
        at = simulation.agenda.now
        simulation.recorded(Step(at, now, 0, self._by, before, after, entries))
        for wish in wishes:
            if wish.late:
                simulation.note("asked meanwhile, late")
                simulation.ask(wish.what, looked)
        self._scale(late=True)

    def _scale(self, *, late: bool) -> None:
        """People who want another number of replicas in this very moment."""
        for wish in [f for f in self._scaled if f.late is late]:
            if self._simulation.steps >= (wish.step or 0):
                self._scaled.remove(wish)
                self._simulation.note("scaled meanwhile")
                self._simulation.scale(wish)

    def requests(self) -> list[Request]:
        """See `Ledger.requests`."""
        return self._book.requests()

    def note(self, effect: Effect) -> None:
        """The controller is about to do something. Raises Crash."""
        self.die(Moment.BETWEEN_EFFECTS if self.acts else Moment.AFTER_RECORD)
        if isinstance(effect, SignalNodes):
            self.die(Moment.SAVING)
        self.acts += 1
        simulation, at = self._simulation, self._simulation.agenda.now
        act = Act(at, self._clock.now(), simulation.steps, effect, not self.fresh)
        simulation.story.lines.append(act)


class StagedSession:
    """See `engines.base.Session`."""

    def __init__(
        self, simulation: Simulation, session: SimulatedSession, ledger: StagedLedger
    ) -> None:
        self._simulation = simulation
        self._session = session
        self._ledger = ledger

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._ledger.note(StartNodes(attempt, tuple(nodes)))
        self._session.start(attempt, nodes)

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`."""
        self._ledger.note(SignalNodes(tuple(nodes), number))
        self._session.signal(nodes, number)

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        self._ledger.note(StopNodes(tuple(nodes)))
        self._session.stop(nodes)

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        self._ledger.note(KillNodes(tuple(nodes)))
        self._session.kill(nodes)

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        self._ledger.note(ReleaseNodes(tuple(nodes)))
        self._session.release(nodes)

    def events(self, timeout: float | None, wake: int) -> list[NodeEvent]:
        """See `Session.events`. Raises Crash, Standstill, Endless."""
        if self._ledger.acts:
            self._ledger.die(Moment.AFTER_EFFECTS)
        self._simulation.bounded()
        events = self._session.events(timeout, wake)
        self._ledger.die(Moment.WAITING)
        at = self._simulation.agenda.now
        self._simulation.story.lines += [Told(at, event) for event in events]
        return events

    def close(self) -> None:
        """See `Session.close`."""
        self._session.close()

    def seal(self) -> None:
        """See `Session.seal`."""
        self._session.seal()
