"""Runs that wait until other runs have succeeded (`RunPlan.after`).

The supervisor of such a run is there from the start, and reserves nothing. It sleeps until the
supervisor of a run before it ends, as the kernel tells by the liveness pipe. A run without one,
which is suspended or driven on another host, is looked at from time to time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from muster.engines.base import Report, RunContext, Session
from muster.engines.deferred import DeferredSession
from muster.engines.loop import RunLoop
from muster.errors import NotFound, StoreBusy
from muster.lifecycle.events import RunAdmitted, RunQueued
from muster.lifecycle.states import RunState
from muster.plan.model import RunBefore, RunPlan
from muster.storage.liveness import watch_liveness

if TYPE_CHECKING:
    from muster.store.base import Store

#: Seconds between looks at a run that has no supervisor here.
_INTERVAL = 5.0


def waits_for(store: Store, plan: RunPlan) -> str:
    """What a run waits for, as a phrase for `details`; "" if for nothing. A run that cannot succeed
    any more counts, too. Raises StoreError."""
    names = [one.name for one in plan.after if _state(store, one) is not RunState.SUCCEEDED]
    return f"waits until {' and '.join(names)} {_have(names)} succeeded" if names else ""


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def why_never(store: Store, plan: RunPlan) -> str:
    """Why a run will never start; "" if it may. Raises StoreError."""
    for one in plan.after:
        state = _state(store, one)
        if state is None:
            return f"{one.name} was deleted before it had succeeded"
        if state.terminal and state is not RunState.SUCCEEDED:
            return f"{one.name}, which it waited for, is {state}"
    return ""


def _state(store: Store, run: RunBefore) -> RunState | None:
    try:
        return RunState(store.runs.summary(run.id).state)
    except NotFound:
        return None


class AwaitingSession(DeferredSession):
    """The session of a run that waits for others. See `DetachedSession`, too: of nodes that were
    not started, nothing is left."""

    def __init__(
        self,
        store: Store,
        context: RunContext,
        loop: RunLoop,
        report: Report,
        open_session: Callable[[RunLoop, Report], Session],
    ) -> None:
        super().__init__(report)
        self._store, self._context, self._loop = store, context, loop
        self._open = open_session
        self._participant = loop.add(lambda _: self.notified())
        #: Descriptors that hang up when the supervisor of a run before it ends.
        self._watched: list[int] = []
        self.look()

    def look(self) -> None:
        """See `DeferredSession.look`."""
        self._stop_watching()
        plan = self._context.plan
        self._watch(plan.after)  # before the states are read: none that follows is missed
        try:
            waits, never = waits_for(self._store, plan), why_never(self._store, plan)
            if never:
                self._store.runs.request(plan.run_id, "cancel", never, time.time())
        except StoreBusy:
            self._participant.wake_at(self._loop.now() + _INTERVAL)
            return
        if waits:
            self._report([RunQueued(waits)])
            return
        self._stop_watching()
        self._report([RunAdmitted()])
        self._session = self._open(self._loop, self._report)

    def close(self) -> None:
        """See `Session.close`."""
        self._stop_watching()
        super().close()

    def leave(self) -> None:
        """See `DetachedSession.leave`."""
        if self._session is None:
            self.close()
        else:
            self._session.leave()  # type: ignore[attr-defined]  # that of a detached engine

    def _watch(self, runs: Sequence[RunBefore]) -> None:
        found = [watch_liveness(self._context.home, one.id) for one in runs]
        self._watched = [descriptor for descriptor in found if descriptor is not None]
        for descriptor in self._watched:
            self._participant.watch(descriptor)
        if None in found:
            self._participant.wake_at(self._loop.now() + _INTERVAL)

    def _stop_watching(self) -> None:
        self._participant.wake_at(None)
        for descriptor in self._watched:
            self._participant.unwatch(descriptor)
            os.close(descriptor)
        self._watched = []
