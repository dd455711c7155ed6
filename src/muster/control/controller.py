"""Drives one run: collect events, decide, record the step, then carry out its effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.control.clock import Clock
from muster.control.ledger import Ledger
from muster.engines.base import Session
from muster.errors import StoreBusy
from muster.lifecycle import outstanding
from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.effects import (
    Effect,
    KillNodes,
    ReleaseNodes,
    SignalNodes,
    StartNodes,
    StopNodes,
)
from muster.lifecycle.events import CancelRequested, ControllerStarted, Event, Request, Tick
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus

#: Seconds until a step that could not be recorded is decided and recorded again.
_RETRY = 1.0


class Controller:
    """Drives one run until it ends or is suspended.

    It may be killed at any point. Its successor repeats effects that were recorded and not carried
    out; the engine reports again what happened and was not recorded.

    attention: a descriptor that is readable when there are requests. requests: returns requests
    that are not in the ledger.
    """

    def __init__(
        self,
        policy: Policy,
        ledger: Ledger,
        session: Session,
        clock: Clock,
        attention: int,
        requests: Callable[[], Sequence[Request]],
    ) -> None:
        self._policy = policy
        self._ledger = ledger
        self._session = session
        self._clock = clock
        self._attention = attention
        self._requests = requests
        self._status = ledger.load()
        self._unrecorded: list[Event] = []

    def run(self) -> RunStatus:
        """Drive the run until its outcome or suspension is recorded. Returns its last status."""
        for effect in outstanding.effects(self._policy, self._status):
            self._carry_out(effect)
        # what happened without a controller is applied before deadlines are checked
        reported = self._session.events(0.0, self._attention)
        self._step([ControllerStarted(), *reported, *self._pending()])
        while not self._at_rest():
            events: list[Event] = [*self._session.events(self._timeout(), self._attention)]
            self._step([*events, *self._pending(), Tick()])
        return self._status

    def _at_rest(self) -> bool:
        if self._status.state is RunState.SUSPENDED:
            # this process applies a cancel that was requested while the suspension was recorded
            pending = self._ledger.requests()
            return not any(isinstance(request, CancelRequested) for request in pending)
        return self._status.state.terminal

    def _pending(self) -> list[Request]:
        # drain the wakeup FIFO first: later requests make it readable again
        return [*self._requests(), *self._ledger.requests()]

    def _timeout(self) -> float | None:
        wake = wake_at(self._status)
        wait = None if wake is None else max(0.0, wake - self._clock.now())
        if not self._unrecorded:
            return wait
        return _RETRY if wait is None else min(wait, _RETRY)

    def _step(self, events: Sequence[Event]) -> None:
        now = self._clock.now()
        self._unrecorded += events
        decision = decide(self._policy, self._status, self._unrecorded, now)
        after = decision.status
        if after.state.at_rest:
            self._session.close()  # the end is recorded after every process has ended
        if decision.entries or after is not self._status:
            try:
                self._ledger.record(self._status, after, decision.entries, now)
            except StoreBusy:
                return  # nothing was done yet: the step is decided again, with later events
        self._unrecorded = []
        self._status = after
        for effect in decision.effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
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
