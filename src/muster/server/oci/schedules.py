"""Schedules that create job runs (OCI: Schedule). `schedule_runs` acts at their times, in the name
of who has created them: nobody else changes what one runs, and nobody has one start runs where they
could not start them."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from muster.describe.times import time_text_ms
from muster.lifecycle.schedule import Overlap, Timing, problems_of, settled, times
from muster.permissions import Permission
from muster.server.answers import Answer
from muster.server.oci import projects, work_requests
from muster.server.oci.errors import conflict, invalid
from muster.server.oci.jobs import KIND as JOB_KIND
from muster.server.oci.listings import listing
from muster.server.oci.moments import epoch
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import (
    change,
    check_match,
    common,
    create,
    default_name,
    find,
    labels,
    moved,
    shown,
)
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.model import CreateJobRun, plain
from muster.spec.formats.oci.rules import label_problems
from muster.spec.formats.oci.schedule_model import (
    CreateSchedule,
    CronTrigger,
    IcalTrigger,
    Trigger,
    UpdateSchedule,
)
from muster.store.resource_records import SCHEDULE, ResourceRecord

KIND = SCHEDULE
_PATH, _ONE = "/20190101/schedules", "/20190101/schedules/{schedule_id}"
_STATES = (
    *("CREATING", "ACTIVE", "INACTIVE", "UPDATING"),
    *("DELETING", "DELETED", "FAILED"),
)


_SECONDS = {"HOURLY": 3600.0, "DAILY": 86400.0}


def create_schedule(request: OciRequest) -> Answer:
    """POST /schedules"""
    given = request.read(CreateSchedule, label_problems)
    project = request.project_with(given.compartment_id, request.permission)
    request.require_user(project, "create a schedule")
    _check_run(request, given.action.action_details.create_job_run_details)
    parent = projects.project_for(request, given.project_id, project)
    now = time.time()
    timed = _timed(given.trigger, now)
    name = given.display_name or default_name("schedule")
    data = {
        **labels(given),
        "projectId": given.project_id,
        **{key: plain(given)[key] for key in ("action", "logDetails")},
        **timed,
    }

    def record(identifier: str) -> ResourceRecord:
        user = request.principal.user
        return ResourceRecord(
            *(KIND, identifier, project, name, "ACTIVE", user, now, now, data), parent=parent.id
        )

    made, _ = create(request, record, KIND, request.permission, "oci.schedules.create")
    done = work_requests.done(request, made, "SCHEDULE_CREATE", "CREATED")
    return shown(made, _shown(request, made), headers=done.headers)


def _timed(trigger: Trigger, now: float) -> dict[str, Any]:
    """A trigger with its times, as it is stored. Raises OciError."""
    try:
        timing = _timing_of(trigger)
    except ValueError as error:
        raise invalid(str(error)) from None
    if found := problems_of(timing):
        raise invalid("; ".join(f"trigger: {problem}" for problem in found))
    timing = settled(timing, now, random.random())
    return {
        "trigger": plain(trigger),
        "timing": to_builtins(timing),
        "nextAt": next(times(timing, now), None),
    }


def _timing_of(trigger: Trigger) -> Timing:
    """The times of a trigger. Raises ValueError."""
    start, end = (
        None if moment is None else epoch(moment)
        for moment in (trigger.time_start, trigger.time_end)
    )
    common = Timing(overlap=Overlap.ALLOW, start=start, end=end)
    if isinstance(trigger, CronTrigger):
        return replace(common, cron=trigger.cron_expression)
    if isinstance(trigger, IcalTrigger):
        return replace(common, ical=trigger.recurrence)
    if trigger.frequency not in _SECONDS:
        raise ValueError(f"trigger.frequency has to be one of {', '.join(_SECONDS)}")
    if trigger.interval < 1:
        raise ValueError(f"trigger.interval has to be 1 or more, not {trigger.interval}")
    every = trigger.interval * _SECONDS[trigger.frequency]
    jitter = 60.0 * (trigger.initial_jitter_in_minutes or 0)
    return replace(common, every=every, jitter=every if trigger.is_random_start_time else jitter)


def _check_run(request: OciRequest, given: CreateJobRun) -> None:
    """Raises OciError unless the caller could start such a job run."""
    request.project_with(given.compartment_id, Permission.JOB_RUN_CREATE)
    find(request, JOB_KIND, given.job_id, Permission.JOB_READ)


def list_schedules(request: OciRequest) -> Answer:
    """GET /schedules"""
    return listing(
        *(request, KIND, lambda record: _summary(request, record)),
        parent="projectId",
        states=_STATES,
    )


def get_schedule(request: OciRequest) -> Answer:
    """GET /schedules/{schedule_id}"""
    record = _find(request)
    return shown(record, _shown(request, record))


def update_schedule(request: OciRequest) -> Answer:
    """PUT /schedules/{schedule_id}"""
    record, given = _find(request), request.read(UpdateSchedule, label_problems)
    _check_exists(record)
    data = {**record.data, **labels(given)}
    if given.action is not None:
        what = f"change the action of schedule {record.name}"
        request.require_user(record.project, what, record.created_by)
        _check_run(request, given.action.action_details.create_job_run_details)
    for name in ("action", "logDetails"):
        if (value := plain(given)[name]) is not None:
            data[name] = value
    if given.trigger is not None:
        data |= _timed(given.trigger, time.time())
    name = given.display_name or record.name
    change(request, record, "oci.schedules.update", name=name, data=data)
    return work_requests.done(request, record, "SCHEDULE_UPDATE", "UPDATED")


def delete_schedule(request: OciRequest) -> Answer:
    """DELETE /schedules/{schedule_id}"""
    record = _find(request)
    check_match(request, record)
    if record.state != "DELETED":
        change(request, record, "oci.schedules.delete", state="DELETED")
    return work_requests.done(request, record, "SCHEDULE_DELETE", "DELETED")


def activate_schedule(request: OciRequest) -> Answer:
    """POST /schedules/{schedule_id}/actions/activate"""
    record = _find(request)
    _check_exists(record)
    if record.state == "ACTIVE":
        raise conflict("The schedule is ACTIVE.")
    # the times of the pause start no runs
    timing = convert(record.data["timing"], Timing)
    data = {**record.data, "nextAt": next(times(timing, time.time()), None)}
    given = {"state": "ACTIVE", "data": data}
    change(request, record, "oci.schedules.activate", **given)
    return work_requests.done(request, record, "SCHEDULE_ACTIVATE", "UPDATED")


def deactivate_schedule(request: OciRequest) -> Answer:
    """POST /schedules/{schedule_id}/actions/deactivate"""
    record = _find(request)
    _check_exists(record)
    if record.state == "INACTIVE":
        raise conflict("The schedule is INACTIVE.")
    change(request, record, "oci.schedules.deactivate", state="INACTIVE")
    return work_requests.done(request, record, "SCHEDULE_DEACTIVATE", "UPDATED")


def change_schedule_compartment(request: OciRequest) -> Answer:
    """POST /schedules/{schedule_id}/actions/changeCompartment"""
    record = _find(request)
    change(
        request, record, "oci.schedules.move", **moved(request, record, Permission.SCHEDULE_CREATE)
    )
    return work_requests.done(request, record, "SCHEDULE_MOVE", "UPDATED")


def _find(request: OciRequest) -> ResourceRecord:
    return find(request, KIND, request.path["schedule_id"], request.permission)


def _check_exists(record: ResourceRecord) -> None:
    if record.state == "DELETED":
        raise conflict("The schedule is DELETED.")


def _summary(request: OciRequest, record: ResourceRecord) -> dict[str, Any]:
    return common(request, record) | {
        "projectId": record.data["projectId"],
        "trigger": record.data["trigger"],
        "timeUpdated": time_text_ms(record.updated_at),
        "systemTags": {},
    }


def _shown(request: OciRequest, record: ResourceRecord) -> Mapping[str, Any]:
    data, last = record.data, record.data.get("last") or {}
    next_at = data.get("nextAt") if record.state == "ACTIVE" else None
    return _summary(request, record) | {
        "description": data.get("description") or "",
        "action": data["action"],
        "logDetails": data.get("logDetails"),
        "timeNextScheduledRun": time_text_ms(next_at),
        "timeLastScheduleRun": time_text_ms(last.get("time")),
        "lastScheduleRunDetails": last.get("details") or "",
        "lifecycleDetails": last.get("problem") or "",
    }


ROUTES = (
    OciRoute(
        *("create_schedule", "POST", _PATH, create_schedule),
        permission=Permission.SCHEDULE_CREATE,
        also=(Permission.JOB_RUN_CREATE, Permission.JOB_READ, Permission.PROJECT_READ),
    ),
    OciRoute("list_schedules", "GET", _PATH, list_schedules, Permission.SCHEDULE_INSPECT),
    OciRoute("get_schedule", "GET", _ONE, get_schedule, Permission.SCHEDULE_READ),
    OciRoute("update_schedule", "PUT", _ONE, update_schedule, Permission.SCHEDULE_UPDATE),
    OciRoute("delete_schedule", "DELETE", _ONE, delete_schedule, Permission.SCHEDULE_DELETE),
    OciRoute(
        *("activate_schedule", "POST", f"{_ONE}/actions/activate", activate_schedule),
        permission=Permission.SCHEDULE_UPDATE,
    ),
    OciRoute(
        *("deactivate_schedule", "POST", f"{_ONE}/actions/deactivate", deactivate_schedule),
        permission=Permission.SCHEDULE_UPDATE,
    ),
    OciRoute(
        "change_schedule_compartment",
        *("POST", f"{_ONE}/actions/changeCompartment", change_schedule_compartment),
        permission=Permission.SCHEDULE_MOVE,
        also=(Permission.SCHEDULE_CREATE,),
    ),
)
