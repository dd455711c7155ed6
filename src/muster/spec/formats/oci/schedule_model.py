"""The models of schedules, as they are on the wire.

OCI: Schedule, ScheduleTrigger, ScheduleHttpAction.
"""

from __future__ import annotations

from datetime import datetime

from muster.spec.formats.oci.model import CreateJobRun, Labels, LogConfiguration, Wire


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
