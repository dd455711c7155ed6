"""Starts the runs of schedules at their times, and after events.

Each server looks for what is due and what has happened, and one of them decides what is done
(`Schedules.decide`, `Schedules.decide_event`); see `server.firings` for what follows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from muster.errors import MusterError, NotFound
from muster.identity import new_id
from muster.lifecycle.schedule import Action, due, happens
from muster.lifecycle.trigger import Event, matches
from muster.server.firings import OUTCOMES, Firings, entry_of_firing
from muster.server.oci.schedule_runs import ScheduleRuns
from muster.store.outbox_records import ListenerKind
from muster.store.schedule_records import FiringRecord, ScheduleRecord

if TYPE_CHECKING:
    from muster.server.state import ServerState
    from muster.store.base import Schedules
    from muster.store.outbox_records import OutboxEntry

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
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        #: The last error that was logged.
        self._failed = ""

    def start(self) -> None:
        """Begin; the first look is at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present look."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait = 0.0
        while not self._stopped.wait(wait):
            wait = _INTERVAL
            try:
                self.look()
                if (next_at := self._schedules.next_at()) is not None:
                    wait = min(_INTERVAL, max(0.0, next_at - time.time()))
            except Exception as error:  # noqa: BLE001  the next look may work
                self._report(error)

    @property
    def _schedules(self) -> Schedules:
        return self._state.backend.store.schedules

    def look(self) -> None:
        """Do what is due. Raises StoreError, HomeGone."""
        self._state.check_home()
        worked = True
        for firing in self._schedules.unsettled(time.time() - _TAKEN_OVER_AFTER):
            worked &= self._attempt(firing.schedule_id, partial(_decided, firing))
        for schedule in self._schedules.due(time.time()):
            worked &= self._attempt(schedule.id, self._decide)
        outbox = self._state.backend.store.outbox
        for pending in outbox.pending(ListenerKind.TRIGGER, limit=_MOST_EVENTS):
            decide = partial(self._decide_event, entry=pending.entry)
            forget = partial(self._schedules.pass_over, pending.listener, pending.entry.seq)
            worked &= self._attempt(pending.listener, decide, forget)
        for record in self._oci.active():
            worked &= self._isolated(partial(self._oci.act, record))
        if worked:
            self._failed = ""

    def _attempt(
        self, schedule_id: str, decide: Decide, if_deleted: Callable[[], None] = _nothing
    ) -> bool:
        """Act on one schedule. decide: what is done, None for nothing. Whether it worked."""

        def act() -> None:
            try:
                schedule = self._schedules.get(schedule_id)
                firing = decide(schedule)
                if firing is not None:
                    self._firings.carry_out(schedule, firing)
            except NotFound:
                if_deleted()

        return self._isolated(act)

    def _isolated(self, act: Callable[[], None]) -> bool:
        """Act on one schedule, so that an error stops no others. Whether it worked."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  it is tried again in the next look
            self._report(error)
            return False
        return True

    def _report(self, error: Exception) -> None:
        if not isinstance(error, MusterError):
            self._state.log.defect("runs of schedules cannot be started", error)
        elif str(error) != self._failed:  # once for each reason
            self._failed = str(error)
            self._state.log.write("warning", f"runs of schedules cannot be started: {error}")

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
