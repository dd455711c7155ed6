"""Records of schedules, and of what was done at their times."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from muster.lifecycle.schedule import Timing
from muster.lifecycle.trigger import Event, Trigger
from muster.store.records import Moment

#: What was done at times is kept of the last ones of each schedule, and of runs in progress.
KEPT_FIRINGS = 100
#: Seconds for which a schedule knows the requests to its webhook, so that none counts twice.
KNOWN_DELIVERIES = 30 * 86400.0


class ScheduleRecord(Struct, frozen=True):
    """A schedule: which Job runs when."""

    id: str
    name: str
    """Unique in its project."""
    project: str
    job_id: str
    job: str
    """`name@version` of the Job; given by the store."""
    timing: Timing
    overrides: Mapping[str, Any]
    """Of each run."""
    environ: Mapping[str, str]
    """What the nodes' environment starts from, besides the variables of the server."""
    notes: list[str]
    """Shown with each run."""
    created_by: str
    """Who starts its runs."""
    created_at: Moment
    updated_at: Moment
    next_at: Moment | None
    """The first time that nothing was done about; None if it is paused, has no more times, or
    events start its runs."""
    local: bool = False
    """Whether it was made on the server's machine by a user of its MUSTER_HOME, who needs no
    account."""
    version: int = 1
    """One more with each edit, pause and resume."""
    trigger: Trigger | None = None
    """The events that start its runs; None: the times of `timing` do."""
    paused: bool = False
    """Whether it starts no runs."""
    decided: int = 0
    """How often it was decided what to do about an event."""


class Outcome(StrEnum):
    """What was done at a time of a schedule."""

    STARTING = "starting"
    """It was decided to start a run."""
    STARTED = "started"
    SKIPPED = "skipped"
    """An earlier run had not ended."""
    MISSED = "missed"
    """No server ran then."""
    REFUSED = "refused"
    """The run could not be started."""


class FiringRecord(Struct, frozen=True):
    """What was done at a time of a schedule."""

    schedule_id: str
    time: Moment
    """The time of the schedule."""
    outcome: Outcome
    decided_at: Moment
    """When that was decided."""
    why: str = ""
    """Why no run was started; "" if one was."""
    passed: int = 0
    """How many times before it had passed without a run; at most 100."""
    run_id: str | None = None
    by: str = ""
    """Who has triggered the run; "" if its time has."""
    event: Event | None = None
    """What has happened; None for a time. Its data are kept until the run has started."""
    run_name: str = ""
    """"" if the run does not exist, or was deleted; given by the store, as `run_state`."""
    run_state: str = ""


class WebhookRecord(Struct, frozen=True):
    """The webhook of a schedule."""

    schedule_id: str
    """Also names it in its address."""
    secret: str
    """What requests are signed with, sealed."""
    set_at: Moment
    """When the secret was made."""
