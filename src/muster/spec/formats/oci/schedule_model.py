"""The models of schedules, as they are on the wire, and their times. Pure.

OCI: Schedule, ScheduleTrigger, ScheduleHttpAction.
"""

from __future__ import annotations

from datetime import UTC, datetime

from muster.lifecycle.schedule import Overlap, Timing
from muster.spec.formats.oci.model import CreateJobRun, Labels, LogConfiguration, Wire

_SECONDS = {"HOURLY": 3600.0, "DAILY": 86400.0}


class _Trigger(Wire, frozen=True, kw_only=True):
    time_start: datetime | None = None
    time_end: datetime | None = None


class CronTrigger(_Trigger, frozen=True, kw_only=True, tag_field="triggerType", tag="CRON"):
    """Times of a cron expression, in UTC."""

    cron_expression: str


class IntervalTrigger(_Trigger, frozen=True, kw_only=True, tag_field="triggerType", tag="INTERVAL"):
    """Each hour or day, or each few of them."""

    frequency: str
    interval: int
    initial_jitter_in_minutes: int | None = None
    is_random_start_time: bool | None = None


class IcalTrigger(_Trigger, frozen=True, kw_only=True, tag_field="triggerType", tag="ICAL"):
    """A recurrence of RFC 5545."""

    recurrence: str


Trigger = CronTrigger | IntervalTrigger | IcalTrigger


class CreateJobRunAction(
    Wire, frozen=True, kw_only=True, tag_field="httpActionType", tag="CREATE_JOB_RUN"
):
    """Creates a job run."""

    create_job_run_details: CreateJobRun


class HttpAction(Wire, frozen=True, kw_only=True, tag_field="actionType", tag="HTTP"):
    """What is done at each time."""

    action_details: CreateJobRunAction


class CreateSchedule(Labels, frozen=True, kw_only=True):
    """OCI: CreateScheduleDetails."""

    project_id: str
    compartment_id: str
    trigger: Trigger
    action: HttpAction
    description: str | None = None
    log_details: LogConfiguration | None = None


class UpdateSchedule(Labels, frozen=True, kw_only=True):
    """OCI: UpdateScheduleDetails."""

    description: str | None = None
    trigger: Trigger | None = None
    action: HttpAction | None = None
    log_details: LogConfiguration | None = None


def timing_of(trigger: Trigger) -> Timing:
    """The times of a trigger. Raises ValueError."""
    start, end = _seconds(trigger.time_start), _seconds(trigger.time_end)
    common = Timing(overlap=Overlap.ALLOW, start=start, end=end)
    from msgspec.structs import replace

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


def _seconds(moment: datetime | None) -> float | None:
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
