"""Drives one run: hears events, decides, records, and only then acts."""

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
from muster.lifecycle.events import CancelRequested, Event, Request, RunBegan, Tick
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus

#: Seconds after which what could not be recorded is decided and recorded anew.
_RETRY = 1.0


class Controller:
    """One life of driving one run. Another one may follow it at any point: what it has recorded
    and not done is done again, what it has done and not recorded is heard of again.

    attention: a descriptor that is readable when somebody wants something. requests: takes what
    is wanted, besides what the ledger knows.
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
        """Drive the run until nothing of it is left and its outcome, or its suspension, is
        recorded."""
        for effect in outstanding.effects(self._policy, self._status):
            self._act(effect)
        # what happened while nobody drove the run comes before what is overdue since
        heard = self._session.events(0.0, self._attention)
        self._take([RunBegan(), *heard, *self._asked()])
        while not self._at_rest():
            events: list[Event] = [*self._session.events(self._patience(), self._attention)]
            self._take([*events, *self._asked(), Tick()])
        return self._status

    def _at_rest(self) -> bool:
        if self._status.state is RunState.SUSPENDED:
            # whoever wanted it canceled while that was recorded relies on us to hear of it
            return not any(isinstance(asked, CancelRequested) for asked in self._ledger.requests())
        return self._status.state.terminal

    def _asked(self) -> list[Request]:
        # the bell first: what is asked from here on rings it again
        return [*self._requests(), *self._ledger.requests()]

    def _patience(self) -> float | None:
        wake = wake_at(self._status)
        wait = None if wake is None else max(0.0, wake - self._clock.now())
        if not self._unrecorded:
            return wait
        return _RETRY if wait is None else min(wait, _RETRY)

    def _take(self, events: Sequence[Event]) -> None:
        now = self._clock.now()
        self._unrecorded += events
        decision = decide(self._policy, self._status, self._unrecorded, now)
        after = decision.status
        if after.state.at_rest:
            self._session.close()  # "ended" is recorded only when it is so
        if decision.entries or after is not self._status:
            try:
                self._ledger.record(self._status, after, decision.entries, now)
            except StoreBusy:
                return  # nothing has happened yet: it is decided again, with what comes meanwhile
        self._unrecorded = []
        self._status = after
        for effect in decision.effects:
            self._act(effect)

    def _act(self, effect: Effect) -> None:
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
