"""Create, change and trigger schedules. A server starts their runs: see `server.scheduler`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from random import random
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from muster.api.schedules import ScheduleChange
from muster.api.submissions import JobSource, RunRequest, StartRequest
from muster.caller import Caller
from muster.describe.times import moment
from muster.errors import InvalidInput, NotFound, Problem
from muster.iam.names import check_name
from muster.iam.resources import resource_of_schedule
from muster.identity import new_id
from muster.lifecycle.schedule import KINDS, Timing, problems_of, settled, times
from muster.lifecycle.trigger import AfterRun, Event, ObjectCreated, Trigger
from muster.permissions import Permission
from muster.service.context import Context
from muster.service.creators import current_caller
from muster.service.readable import readable_job, require
from muster.spec.values import SCHEDULE_TAG, SCHEDULED_TIME_TAG
from muster.spec.wording import suggestion
from muster.storage.home import Home
from muster.storage.sealing import seal, unseal
from muster.store.schedule_records import FiringRecord, Outcome, ScheduleRecord

if TYPE_CHECKING:
    from muster.api.prepared import PreparedRun
    from muster.iam.current_policies import CurrentPolicies
    from muster.service.submissions import CheckJob
    from muster.store.protocols.accounts import Accounts
    from muster.store.records import JobRecord, RunRecord

#: Variables of the nodes of each run.
NAME_VARIABLE, TIME_VARIABLE = "MUSTER_SCHEDULE", "MUSTER_SCHEDULED_TIME"
#: What of a timing changes its times.
_OF_TIMES = ("cron", "every", "ical", "time_zone", "start", "end", "jitter")


def create(
    context: Context,
    name: str,
    timing: Timing,
    prepared: PreparedRun,
    environ: Mapping[str, str],
    trigger: Trigger | None = None,
) -> ScheduleRecord:
    """Record a schedule and, if it is new, its Job. environ: what the nodes' environment starts
    from, besides the server's. Raises InvalidInput with every problem."""
    from muster.service.jobs import discard

    try:
        check_name("schedule", name)
        now = round(time.time(), 6)  # to the microsecond, as it is stored
        problems = problems_of(timing, by_events=trigger is not None)
        if not problems:
            timing = settled(timing, now, random())
            problems = _past(timing, now)
        problems += _trigger_problems(context, trigger, prepared.job.name)
        _refuse(*problems, *prepared.missing)
        given = to_builtins(prepared.overrides)
        overrides = {key: value for key, value in given.items() if value is not None}
        job = prepared.job
        if prepared.new_job:
            job = replace(job, created_by=context.caller.user)
        schedule = ScheduleRecord(
            id=context.submission.created_id or new_id(),
            name=name,
            project=context.project,
            job_id=job.id,
            job=job.handle,
            timing=timing,
            overrides=seal(context.home, overrides),
            environ=seal(context.home, dict(environ)),
            notes=seal(context.home, list(prepared.notes)),
            created_by=context.caller.user,
            created_at=now,
            updated_at=now,
            next_at=next(times(timing, now), None),
            local=context.submission.has_files,
            trigger=trigger,
        )
        made = context.store.schedules.insert(schedule, job)
    except InvalidInput:
        if prepared.new_job:
            discard(context, prepared.job)
        raise
    context.artifact_lock.release(prepared.job.id)
    return made


def _past(timing: Timing, now: float) -> list[Problem]:
    """That the end has passed, or no time is left before it."""
    if timing.end is None or (timing.end > now and _has_time(timing, now)):
        return []
    return [Problem("end", "no time is left before it", "give a later end")]


def _has_time(timing: Timing, now: float) -> bool:
    by_events = all(getattr(timing, kind) is None for kind in KINDS)
    return by_events or next(times(timing, now), None) is not None


def _trigger_problems(context: Context, trigger: Trigger | None, job: str) -> list[Problem]:
    """What is wrong with an event that is to start runs of a Job."""
    if isinstance(trigger, ObjectCreated):
        return _bucket_problems(context, trigger.bucket)
    if not isinstance(trigger, AfterRun):
        return []
    if trigger.job != job:
        try:
            found = readable_job(context, trigger.job)
        except NotFound as error:
            return [Problem("after", str(error))]
        if found.name != trigger.job:
            text = f"{trigger.job!r} is not the name of a job"
            return [Problem("after", text, f"name all versions of it: {found.name}")]
    return []


def _bucket_problems(context: Context, bucket: str) -> list[Problem]:
    """What is wrong with the bucket whose objects are to start runs: events of other projects would
    never be heard."""
    if not bucket:
        return [Problem("on_object", "has no bucket", "write BUCKET or BUCKET/PREFIX")]
    known = [one.name for one in context.store.buckets.listing(context.project)]
    if bucket in known:
        return []
    text = f"project {context.project} has no bucket {bucket!r} in the server's object storage"
    hint = suggestion(bucket, known) or f"`oci os bucket create --name {bucket}` creates it"
    return [Problem("on_object", text, hint)]


def edit(context: Context, schedule: ScheduleRecord, change: ScheduleChange) -> ScheduleRecord:
    """Change a schedule. Other times count from now. Raises InvalidInput with every problem,
    Conflict if it was changed meanwhile, Forbidden for the job of one whose runs have the rights of
    the server's own user."""
    if change.job is not None:
        check_job(context, schedule)
    given = {name: value for name, value in asdict(change).items() if value is not None}
    job = given.pop("job", None)
    if any(kind in given for kind in KINDS):
        given = {**dict.fromkeys(KINDS), **given}
    for name in ("start", "end"):
        if given.get(name) == 0:
            given[name] = None
    timing = replace(schedule.timing, **given)
    _refuse(*problems_of(timing, by_events=schedule.trigger is not None))
    now, next_at = round(time.time(), 6), schedule.next_at
    if any(getattr(timing, name) != getattr(schedule.timing, name) for name in _OF_TIMES):
        timing = settled(timing, now, random())
        _refuse(*_past(timing, now))
        next_at = None if schedule.paused else next(times(timing, now), None)
    changed = replace(schedule, timing=timing, next_at=next_at, updated_at=now)
    if job is not None:
        found = _checked_job(context, schedule, job)
        changed = replace(changed, job_id=found.id)
    return context.store.schedules.update(schedule, changed)


def check_job(context: Context, schedule: ScheduleRecord) -> None:
    """Raises Forbidden unless the caller may choose what a schedule runs: its runs act as who has
    created it, as programs do that are executed in their nodes. No role of a project gives the
    rights of the server's own user, which a local schedule's runs have."""
    if schedule.created_by != context.caller.user:
        text = f"change what schedule {schedule.name} runs"
        on = resource_of_schedule(schedule)
        require(context.caller, Permission.NODE_ENTER, text, on)
    if schedule.local and not context.submission.has_files:
        text = f"change what schedule {schedule.name} runs as the server's own user"
        context.caller.require(Permission.SERVER_MANAGE, text)


def _checked_job(context: Context, schedule: ScheduleRecord, name: str) -> JobRecord:
    """A Job, a run of which could start with the schedule's overrides. Raises InvalidInput,
    NotFound."""
    from muster.service.prepare import prepare_run
    from muster.spec.overrides import received_overrides

    job = readable_job(context, name)
    job.check_active()
    overrides = received_overrides(_unsealed(context.home, schedule, schedule.overrides))
    prepared = prepare_run(context, job, overrides, new_job=False)
    _refuse(*prepared.missing)
    return job


def _refuse(*problems: Problem) -> None:
    if problems:
        raise InvalidInput(*problems)


def pause(context: Context, schedule: ScheduleRecord) -> ScheduleRecord:
    """Start no more runs. No effect on a paused schedule. Raises Conflict."""
    if schedule.paused:
        return schedule
    return _changed(context, schedule, paused=True, next_at=None)


def resume(context: Context, schedule: ScheduleRecord) -> ScheduleRecord:
    """Start runs again, at times from now on. No effect on a schedule that is not paused. Raises
    Conflict."""
    if not schedule.paused:
        return schedule
    following = next(times(schedule.timing, time.time()), None)
    return _changed(context, schedule, paused=False, next_at=following)


def _changed(context: Context, schedule: ScheduleRecord, **fields: Any) -> ScheduleRecord:
    after = replace(schedule, updated_at=time.time(), **fields)
    return context.store.schedules.update(schedule, after)


def trigger(context: Context, schedule: ScheduleRecord, check_job: CheckJob) -> RunRecord:
    """Start a run now, whatever the schedule's times; it is the caller's. Nothing new if the same
    request has started it before. check_job: see `submissions`. Raises InvalidInput,
    EngineError."""
    from muster.service.submissions import start

    request = start_request(context.home, schedule, round(time.time(), 6))
    run = start(context, request, check_job)
    at = datetime.fromisoformat(run.tags[SCHEDULED_TIME_TAG]).timestamp()
    by = context.caller.user
    firing = FiringRecord(schedule.id, at, Outcome.STARTED, at, run_id=run.id, by=by)
    context.store.schedules.note(firing)
    return run


def start_request(
    home: Home, schedule: ScheduleRecord, at: float, event: Event | None = None
) -> StartRequest:
    """The request that starts the run of a time (epoch seconds), or of what has happened then.
    Raises InvalidInput if the key of the schedule's secrets is missing."""
    from muster.service.event_inputs import tags_of, variables_of

    overrides = dict(_unsealed(home, schedule, schedule.overrides))
    text = moment(at).isoformat().replace("+00:00", "Z")
    overrides["env"] = {
        **(overrides.get("env") or {}),
        NAME_VARIABLE: schedule.name,
        TIME_VARIABLE: text,
        **({} if event is None else variables_of(event)),
    }
    overrides["tags"] = {
        **(overrides.get("tags") or {}),
        SCHEDULE_TAG: schedule.name,
        SCHEDULED_TIME_TAG: text,
        **({} if event is None else tags_of(event)),
    }
    environ = _unsealed(home, schedule, schedule.environ)
    notes = tuple(_unsealed(home, schedule, schedule.notes))
    return StartRequest(RunRequest(JobSource(schedule.job_id), overrides, notes, environ))


def _unsealed(home: Home, schedule: ScheduleRecord, data: Any) -> Any:
    return unseal(home, data, f"schedule {schedule.name}")


def creator_of(accounts: Accounts, policies: CurrentPolicies, schedule: ScheduleRecord) -> Caller:
    """Who starts the runs of a schedule, with the rights of now. Raises Forbidden if it has no
    account any more, or is disabled."""
    what = f"schedule {schedule.name}"
    given = (accounts, policies, schedule.created_by, schedule.project)
    return current_caller(*given, local=schedule.local, what=what)
