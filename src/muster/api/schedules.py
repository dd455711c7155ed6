"""What is sent to create and to edit schedules."""

from __future__ import annotations

from msgspec import Struct

from muster.api.submissions import RunRequest
from muster.lifecycle.schedule import Missed, Overlap, Timing
from muster.lifecycle.trigger import Trigger


class ScheduleRequest(Struct, frozen=True):
    """A schedule to create."""

    name: str
    #: `since` and `offset` are set by who stores it.
    timing: Timing
    #: What it starts.
    run: RunRequest
    #: The events that start runs; None: the times of `timing` do.
    trigger: Trigger | None = None


class WebhookAddress(Struct, frozen=True):
    """Where a schedule's webhook receives requests."""

    #: Below the server's address.
    path: str
    #: When its secret was made (epoch seconds); None: not yet.
    set_at: float | None
    #: The secret, when it is made; "" later.
    secret: str = ""


class ScheduleChange(Struct, frozen=True):
    """What to change of a schedule; None: nothing. See `Timing`."""

    cron: str | None = None
    every: float | None = None
    ical: str | None = None
    #: 0: none any more; so is `end`.
    start: float | None = None
    end: float | None = None
    jitter: float | None = None
    time_zone: str | None = None
    overlap: Overlap | None = None
    missed: Missed | None = None
    start_within: float | None = None
    #: The name or id of another Job, of which the next runs are. The overrides stay.
    job: str | None = None
