"""Drives runs in one process: one thread, one loop, any number of runs.

For each run that something has happened to: decide a step, record it, then carry out its effects.
"""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from muster.control.clock import Clock
from muster.control.controller import Controller, Record, Step
from muster.control.ledger import Ledger
from muster.engines.base import DetachedSession, Report, Session
from muster.engines.loop import EventLoop, RunLoop
from muster.errors import EngineError, StoreBusy
from muster.lifecycle.effects import (
    CloseSession,
    Effect,
    KillNodes,
    LeaveSession,
    ReleaseNodes,
    SignalNodes,
    StartNodes,
    StopNodes,
)
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    EngineEvent,
    Event,
    HandOverRequested,
    NodeEnded,
    Request,
    SessionClosed,
    Tick,
)
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import RunStatus
from muster.secrets import without_known
from muster.store.records import LeaseLost

#: Seconds until a step that could not be recorded is decided and recorded again.
_RETRY = 1.0


#: Opens the session of a run. See `Engine.open`.
OpenSession = Callable[[RunLoop, Report], Session]


#: Records steps of several runs, all or none. Raises StoreBusy, and what `Ledger.record` raises.
#: The ledgers are of the kind that the runs were added with.
RecordTogether = Callable[[Sequence[tuple[Any, Record]]], None]


def no_requests() -> Sequence[Request | HandOverRequested]:
    """For runs whose requests are all in their ledger."""
    return ()


class RunParts(Struct, frozen=True):
    """What a driver needs to drive a run."""

    policy: Policy
    ledger: Ledger
    clock: Clock
    open: OpenSession
    #: Returns requests that are not in the ledger; again until they have taken effect. If it
    #: raises StoreBusy, it is called again later; if it raises anything else, the run is broken.
    requests: Callable[[], Sequence[Request | HandOverRequested]] = no_requests
    #: Whether nodes outlive the session (`Capabilities.detached`), which is a `DetachedSession`.
    detached: bool = False
    #: The run's secrets, which are hidden in the messages that are recorded (`secret_lines`).
    secrets: Sequence[str] = ()


#: Errors that a supervisor on another host would not have, or a later one.
_SHORTAGES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)


class Outcome(Struct, frozen=True):
    """How driving a run ended."""

    #: As last recorded. At rest unless the run is handed over, or there is an error.
    status: RunStatus
    #: Whether another process is to drive the run on.
    handed_over: bool = False
    #: Why the run could not be driven to its end; its session is closed nevertheless.
    error: Exception | None = None
    #: Whether the session has left its nodes to another process. That drives the run on, also if
    #: there was an error meanwhile.
    left: bool = False


class DrivenRun:
    """A run that a driver drives."""

    def __init__(self, driver: Driver, parts: RunParts, loop: EventLoop) -> None:
        self._driver = driver
        self._parts = parts
        self.ledger = parts.ledger
        self._clock = parts.clock
        self._loop = RunLoop(loop, self._fail)
        self._timer = self._loop.add(lambda _: driver.schedule(self))
        self._inbox: list[EngineEvent] = []
        self._begun = False
        self._closing = False  # whether the session was requested to close, or to leave
        self._left = False  # whether it was requested to leave its nodes
        self._closed = False  # whether it has reported that
        self._error: Exception | None = None
        #: None while the run is driven.
        self.outcome: Outcome | None = None
        try:
            status = self.ledger.load()
            self._controller = Controller(parts.policy, status, detached=parts.detached)
            self._session = parts.open(self._loop, self._report)
        except BaseException:
            self._loop.close()
            raise
        driver.schedule(self)

    def wake(self) -> None:
        """Look for requests. To be called when there may be new ones, or when another process has
        notified this one."""
        if self.outcome is None and not self._closing:
            with self._failures():
                self._session.notified()
        self._driver.schedule(self)

    def decide(self) -> Step | None:
        """Decide the next step; None if there is none. For the driver, which has to call `finish`
        with the step."""
        with self._failures():
            return self._decide()
        return None

    def finish(self, step: Step, *, recorded: bool) -> None:
        """Record a step, unless that was done, and carry out what follows. For the driver."""
        with self._failures():
            self._finish(step, recorded=recorded)

    def postpone(self) -> None:
        """The store is busy: nothing was done of a step. It is decided again, with later events."""
        self._set_timer(retry=True)

    def abandon(self) -> None:
        """Close the session, or leave it if its nodes are detached, without waiting for that, and
        drive the run no more: its process is about to end."""
        if self._parts.detached:
            self._leave()
            return
        self._closing = True
        try:
            self._session.close()
        finally:
            self._session.finish_logs()

    def _report(self, events: Sequence[EngineEvent]) -> None:
        self._inbox += map(self._without_secrets, events) if self._parts.secrets else events
        self._driver.schedule(self)

    def _without_secrets(self, event: EngineEvent) -> EngineEvent:
        if not isinstance(event, NodeEnded):
            return event
        # it may be made of a program's last lines
        message = without_known(event.message, self._parts.secrets)
        return event if message == event.message else replace(event, message=message)

    def _pending(self) -> list[Request | HandOverRequested]:
        # in this order: a later notification calls `wake` again
        return [*self._parts.requests(), *self.ledger.requests()]

    # --- steps

    def _decide(self) -> Step | None:
        try:
            requests = self._pending() if self._error is None else []
        except StoreBusy:
            self.postpone()
            return None
        begins, self._begun = not self._begun, True
        if begins:
            for effect in self._controller.outstanding():
                self._carry_out(effect)
        events, self._inbox = self._inbox, []
        self._closed = self._closed or any(isinstance(event, SessionClosed) for event in events)
        if self._error is not None:
            if self._closed:
                self._end()
            return None
        if self._closed and not self._closing:
            raise EngineError("the engine has closed the session of a run in progress")
        # what happened without a controller is applied before deadlines are checked
        given: list[Event] = (
            [ControllerStarted(attaches=self._parts.detached), *events, *requests]
            if begins
            else [*events, *requests, Tick()]
        )
        return self._controller.step(given, self._clock.now())

    def _finish(self, step: Step, *, recorded: bool) -> None:
        done = self._carry_out_step(step, recorded=recorded)
        if done and (late := self._late_requests()):
            step = self._controller.step(late, self._clock.now())
            done = self._carry_out_step(step, recorded=False)
        if not done or not self._controller.finished:
            self._set_timer(retry=not done)
        elif self._closed:
            self._end()
        else:
            self._carry_out(CloseSession())

    def _carry_out_step(self, step: Step, *, recorded: bool) -> bool:
        """Returns False if the store is busy: nothing was done then."""
        record = step.record
        if record is not None:
            try:
                if not recorded:
                    self.ledger.record(record)
            except StoreBusy:
                return False
            self._controller.recorded(record)
        for effect in step.effects:
            self._carry_out(effect)
        return True

    def _late_requests(self) -> list[Request]:
        """The pending requests, if the run is suspended and a cancel was requested meanwhile: this
        process applies that, or, if the store is busy, the next command. Others wait until the run
        is resumed."""
        if self._controller.status.state is not RunState.SUSPENDED:
            return []
        try:
            pending = self.ledger.requests()
        except StoreBusy:
            return []
        return pending if any(isinstance(one, CancelRequested) for one in pending) else []

    def _set_timer(self, *, retry: bool) -> None:
        wake = self._controller.wake_at()
        left = math.inf if wake is None else max(0.0, wake - self._clock.now())
        if retry:
            left = min(left, _RETRY)
        self._timer.wake_at(None if left == math.inf else self._loop.now() + left)

    def _carry_out(self, effect: Effect | CloseSession | LeaveSession) -> None:
        match effect:
            case StartNodes(attempt, nodes):
                self._session.start(attempt, nodes)
            case SignalNodes(nodes, number):
                self._session.signal(nodes, number)
            case StopNodes(nodes):
                self._session.stop(nodes)
            case KillNodes(nodes):
                self._session.kill(nodes)
            case ReleaseNodes(nodes):
                self._session.release(nodes)
            case CloseSession():
                self._closing = True
                self._session.close()
            case LeaveSession():
                self._leave()

    def _leave(self) -> None:
        self._closing = self._left = True
        cast(DetachedSession, self._session).leave()

    # --- the end

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """An error of this run does not affect others."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """The run cannot be driven: close its session, and give up when that has closed. Detached
        nodes are left alone if another process drives the run now, or can when there is room."""
        if self._error is not None and self._error is not error:
            self._error.add_note(f"and then: {error!r}")
            self._end()  # even closing fails
            return
        self._error = error
        if not self._closed:
            self._closing = True
            with self._failures():
                status = self._controller.status
                if self._left or (self._parts.detached and leaves_nodes(error, status)):
                    self._leave()
                else:
                    self._session.close()
        self._driver.schedule(self)

    def _end(self) -> None:
        error, handed_over = self._error, self._controller.handed_over
        try:
            if not (handed_over or self._left):
                self._session.finish_logs()
        except Exception as failed:  # noqa: BLE001  as above
            error = error or failed
        self._loop.close()
        self.outcome = Outcome(self._controller.status, handed_over, error, self._left)
        self._driver.remove(self)


def leaves_nodes(error: Exception, status: RunStatus) -> bool:
    """Whether an error says nothing against nodes that are elsewhere: another process drives the
    run, or this host lacks something for now, such as room on its disk; or, if programs run there,
    a file here cannot be read or written."""
    if isinstance(error, OSError):
        run = (NodeState.RUNNING, NodeState.READY)
        return error.errno in _SHORTAGES or any(node.state in run for node in status.nodes)
    return isinstance(error, LeaseLost)


class Driver:
    """Drives runs until each is at rest or handed over. An error of one does not affect others.

    together: records steps of several runs in one transaction, all or none; None: each has its own.
    """

    def __init__(self, loop: EventLoop, together: RecordTogether | None = None) -> None:
        self._loop = loop
        self._together = together
        self._participant = loop.add(self._advance, first=True)
        self._due: dict[DrivenRun, None] = {}  # in order
        #: The runs that are driven.
        self.runs: set[DrivenRun] = set()

    def add(self, parts: RunParts) -> DrivenRun:
        """Drive another run. Raises what opening its session and reading its record raise."""
        run = DrivenRun(self, parts, self._loop)
        self.runs.add(run)
        return run

    def drive(self) -> None:
        """Drive until no run is left. If the loop raises, every session is closed first."""
        try:
            while self.runs:
                self._loop.run_once()
        except BaseException as error:
            for run in self.runs:
                try:
                    run.abandon()
                except Exception as failed:  # noqa: BLE001  the others are closed, too
                    error.add_note(f"and then: {failed!r}")
            raise

    def schedule(self, run: DrivenRun) -> None:
        """Decide a step of a run in the next round of the loop."""
        self._due[run] = None
        self._participant.notify()

    def remove(self, run: DrivenRun) -> None:
        """A run is driven no more."""
        self.runs.discard(run)

    def _advance(self, _ready: Mapping[int, int]) -> None:
        due, self._due = self._due, {}
        driven = [run for run in due if run in self.runs]
        steps = [(run, step) for run in driven if (step := run.decide()) is not None]
        records = [(run.ledger, step.record) for run, step in steps if step.record is not None]
        recorded = False
        if self._together is not None and len(records) > 1:
            try:
                self._together(records)
                recorded = True
            except StoreBusy:
                for run, step in steps:
                    if step.record is not None:
                        run.postpone()
                steps = [(run, step) for run, step in steps if step.record is None]
            except Exception:  # noqa: BLE001  of one run, which meets it again on its own
                recorded = False
        for run, step in steps:
            run.finish(step, recorded=recorded)
