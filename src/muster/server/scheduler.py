"""Starts the runs of schedules at their times, and after events.

Each server looks for what is due and what has happened, and one of them decides what is done
(`Schedules.decide`, `Schedules.decide_event`); see `server.firings` for what follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from muster.errors import NotFound, StoreError
from muster.identity import new_id
from muster.lifecycle.schedule import Action, due, happens
from muster.lifecycle.trigger import Event, matches
from muster.notify.retries import Answer, next_attempt
from muster.server.firings import OUTCOMES, Firings, entry_of_firing
from muster.server.oci.schedule_runs import ScheduleRuns
from muster.server.periodic_threads import PeriodicThread
from muster.store.outbox_records import ListenerKind
from muster.store.records import CorruptRecord
from muster.store.schedule_records import FiringRecord, Outcome, ScheduleRecord

if TYPE_CHECKING:
    from muster.server.state import ServerState
    from muster.store.outbox_records import OutboxEntry, Pending
    from muster.store.protocols.schedules import Schedules

#: Seconds between looks: another server may have recorded a schedule that is due soon.
_INTERVAL = 1.0
#: Seconds after which a server carries out what another one has decided.
_TAKEN_OVER_AFTER = 5.0
#: The most events that are handled in one look.
_MOST_EVENTS = 100
#: What is done about a schedule; None: nothing.
Decide = Callable[[ScheduleRecord], FiringRecord | None]


def _decided(firing: FiringRecord, _: ScheduleRecord) -> FiringRecord:
    return firing


def _nothing() -> None:
    """For schedules that nothing refers to any more."""


class Scheduler:
    """A thread that starts the runs of schedules."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._firings = Firings(state)
        self._oci = ScheduleRuns(state)
        self._rng = Random()
        given = ("scheduler", self._round, state.log, "runs of schedules cannot be started")
        self._thread = PeriodicThread(*given, pause=_INTERVAL)

    def start(self) -> None:
        """Begin; the first look is at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present look."""
        self._thread.stop()

    def _round(self) -> float:
        self.look()
        next_at = self._schedules.next_at()
        return _INTERVAL if next_at is None else min(_INTERVAL, max(0.0, next_at - time.time()))

    @property
    def _schedules(self) -> Schedules:
        return self._state.backend.store.schedules

    def look(self) -> None:
        """Do what is due. What cannot be read of one kind holds up no other. Raises HomeGone."""
        self._state.check_home()
        for act in (self._take_over, self._act_on_times, self._act_on_events, self._act_for_oci):
            self._isolated(act)

    def _take_over(self) -> None:
        for firing in self._schedules.unsettled(time.time() - _TAKEN_OVER_AFTER):
            self._isolated(partial(self._act, firing.schedule_id, partial(_decided, firing)))

    def _act_on_times(self) -> None:
        for schedule in self._schedules.due(time.time()):
            self._isolated(partial(self._act, schedule.id, self._decide))

    def _act_on_events(self) -> None:
        store = self._state.backend.store
        outbox, now = store.outbox, store.leases.now()
        for pending in outbox.pending(ListenerKind.TRIGGER, limit=_MOST_EVENTS, now=now):
            self._isolated(partial(self._handle, pending))

    def _act_for_oci(self) -> None:
        for record in self._oci.active():
            self._isolated(partial(self._oci.act, record))

    def _isolated(self, act: Callable[[], None]) -> None:
        """Act, so that an error stops nothing else."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  it is tried again in the next look
            self._thread.report(error)

    def _act(
        self, schedule_id: str, decide: Decide, if_deleted: Callable[[], None] = _nothing
    ) -> None:
        """Act on one schedule. decide: what is done, None for nothing."""
        try:
            schedule = self._schedules.get(schedule_id)
            firing = decide(schedule)
            if firing is not None:
                self._firings.carry_out(schedule, firing)
        except NotFound:
            if_deleted()

    def _handle(self, pending: Pending) -> None:
        """Act on an event. If that fails, it is tried again later and later, and in the end given
        up: it must not keep those that have happened since from being handled."""
        decide = partial(self._decide_event, entry=pending.entry)
        forget = partial(self._schedules.pass_over, pending.listener, pending.entry.seq)
        try:
            self._act(pending.listener, decide, forget)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, CorruptRecord):
                raise  # it is not about this event
            self._postpone(pending, error)
            raise

    def _postpone(self, pending: Pending, error: Exception) -> None:
        store, attempts = self._state.backend.store, pending.attempts + 1
        now, why = store.leases.now(), str(error) or type(error).__name__
        first_at = pending.first_at or now
        until = next_attempt(Answer(False, why), attempts, first_at, now, self._rng)
        if not store.outbox.postpone(pending, why, now, until) or until is not None:
            return
        entry = pending.entry
        why = f"given up after {attempts} attempts: {why}"
        subject = str(entry.data.get("name", entry.subject))
        event = Event(entry.id, entry.type, subject)
        at = round(time.time(), 6)
        firing = FiringRecord(pending.listener, at, Outcome.REFUSED, at, why, event=event)
        self._schedules.note(firing)
        text = f"event {entry.id} ({entry.type}) starts no run: {why}"
        self._state.log.write("warning", text, schedule=pending.listener)

    def _decide(self, schedule: ScheduleRecord) -> FiringRecord | None:
        """What is to be done now, if that was not decided before. Raises StoreError."""
        now, running = time.time(), self._schedules.running(schedule.id)
        found = due(schedule.timing, schedule.next_at, now, running)
        if found is None:
            return None
        starts = found.action == Action.START
        firing = FiringRecord(
            schedule_id=schedule.id,
            time=found.time,
            outcome=OUTCOMES[found.action],
            decided_at=now,
            why=found.why,
            passed=found.passed,
            run_id=new_id() if starts else None,
        )
        entries = () if starts else (entry_of_firing(schedule, firing),)
        return firing if self._schedules.decide(schedule, found.next_at, firing, *entries) else None

    def _decide_event(self, schedule: ScheduleRecord, entry: OutboxEntry) -> FiringRecord | None:
        """What is to be done about an event, if that was not decided before. Raises StoreError."""
        wanted = matches(schedule.trigger, entry.type, entry.data)
        if schedule.paused or not wanted or not happens(schedule.timing, entry.time):
            self._schedules.pass_over(schedule.id, entry.seq)
            return None
        subject = str(entry.data.get("name", entry.subject))
        event = Event(entry.id, entry.type, subject, entry.data)
        return self._firings.decide_event(schedule, event, entry.time, entry.seq)
