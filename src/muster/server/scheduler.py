"""Starts the runs of schedules at their times.

Each server looks for what is due, and one of them decides what is done (`Schedules.decide`). The
decision has the id of the run, so that whoever carries it out again, after a server was killed,
finds the run if it was started already. Nobody can guess the id before, and take it.
"""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.caller import Caller, Right
from muster.describe.times import time_text
from muster.errors import EngineError, Forbidden, MusterError, NotFound, StoreError
from muster.identity import new_id
from muster.lifecycle.schedule import Action, Missed, Overlap, due
from muster.service.audit import Origin, entry_of
from muster.service.schedules import creator_of, start_request
from muster.storage import request_keys
from muster.store.schedule_records import FiringRecord, Outcome, ScheduleRecord

if TYPE_CHECKING:
    from muster.server.state import ServerState
    from muster.store.account_records import AuditEntry
    from muster.store.base import Schedules

#: Seconds between looks: another server may have recorded a schedule that is due soon.
_INTERVAL = 1.0
#: Seconds after which a server carries out what another one has decided.
_TAKEN_OVER_AFTER = 5.0
_OUTCOMES = {Action.START: Outcome.STARTING, Action.SKIP: Outcome.SKIPPED}


class Scheduler:
    """A thread that starts the runs of schedules."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="scheduler", daemon=True)
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
            worked &= self._attempt(firing.schedule_id, firing)
        for schedule in self._schedules.due(time.time()):
            worked &= self._attempt(schedule.id)
        if worked:
            self._failed = ""

    def _attempt(self, schedule_id: str, firing: FiringRecord | None = None) -> bool:
        """Act on one schedule, so that an error stops no others. firing: what was decided already.
        Whether it worked."""
        try:
            schedule = self._schedules.get(schedule_id)
            firing = firing or self._decide(schedule)
            if firing is not None:
                self._carry_out(schedule, firing)
        except NotFound:  # it was deleted
            pass
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
            outcome=_OUTCOMES.get(found.action, Outcome.MISSED),
            decided_at=now,
            why=found.why,
            passed=found.passed,
            run_id=new_id() if starts else None,
        )
        entries = () if starts else (_entry(schedule, firing),)
        return firing if self._schedules.decide(schedule, found.next_at, firing, *entries) else None

    def _carry_out(self, schedule: ScheduleRecord, firing: FiringRecord) -> None:
        """Start the run, or note why there is none. Raises StoreError."""
        if firing.run_id is None:
            self._count(schedule, firing)
            return
        outcome, why = Outcome.STARTED, ""
        if not self._exists(firing.run_id):
            outcome, why = self._start(schedule, firing, firing.run_id)
        settled = replace(firing, outcome=outcome, why=why)
        if self._schedules.settle(settled):
            self._count(schedule, settled)

    def _start(
        self, schedule: ScheduleRecord, firing: FiringRecord, run_id: str
    ) -> tuple[Outcome, str]:
        """What has become of the run, and why it was not started."""
        state, timing = self._state, schedule.timing
        if (passed := self._passed(schedule, firing)) is not None:
            self._append(_entry(schedule, replace(firing, why=passed[1])))
            return passed
        try:
            caller = creator_of(state.backend.store.accounts, schedule)
            caller.require(Right.SUBMIT, "start runs")
            request = start_request(state.backend.home, schedule, firing.time)
        except MusterError as error:
            if isinstance(error, StoreError):
                raise
            noted = replace(firing, why=str(error))
            self._append(_entry(schedule, noted, forbidden=isinstance(error, Forbidden)))
            return Outcome.REFUSED, str(error)
        try:
            # excludes servers that carry this out at the same time
            with request_keys.held(state.backend.home, run_id, schedule.id):
                if timing.overlap == Overlap.REPLACE:
                    self._cancel_others(schedule, caller, run_id)
                api = state.api(
                    *(caller, _origin(schedule), request.run.environ, run_id),
                    may_start=True,
                    local=schedule.local,
                )
                api.submit(request)
        except StoreError:
            raise
        except MusterError as error:
            if isinstance(error, EngineError) and self._exists(run_id):
                return Outcome.STARTED, ""  # it has failed at once
            return Outcome.REFUSED, str(error)
        return Outcome.STARTED, ""

    def _passed(self, schedule: ScheduleRecord, firing: FiringRecord) -> tuple[Outcome, str] | None:
        """Why it is too late for a run that a server, which was killed, has not started; None if it
        is not."""
        timing = schedule.timing
        late = time.time() - max(firing.time, firing.decided_at)
        if late > timing.start_within and timing.missed == Missed.SKIP:
            return Outcome.MISSED, "the server was ended meanwhile"
        if timing.overlap == Overlap.REPLACE:
            last = next(iter(self._schedules.firings(schedule.id, limit=1)), firing)
            if last.run_id is not None and last.time > firing.time:
                return Outcome.SKIPPED, "a later run has replaced it"
        return None

    def _cancel_others(self, schedule: ScheduleRecord, caller: Caller, run_id: str) -> None:
        """Cancel the runs that the new one replaces, also those that others have triggered."""
        caller = replace(caller, rights=caller.rights | {Right.OPERATE})
        api = self._state.api(caller, _origin(schedule), {}, may_start=False)
        for run in self._schedules.running(schedule.id):
            if run.id != run_id and run.name:
                api.cancel(run.id, f"replaced by the next run of schedule {schedule.name}")

    def _exists(self, run_id: str) -> bool:
        try:
            self._state.backend.store.runs.summary(run_id)
        except NotFound:
            return False
        return True

    def _append(self, entry: AuditEntry) -> None:
        self._state.backend.store.audit.append(entry)

    def _count(self, schedule: ScheduleRecord, firing: FiringRecord) -> None:
        """Count and log what was done."""
        self._state.metrics.firing(firing.outcome)
        self._state.log.info(
            "schedule",
            schedule=schedule.name,
            project=schedule.project,
            scheduled=time_text(firing.time),
            outcome=firing.outcome,
            run=firing.run_id,
            why=firing.why,
        )


def _entry(
    schedule: ScheduleRecord, firing: FiringRecord, *, forbidden: bool = False
) -> AuditEntry:
    """Why no run is started. forbidden: because the creator may not."""
    caller = Caller(schedule.created_by, schedule.project, frozenset())
    given = (caller, _origin(schedule), time.time(), "schedules.start", schedule.name)
    entry = entry_of(*given, project=schedule.project)
    return replace(entry, why=firing.why, allowed=not forbidden)


def _origin(schedule: ScheduleRecord) -> Origin:
    return Origin(f"schedule {schedule.name}")
