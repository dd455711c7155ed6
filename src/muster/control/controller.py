"""Decides the steps of one run: what to record of it, and what to do once that is recorded."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.lifecycle import outstanding
from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.effects import CloseSession, Effect, Entry
from muster.lifecycle.events import Event, SessionClosed
from muster.lifecycle.policy import Policy
from muster.lifecycle.status import RunStatus


class Record(Struct, frozen=True):
    """What to record of a step; see `Ledger.record`."""

    before: RunStatus
    after: RunStatus
    entries: tuple[Entry, ...]
    now: float


class Step(Struct, frozen=True):
    """One step of a run."""

    #: None if there is nothing to record.
    record: Record | None = None
    #: Carried out in order, once the record is made.
    effects: tuple[Effect | CloseSession, ...] = ()


class Controller:
    """Decides the steps of one run until it has ended or is suspended. It waits for nothing, and
    neither reads nor writes anything: `control.drive` does.

    It may be killed at any point. Its successor repeats effects that were recorded and not carried
    out; the engine reports again what happened and was not recorded.

    status: as recorded.
    """

    def __init__(self, policy: Policy, status: RunStatus) -> None:
        self._policy = policy
        self._status = status
        self._unrecorded: list[Event] = []
        #: The step that puts the run at rest. It is recorded when the session has closed.
        self._last: Step | None = None
        self._closed = False

    @property
    def status(self) -> RunStatus:
        """The status as last recorded."""
        return self._status

    def outstanding(self) -> tuple[Effect, ...]:
        """The effects that an earlier controller may not have carried out. They come first."""
        return outstanding.effects(self._policy, self._status)

    def wake_at(self) -> float | None:
        """When to decide the next step even if nothing happens (epoch seconds); None = never."""
        return wake_at(self._status) if self._last is None else None

    def step(self, events: Sequence[Event], now: float) -> Step:
        """The next step, after these events. now: epoch seconds.

        If it has a record, `recorded` has to follow. Otherwise the recording has failed, and the
        next call decides again, with these events and its own.

        The end of a run, or its suspension, is recorded after every process has ended. Such a step
        first closes the session; the record follows with the event SessionClosed. That step stays
        as it was decided: nothing that happens meanwhile can start nodes of a session that closes.
        A request is still in the ledger then, for whoever continues a suspended run.
        """
        if self._last is None:
            return self._decide(events, now)
        if any(isinstance(event, SessionClosed) for event in events):
            self._closed = True
        return self._last if self._closed else Step()

    def _decide(self, events: Sequence[Event], now: float) -> Step:
        self._unrecorded += events
        decision = decide(self._policy, self._status, self._unrecorded, now)
        after = decision.status
        if not decision.entries and after is self._status:
            self._unrecorded = []
            return Step(effects=decision.effects)
        record = Record(self._status, after, decision.entries, now)
        step = Step(record, decision.effects)
        if not after.state.at_rest or self._closed:
            return step
        self._last = step
        return Step(effects=(CloseSession(),))

    def recorded(self, step: Step) -> None:
        """The record of the step was made."""
        if step.record is not None:
            self._status = step.record.after
        self._unrecorded = []
        self._last = None
