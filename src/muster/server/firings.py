"""Carries out what was decided at a time of a schedule, or about an event: starts the run.

The decision has the id of the run, so that whoever carries it out again, after a server was killed,
finds the run if it was started already. Nobody can guess the id before, and take it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.caller import EVERYTHING, NOTHING, Caller
from muster.describe.schedules import event_text
from muster.describe.times import time_text
from muster.errors import EngineError, Forbidden, MusterError, NotFound, StoreError
from muster.identity import new_id
from muster.lifecycle.schedule import Action, Missed, Overlap, on_event
from muster.permissions import Permission
from muster.service.audit import Origin, entry_of
from muster.service.readable import why_no_output
from muster.service.schedules import creator_of, start_request
from muster.storage import request_keys
from muster.store.schedule_records import FiringRecord, Outcome, ScheduleRecord

if TYPE_CHECKING:
    from muster.lifecycle.trigger import Event
    from muster.server.state import ServerState
    from muster.service.event_inputs import Inputs
    from muster.store.account_records import AuditEntry
    from muster.store.protocols.schedules import Schedules

OUTCOMES = {
    Action.START: Outcome.STARTING,
    Action.SKIP: Outcome.SKIPPED,
    Action.MISS: Outcome.MISSED,
}


class Firings:
    """See the module. Threads may share it."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    @property
    def _schedules(self) -> Schedules:
        return self._state.backend.store.schedules

    def decide_event(
        self, schedule: ScheduleRecord, event: Event, at: float, seq: int | None = None
    ) -> FiringRecord | None:
        """Decide what is done about an event that starts a run. at: when it has happened. seq: see
        `Schedules.decide_event`. None if that was decided already, or the schedule has changed
        since it was read. Raises StoreError."""
        running = self._schedules.running(schedule.id)
        action, why = on_event(schedule.timing, at, time.time(), running)
        firing = FiringRecord(
            schedule_id=schedule.id,
            time=at,
            outcome=OUTCOMES[action],
            decided_at=round(time.time(), 6),
            why=why,
            run_id=new_id() if action == Action.START else None,
            event=event,
        )
        entries = () if firing.run_id else (entry_of_firing(schedule, firing),)
        decided = self._schedules.decide_event(schedule, firing, *entries, seq=seq)
        return firing if decided else None

    def carry_out(self, schedule: ScheduleRecord, firing: FiringRecord) -> Outcome:
        """Start the run, or note why there is none. Returns what has become of it. Raises
        StoreError."""
        if firing.run_id is None:
            self._count(schedule, firing)
            return firing.outcome
        outcome, why = Outcome.STARTED, ""
        if not self._exists(firing.run_id):
            outcome, why = self._start(schedule, firing, firing.run_id)
        settled = replace(firing, outcome=outcome, why=why)
        if self._schedules.settle(settled):
            self._count(schedule, settled)
        return outcome

    def _start(
        self, schedule: ScheduleRecord, firing: FiringRecord, run_id: str
    ) -> tuple[Outcome, str]:
        """What has become of the run, and why it was not started."""
        state, timing = self._state, schedule.timing
        if (passed := self._passed(schedule, firing)) is not None:
            self._append(entry_of_firing(schedule, replace(firing, why=passed[1])))
            return passed
        try:
            caller = creator_of(state.backend.store.accounts, state.backend.policies, schedule)
            caller.require(Permission.JOB_RUN_CREATE, "start runs")
            request = start_request(state.backend.home, schedule, firing.time, firing.event)
            inputs = self._inputs(schedule, caller, firing.event)
            run = replace(request.run, notes=(*request.run.notes, *inputs.notes))
            request = replace(request, run=run)
        except MusterError as error:
            if isinstance(error, StoreError):
                raise
            noted = replace(firing, why=str(error))
            self._append(entry_of_firing(schedule, noted, forbidden=isinstance(error, Forbidden)))
            return Outcome.REFUSED, str(error)
        try:
            # excludes servers that carry this out at the same time
            with request_keys.held(state.backend.home, run_id, schedule.id):
                if timing.overlap == Overlap.REPLACE:
                    self._cancel_others(schedule, caller, run_id)
                api = state.api(
                    *(caller, _origin(schedule, firing.event), request.run.environ, run_id),
                    may_start=True,
                    local=schedule.local,
                    inputs=inputs.mounts,
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

    def _inputs(self, schedule: ScheduleRecord, caller: Caller, event: Event | None) -> Inputs:
        """What the run finds of an event. Raises InvalidInput if there can be no Unix account."""
        from muster.service.event_inputs import Inputs, inputs_of_event

        if event is None:
            return Inputs()
        account = self._state.account_of_runs(caller.user, local=schedule.local)
        refused = ""
        if event.type.startswith("run."):
            with suppress(NotFound):  # deleted
                run = self._state.backend.store.runs.summary(str(event.data["id"]))
                refused = why_no_output(caller, self._state.backend.store, run)
        return inputs_of_event(self._state.backend.home, event, account, refused)

    def _cancel_others(self, schedule: ScheduleRecord, caller: Caller, run_id: str) -> None:
        """Cancel the runs that the new one replaces, also those that others have triggered."""
        caller = replace(caller, authority=EVERYTHING)
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
            event=None if firing.event is None else firing.event.id,
            outcome=firing.outcome,
            run=firing.run_id,
            why=firing.why,
        )


def entry_of_firing(
    schedule: ScheduleRecord, firing: FiringRecord, *, forbidden: bool = False
) -> AuditEntry:
    """Why no run is started. forbidden: because the creator may not."""
    caller = Caller(schedule.created_by, schedule.project, NOTHING)
    given = (caller, _origin(schedule, firing.event), time.time(), "schedules.start", schedule.name)
    entry = entry_of(*given, project=schedule.project)
    return replace(entry, why=firing.why, allowed=not forbidden)


def _origin(schedule: ScheduleRecord, event: Event | None = None) -> Origin:
    """What has started a run, or would have, for the audit log."""
    if event is None:
        return Origin(f"schedule {schedule.name}")
    return Origin(f"schedule {schedule.name}: {event_text(event)}", event.id)
