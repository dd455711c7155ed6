"""Which times of a schedule are due, and what is to be done about them. Pure.

Cron expressions have the five fields of Debian's cron and its rules for daylight saving time: a
time that the clock skips is due when the clock has skipped it, one that the clock repeats is due
once; expressions with `*` in hours or minutes follow the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from itertools import count, islice, takewhile

from msgspec import Struct

from muster.errors import Problem
from muster.spec.quantities import format_duration
from muster.spec.wording import short

#: Times that have passed without a run are counted up to this number.
MOST_COUNTED = 100
#: The shortest and the longest interval, in seconds.
_SHORTEST, _LONGEST = 1.0, 3650 * 86400.0
_LONGEST_TEXT = 200
#: Seconds before now in which the last time is looked for, one after the other.
_SPANS = (7200.0, 3 * 86400.0, 40 * 86400.0, 400 * 86400.0, 9 * 366 * 86400.0)


class Overlap(StrEnum):
    """What to do at a time when an earlier run of the schedule has not ended."""

    ALLOW = "allow"
    """Start another run beside it."""
    SKIP = "skip"
    """Start none."""
    REPLACE = "replace"
    """Cancel it, and start another run."""


class Missed(StrEnum):
    """What to do about times that have passed because no server ran."""

    SKIP = "skip"
    """Start no run."""
    RUN_ONCE = "run_once"
    """Start one run, for the last of them."""


class Timing(Struct, frozen=True):
    """When a schedule starts runs. It has either `cron` or `every`."""

    cron: str | None = None
    """Five fields: minute, hour, day of the month, month, day of the week."""
    every: float | None = None
    """Seconds between two times; the first is that long after `since`."""
    time_zone: str = "UTC"
    """The IANA name of the zone whose clock `cron` follows."""
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.SKIP
    start_within: float = 600.0
    """Seconds after its time in which a run may start; later, the time is missed."""
    since: float = 0.0
    """When it was set (epoch seconds)."""


class Running(Struct, frozen=True):
    """A run of the schedule that has not ended."""

    id: str
    name: str
    """"" if it is about to be recorded."""
    state: str


class Action(StrEnum):
    """What is to be done at a time."""

    START = "start"
    SKIP = "skip"
    MISS = "miss"


class Due(Struct, frozen=True):
    """What is to be done now."""

    time: float
    """The last time that is due (epoch seconds)."""
    action: Action
    why: str
    """Why no run starts; "" if one does."""
    passed: int
    """How many times before it have passed without a run; at most `MOST_COUNTED`."""
    next_at: float | None
    """The next time to look at; None if there is none."""


def due(
    timing: Timing, next_at: float | None, now: float, running: Sequence[Running]
) -> Due | None:
    """What is to be done at a moment; None: nothing yet.

    next_at: the first time that nothing was done about; None if the schedule is paused. At most one
    run starts, for the last of several times. A clock that was set back makes nothing due again.
    """
    if next_at is None or next_at > now:
        return None
    time = _last(timing, next_at, now)
    passed = 0
    if time > next_at:
        between = takewhile(lambda one: one < time, times(timing, next_at))
        passed = 1 + sum(1 for _ in islice(between, MOST_COUNTED - 1))
    following = next(times(timing, now), None)
    if now - time > timing.start_within and timing.missed == Missed.SKIP:
        within = format_duration(timing.start_within)
        return Due(time, Action.MISS, f"no server started it within {within}", passed, following)
    if running and timing.overlap == Overlap.SKIP:
        first = running[0]
        why = f"{first.name or 'the run before'} is still {first.state}"
        return Due(time, Action.SKIP, why, passed, following)
    return Due(time, Action.START, "", passed, following)


def times(timing: Timing, after: float) -> Iterator[float]:
    """The times of a schedule after a moment, in order (epoch seconds)."""
    if timing.every is not None:
        near = max(0, int((after - timing.since) / timing.every) - 1)
        for number in count(near + 1):
            if (time := _nth(timing, number)) > after:
                yield time
    from cronsim import CronSim  # few commands use it

    assert timing.cron is not None
    last, clock = after, zone(timing.time_zone)
    for moment in CronSim(timing.cron, datetime.fromtimestamp(after, clock)):
        time = moment.timestamp()
        if time > last:  # within a repeated hour it begins in the first one
            yield time
            last = time


def _nth(timing: Timing, number: int) -> float:
    assert timing.every is not None
    return round(timing.since + number * timing.every, 6)


def _last(timing: Timing, next_at: float, now: float) -> float:
    """The last time up to now. next_at: a time up to now."""
    if timing.every is not None:
        number = int((now - timing.since) / timing.every) + 1
        return next(time for n in count(number, -1) if (time := _nth(timing, n)) <= now)
    for span in _SPANS:
        start = max(next_at, now - span)
        found = next_at
        for found in takewhile(lambda time: time <= now, times(timing, start)):  # noqa: B007
            pass
        if found > next_at or start == next_at:
            return found
    return next_at


def problems_of(timing: Timing) -> list[Problem]:
    """What is wrong with it."""
    problems: list[Problem] = []
    if timing.cron is None and timing.every is None:
        hint = 'cron, such as "0 3 * * *", or every, such as 6h'
        problems.append(Problem("", "a schedule needs either cron or every", hint))
    if timing.cron is not None and timing.every is not None:
        text = "a schedule has either cron or every, not both"
        problems.append(Problem("", text, "leave one of them out"))
    if timing.every is not None and not _SHORTEST <= timing.every <= _LONGEST:
        problems.append(_not_between("every", timing.every))
    if not _SHORTEST <= timing.start_within <= _LONGEST:
        problems.append(_not_between("start_within", timing.start_within))
    if (found := _zone_problem(timing.time_zone)) is not None:
        problems.append(found)
    elif timing.cron is not None and (cron := _cron_problem(timing.cron)) is not None:
        problems.append(cron)
    return problems


def _not_between(path: str, seconds: float) -> Problem:
    least, most = format_duration(_SHORTEST), format_duration(_LONGEST)
    return Problem(path, f"must be from {least} to {most}, not {format_duration(seconds)}")


def _zone_problem(name: str) -> Problem | None:
    try:
        zone(name)
    except (KeyError, ValueError, OSError):
        hint = "use an IANA name, such as Europe/Rome; the system's package tzdata has them"
        return Problem("time_zone", f"{short(name)} is not a time zone", hint)
    return None


def _cron_problem(cron: str) -> Problem | None:
    from cronsim import CronSim, CronSimError

    hint = 'minute, hour, day of the month, month, day of the week: "0 3 * * *" is each day at 3:00'
    if len(cron) > _LONGEST_TEXT:
        return Problem("cron", f"has {len(cron)} characters; the most are {_LONGEST_TEXT}", hint)
    if len(fields := cron.split()) != 5:
        return Problem("cron", f"{short(cron)} needs five fields, not {len(fields)}", hint)
    try:
        found = next(CronSim(cron, datetime.now(UTC)), None)
    except CronSimError as error:
        text = str(error)
        return Problem("cron", f"{short(cron)}: {text[:1].lower()}{text[1:]}", hint)
    if found is None:
        return Problem("cron", f"{short(cron)} never happens", hint)
    return None


def zone(name: str) -> tzinfo:
    """The time zone with this name. Raises KeyError, ValueError or OSError if there is none."""
    from zoneinfo import ZoneInfo

    return UTC if name == "UTC" else ZoneInfo(name)
