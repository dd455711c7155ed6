"""The ledger and the session that a simulated controller uses: they inject the planned faults and
record the trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from muster.control.controller import Record
from muster.engines.base import DetachedSession, Report, Session
from muster.errors import StoreBusy
from muster.lifecycle.effects import (
    Effect,
    KillNodes,
    ReleaseNodes,
    SignalNodes,
    StartNodes,
    StopNodes,
)
from muster.lifecycle.events import EngineEvent, NodeEvent, Request, RunRestarted
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef, RunStatus
from simulation.harness.faults import (
    ControllerDies,
    Moment,
    StoreIsBusy,
    UserRequestsDuringStep,
    UserScales,
)
from simulation.harness.session import VirtualClock
from simulation.harness.trace import Command, Loaded, Received, Restarted, Step

if TYPE_CHECKING:
    from simulation.harness.simulator import Simulation


class ControllerCrash(BaseException):
    """A controller dies. A BaseException, so that the controller does not catch it."""

    def __init__(self, fault: ControllerDies) -> None:
        super().__init__(str(fault))
        self.fault = fault


class FaultyLedger:
    """See `control.ledger.Ledger`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._ledger = simulation.ledger
        plan = simulation.case.plan
        self._crashes = [f for f in plan if isinstance(f, ControllerDies)]
        self._busy = [[f.step, f.times] for f in plan if isinstance(f, StoreIsBusy)]
        self._requests = [f for f in plan if isinstance(f, UserRequestsDuringStep)]
        self._scale_requests = [f for f in plan if isinstance(f, UserScales) and f.step is not None]
        #: Whether the present controller has recorded a step.
        self.fresh = False
        #: The effects that it has carried out since.
        self.commands = 0
        #: Called before a recorded step is added to the trace.
        self.before_step: Callable[[], None] = lambda: None

    def of(self, clock: VirtualClock, by: str) -> FaultyLedger:
        """Hand the ledger to another controller."""
        self._clock, self._by = clock, by
        self.fresh, self.commands = False, 0
        return self

    def crash_at(self, moment: Moment) -> None:
        """Raises ControllerCrash if a fault is planned for this moment."""
        for fault in self._crashes:
            if fault.moment is moment and self._simulation.steps >= fault.step:
                self._crashes.remove(fault)
                raise ControllerCrash(fault)

    def load(self) -> RunStatus:
        """See `Ledger.load`."""
        status = self._ledger.load()
        at = self._simulation.queue.now
        self._simulation.trace.lines.append(Loaded(at, self._by, status))
        return status

    def record(self, record: Record) -> None:
        """See `Ledger.record`."""
        simulation = self._simulation
        self.crash_at(Moment.BEFORE_RECORD)
        suspending = record.after.state is RunState.SUSPENDED
        due = [f for f in self._requests if simulation.steps >= f.step]
        requests = [request for request in due if suspending or not request.suspending]
        seen = self._ledger.state()
        self._request_scaling(late=False)
        for request in requests:
            self._requests.remove(request)
            if not request.late:
                simulation.note("request during a step")
                simulation.request(request.what)
        for busy in self._busy:
            if simulation.steps >= busy[0] and busy[1]:
                busy[1] -= 1
                simulation.note("store busy")
                self._requests += [request for request in requests if request.late]
                raise StoreBusy("simulated")
        self._ledger.record(record)
        self.before_step()
        self.fresh, self.commands = True, 0
        at = simulation.queue.now
        before, after, entries = record.before, record.after, record.entries
        simulation.recorded(Step(at, record.now, 0, self._by, before, after, entries))
        for request in requests:
            if request.late:
                simulation.note("request after a step")
                simulation.request(request.what, seen)
        self._request_scaling(late=True)

    def _request_scaling(self, *, late: bool) -> None:
        """Scale requests that arrive just before or after this step."""
        for request in [f for f in self._scale_requests if f.late is late]:
            if self._simulation.steps >= (request.step or 0):
                self._scale_requests.remove(request)
                self._simulation.note("scaled during a step")
                self._simulation.request_scale(request)

    def requests(self) -> list[Request]:
        """See `Ledger.requests`."""
        return self._ledger.requests()

    def record_command(self, effect: Effect) -> None:
        """Record that the controller carries out an effect. Raises ControllerCrash."""
        self.crash_at(Moment.BETWEEN_EFFECTS if self.commands else Moment.AFTER_RECORD)
        if isinstance(effect, SignalNodes):
            self.crash_at(Moment.SAVING)
        self.commands += 1
        simulation, at = self._simulation, self._simulation.queue.now
        again, leaving = not self.fresh, simulation.leaving
        command = Command(at, self._clock.now(), simulation.steps, effect, again, leaving)
        simulation.trace.lines.append(command)


class FaultySession:
    """See `engines.base.Session`. open_session: opens the session that it stands for."""

    def __init__(
        self,
        simulation: Simulation,
        ledger: FaultyLedger,
        report: Report,
        open_session: Callable[[Report], Session],
    ) -> None:
        self._simulation = simulation
        self._ledger = ledger
        self._report = report
        self._received: list[EngineEvent] = []
        self._closes = False
        ledger.before_step = self._trace_received
        self._session = open_session(self._receive)

    def _receive(self, events: Sequence[EngineEvent]) -> None:
        self._received += events
        if events:
            self._report(events)

    def before_wait(self) -> None:
        """The driver has done everything. Raises ControllerCrash, NeverEnds."""
        if self._ledger.commands:
            self._ledger.crash_at(Moment.AFTER_EFFECTS)
        if self._closes:
            self._ledger.crash_at(Moment.CLOSING)
        self._simulation.check_bounds()

    def after_wait(self) -> None:
        """The driver is about to handle what it has received. Raises ControllerCrash."""
        self._ledger.crash_at(Moment.WAITING)
        self._trace_received()

    def _trace_received(self) -> None:
        at = self._simulation.queue.now
        received, self._received = self._received, []
        for event in received:
            if isinstance(event, NodeEvent):
                self._simulation.trace.lines.append(Received(at, event))
            elif isinstance(event, RunRestarted):
                self._simulation.trace.lines.append(Restarted(at, event))

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._ledger.record_command(StartNodes(attempt, tuple(nodes)))
        self._simulation.rules.start(nodes)
        self._session.start(attempt, nodes)

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`."""
        self._ledger.record_command(SignalNodes(tuple(nodes), number))
        self._session.signal(nodes, number)

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`."""
        self._ledger.record_command(StopNodes(tuple(nodes)))
        self._session.stop(nodes)

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`."""
        self._ledger.record_command(KillNodes(tuple(nodes)))
        self._session.kill(nodes)

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`."""
        self._ledger.record_command(ReleaseNodes(tuple(nodes)))
        self._session.release(nodes)

    def notified(self) -> None:
        """See `Session.notified`."""
        self._session.notified()

    def close(self) -> None:
        """See `Session.close`."""
        self._closes = True
        self._session.close()

    def leave(self) -> None:
        """See `DetachedSession.leave`."""
        cast(DetachedSession, self._session).leave()

    def finish_logs(self) -> None:
        """See `Session.finish_logs`."""
        self._session.finish_logs()
