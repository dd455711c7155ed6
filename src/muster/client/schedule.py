"""The Python API of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from muster.client.item import Item, ItemRecord
from muster.describe.schedules import clock_text, event_text, when_text
from muster.describe.times import minute, moment, optional_moment
from muster.errors import InvalidInput, Problem
from muster.lifecycle.schedule import Missed, Overlap, Timing, times, zone
from muster.spec.quantities import format_duration
from muster.store.schedule_records import FiringRecord, ScheduleRecord

if TYPE_CHECKING:
    from muster.api.schedules import WebhookAddress
    from muster.client.client import Client
    from muster.client.run import JobRun
    from muster.client.table import Table
    from muster.lifecycle.trigger import Trigger


class Firing(ItemRecord, frozen=True):
    """What was done at a time of a schedule."""

    #: The time of the schedule, in UTC.
    time: datetime
    #: `starting`, `started`, `skipped`, `missed` or `refused`.
    outcome: str
    #: Why no run was started; "" if one was.
    why: str
    #: How many times before it had passed without a run; at most 100.
    passed: int
    #: The name and the state of the run; "" if there is none, or it was deleted.
    run: str
    run_state: str
    #: Who has triggered it; "" if its time or an event has.
    by: str
    #: The event, such as `run.succeeded prepare-3`; "" if its time has come.
    event: str = ""

    def _cells(self) -> dict[str, str]:
        return {
            "TIME": minute(self.time),
            "OUTCOME": f"triggered by {self.by}" if self.by else self.outcome,
            "RUN": self.run or "-",
            "STATE": self.run_state or "-",
            "WHY": _why(self),
            "EVENT": self.event or "-",
        }


class Schedule(Item):
    """A schedule: it starts runs of a Job at times, while a server runs."""

    def __init__(self, client: Client, record: ScheduleRecord) -> None:
        self._client = client
        self._record = record

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str:
        """Unique in its project."""
        return self._record.name

    @property
    def job(self) -> str:
        """`name@version` of its Job."""
        return self._record.job

    @property
    def timing(self) -> Timing:
        """When it starts runs."""
        return self._record.timing

    @property
    def started_by(self) -> Trigger | None:
        """The events that start its runs; None if times do."""
        return self._record.trigger

    @property
    def overrides(self) -> dict[str, Any]:
        """Those of each run, as in docs/reference/spec.md; secrets hidden."""
        from muster.secrets import hidden

        shown: dict[str, Any] = hidden(dict(self._record.overrides))
        return {name: value for name, value in shown.items() if value not in ({}, [], None)}

    @property
    def paused(self) -> bool:
        """Whether it starts no runs."""
        return self._record.paused

    @property
    def next_at(self) -> datetime | None:
        """When it starts the next run, in UTC; None while it is paused, after its last time, or if
        events start its runs."""
        return optional_moment(self._record.next_at)

    @property
    def created_by(self) -> str:
        """The user who created it, and who starts its runs."""
        return self._record.created_by

    @property
    def created_at(self) -> datetime:
        """When it was created, in UTC."""
        return moment(self._record.created_at)

    def next_times(self, count: int = 5) -> list[datetime]:
        """Its next times, in UTC; none while it is paused."""
        first = self._record.next_at
        if first is None:
            return []
        return [moment(each) for each in [first, *islice(times(self.timing, first), count - 1)]]

    def firings(self, *, limit: int | None = 10, before: datetime | None = None) -> Table[Firing]:
        """What was done at its last times, newest first. limit: None for all that is kept. before:
        only earlier times."""
        from muster.client.table import Table

        until = None if before is None else before.timestamp()
        found = self._client.api.firings(self.id, limit=limit, before=until)
        return Table(map(_firing, found))

    def edit(self, *, job: str | None = None, **timing: Any) -> Schedule:
        """Change its Job, or when it starts runs: `edit(cron="0 4 * * *")`. timing: as for
        `Client.create_schedule`; `start` and `end` may be "none". Returns itself. Raises
        InvalidInput."""
        from muster.api.schedules import ScheduleChange

        time_zone = timing.get("time_zone")
        fields = timing_fields({**timing, "time_zone": time_zone or self.timing.time_zone})
        if time_zone is None:
            del fields["time_zone"]
        change = ScheduleChange(job=job, **fields)
        self._record = self._client.api.edit_schedule(self.id, change)
        return self

    def pause(self) -> Schedule:
        """Start no more runs. Returns itself."""
        self._record = self._client.api.pause_schedule(self.id)
        return self

    def resume(self) -> Schedule:
        """Start runs again, at times from now on. Returns itself."""
        self._record = self._client.api.resume_schedule(self.id)
        return self

    def trigger(self) -> JobRun:
        """Start a run now, in your name, whatever its times."""
        return self._client._run(self._client.api.trigger_schedule(self.id))

    def webhook(self) -> WebhookAddress:
        """The address of its webhook. Raises InvalidInput if it has none."""
        return self._client.api.webhook(self.id)

    def rotate_webhook(self) -> WebhookAddress:
        """Give its webhook a new secret, which is returned this once; the one before is not
        accepted any more. Raises InvalidInput if it has no webhook."""
        return self._client.api.rotate_webhook(self.id)

    def delete(self) -> None:
        """Delete it. Its Job and its runs stay."""
        self._client.api.delete_schedule(self.id)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data; times as RFC 3339 text, durations as seconds, secrets hidden."""
        return super().to_dict() | {"overrides": self.overrides}

    def _facts(self) -> dict[str, Any]:
        timing = self.timing
        return {
            "id": self.id,
            "name": self.name,
            "job": self.job,
            "cron": timing.cron,
            "every": timing.every,
            "ical": timing.ical,
            "time_zone": timing.time_zone,
            "start": optional_moment(timing.start),
            "end": optional_moment(timing.end),
            "jitter": timing.jitter,
            "offset": timing.offset,
            "trigger": None if self.started_by is None else to_builtins(self.started_by),
            "overlap": str(timing.overlap),
            "missed": str(timing.missed),
            "start_within": timing.start_within,
            "paused": self.paused,
            "next_at": self.next_at,
            "created_by": self.created_by,
            "created_at": self.created_at,
        }

    def next_text(self) -> str:
        """When it starts the next run, on the clock of its zone; or why that is not known."""
        if self.paused:
            return "paused"
        if self._record.next_at is not None:
            return clock_text(self.timing, self._record.next_at)
        return "over" if self.started_by is None else "-"

    def _cells(self) -> dict[str, str]:
        return {
            "SCHEDULE": self.name,
            "JOB": self.job,
            "WHEN": when_text(self.timing, self.started_by),
            "NEXT": self.next_text(),
            "BY": self.created_by or "-",
        }

    def __repr__(self) -> str:
        return f"<Schedule {self.name} {when_text(self.timing, self.started_by)}>"


def trigger_of(
    *, after: str | None, on: str | None, webhook: bool, on_object: str | None
) -> Trigger | None:
    """The event that a user names; None if there is none. Raises InvalidInput."""
    from muster.lifecycle.trigger import AfterRun, End, ObjectCreated, Webhook

    found: dict[str, Trigger] = {}
    if after is not None:
        found["after"] = AfterRun(
            after, End.SUCCEEDED if on is None else End(_choice(End, "on", on))
        )
    elif on is not None:
        raise InvalidInput(Problem("on", "says how a run ends", "name its job with `after`"))
    if webhook:
        found["webhook"] = Webhook()
    if on_object is not None:
        bucket, _, prefix = on_object.partition("/")
        found["on_object"] = ObjectCreated(bucket, prefix)
    if len(found) > 1:
        text = f"a schedule has {' and '.join(found)}"
        raise InvalidInput(Problem("", text, "leave all but one of them out"))
    return next(iter(found.values()), None)


def timing_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `Timing` from values that users give: durations as text or seconds, times as text
    on the clock of `time_zone` or as a `datetime`, choices as text. None: not given. Raises
    InvalidInput with every problem."""
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    time_zone = given.get("time_zone") or "UTC"
    for name, value in given.items():
        if value is None:
            continue
        try:
            if name in ("start", "end"):
                found[name] = _time(name, value, time_zone)
            else:
                found[name] = _READERS[name](name, value)
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(*problems)
    return found


def _duration(name: str, value: Any) -> float:
    from muster.client.filters import duration_of

    return duration_of(name, value)


def _time(name: str, value: Any, time_zone: str) -> float:
    """Epoch seconds; 0 for "none"."""
    if value == "none":
        return 0.0
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            hint = "give 2026-12-31, 2026-12-31T08:00 or 2026-12-31T08:00+01:00"
            raise InvalidInput(Problem(name, f"{value!r} is not a time", hint)) from None
    if not isinstance(value, datetime):
        raise InvalidInput(Problem(name, f"must be a time, not {value!r}"))
    if value.tzinfo is None:
        try:
            value = value.replace(tzinfo=zone(time_zone))
        except (KeyError, ValueError, OSError):  # which is reported of the time zone
            return 1.0
    return float(value.timestamp())


def _choice(kind: type[StrEnum], name: str, value: Any) -> StrEnum:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(kind)
        raise InvalidInput(Problem(name, f"must be one of {choices}, not {value!r}")) from None


#: Field of `Timing` -> what reads it.
_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "cron": lambda _, value: value,
    "every": _duration,
    "ical": lambda _, value: value,
    "jitter": _duration,
    "time_zone": lambda _, value: value,
    "overlap": partial(_choice, Overlap),
    "missed": partial(_choice, Missed),
    "start_within": _duration,
}


def _firing(record: FiringRecord) -> Firing:
    return Firing(
        time=moment(record.time),
        outcome=str(record.outcome),
        why=record.why,
        passed=record.passed,
        run=record.run_name,
        run_state=record.run_state,
        by=record.by,
        event="" if record.event is None else event_text(record.event),
    )


def _why(firing: Firing) -> str:
    """Why there is no run, and how many times had passed before."""
    passed = ""
    if firing.passed:
        count = "100 or more" if firing.passed >= 100 else str(firing.passed)
        passed = f"{count} earlier {'time' if firing.passed == 1 else 'times'} passed"
    return "; ".join(filter(None, (firing.why, passed))) or "-"


def settings_text(timing: Timing, trigger: Trigger | None = None) -> str:
    """What a schedule does when times or events collide or pass, in words."""
    within = format_duration(timing.start_within)
    overlap = {
        Overlap.ALLOW: "starts a run beside one that has not ended",
        Overlap.SKIP: "starts no run while the one before has not ended",
        Overlap.REPLACE: "cancels a run that has not ended, and starts the next one",
    }[timing.overlap]
    missed = {
        Missed.SKIP: f"a time is missed if no server starts its run within {within}",
        Missed.RUN_ONCE: "after missed times, one run starts when a server runs again",
    }[timing.missed]
    if trigger is not None:
        missed = {
            Missed.SKIP: f"an event is missed if no server starts its run within {within}",
            Missed.RUN_ONCE: "an event that happens while no server runs starts its run later",
        }[timing.missed]
    return f"{overlap}; {missed}"
