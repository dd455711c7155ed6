"""Drives one run: hears events, decides, records, and only then acts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from muster.control import bell
from muster.control.narrate import narrate
from muster.control.persist import changed_nodes, run_changes
from muster.engines.base import Session
from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.effects import Effect, KillNodes, StartNodes, StopNodes
from muster.lifecycle.events import CancelRequested, Event, RunBegan, Tick
from muster.lifecycle.model import RunStatus
from muster.plan.model import RunPlan
from muster.store import runs
from muster.store.database import Database


class Controller:
    """One attempt at driving one run to its end.

    session: the engine's. attention: a descriptor of the run's bell. told: says why the
    supervisor itself was asked to end, or "".
    """

    def __init__(
        self,
        db: Database,
        plan: RunPlan,
        session: Session,
        status: RunStatus,
        attention: int,
        told: Callable[[], str],
    ) -> None:
        self._db = db
        self._plan = plan
        self._policy = plan.policy
        self._session = session
        self._status = status
        self._attention = attention
        self._told = told

    def run(self) -> RunStatus:
        """Drive the run until nothing of it is left and its outcome is recorded."""
        self._take([RunBegan(), *self._requests()])
        while not self._status.state.terminal:
            wake = wake_at(self._policy, self._status)
            timeout = None if wake is None else max(0.0, wake - time.time())
            events: list[Event] = [*self._session.events(timeout, self._attention)]
            self._take([*events, *self._requests(), Tick()])
        return self._status

    def _requests(self) -> list[Event]:
        """What people asked for since we last looked."""
        bell.silence(self._attention)
        why = self._told() or runs.cancel_reason(self._db, self._plan.run_id)
        return [CancelRequested(why)] if why else []

    def _take(self, events: Sequence[Event]) -> None:
        now = time.time()
        before = self._status
        after, effects = decide(self._policy, before, events, now)
        if after.state.terminal:
            self._session.close()  # "ended" is recorded only when it is so
        if after is not before:
            self._record(before, after, now)
        self._status = after
        for effect in effects:
            self._act(effect)

    def _record(self, before: RunStatus, after: RunStatus, now: float) -> None:
        entries = narrate(before, after)
        nodes = changed_nodes(self._plan, before, after)
        if entries or nodes:
            runs.save(self._db, self._plan.run_id, run_changes(after), nodes, entries, now)

    def _act(self, effect: Effect) -> None:
        match effect:
            case StartNodes(_, ranks):
                self._session.start(ranks)
            case StopNodes(ranks):
                self._session.stop(ranks)
            case KillNodes(ranks):
                self._session.kill(ranks)
