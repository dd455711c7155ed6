"""Which times of a schedule are due, and what is to be done about them. Pure.

Cron expressions have the five fields of Debian's cron and its rules for daylight saving time: a
time that the clock skips is due when the clock has skipped it, one that the clock repeats is due
once; expressions with `*` in hours or minutes follow the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from functools import lru_cache
from itertools import count, islice, takewhile

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import Problem
from muster.lifecycle.recurrence import Recurrence, read_recurrence
from muster.spec.quantities import format_duration
from muster.spec.wording import short

#: Times that have passed without a run are counted up to this number.
MOST_COUNTED = 100
#: The shortest and the longest interval, in seconds.
_SHORTEST, _LONGEST = 1.0, 3650 * 86400.0
_LONGEST_TEXT = 200
#: The first second of the year 9000.
_LATEST = 221845392000.0
#: Times are stored as whole microseconds.
_MICROSECOND = 1e-6
#: The fields that say when; a schedule has one of them.
KINDS = ("cron", "every", "ical")
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
    """When a schedule starts runs. It has one of `cron`, `every` and `ical`; none of them if events
    start its runs, between `start` and `end`."""

    cron: str | None = None
    """Five fields: minute, hour, day of the month, month, day of the week."""
    every: float | None = None
    """Seconds between two times. The first is `start`, or else that long after `since`."""
    ical: str | None = None
    """A recurrence of RFC 5545: RRULE, and perhaps DTSTART and EXDATE. Without DTSTART it starts at
    `start`, or else at midnight before `since`."""
    time_zone: str = "UTC"
    """The IANA name of the zone whose clock `cron` and `ical` follow."""
    start: float | None = None
    """No times before it (epoch seconds)."""
    end: float | None = None
    """No times after it (epoch seconds)."""
    jitter: float = 0.0
    """The most seconds of `offset`, which is drawn when the times are set."""
    offset: float = 0.0
    """Seconds by which each time is later than the others say, so that the schedules of many people
    do not start runs at one moment."""
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
    """The next time to look at; None if no more follow."""


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
        return Due(time, Action.SKIP, _still_running(running), passed, following)
    return Due(time, Action.START, "", passed, following)


def _still_running(running: Sequence[Running]) -> str:
    first = running[0]
    return f"{first.name or 'the run before'} is still {first.state}"


def happens(timing: Timing, at: float) -> bool:
    """Whether an event at this moment counts: it is between `start` and `end`."""
    after_start = timing.start is None or at >= timing.start
    return after_start and (timing.end is None or at <= timing.end)


def on_event(
    timing: Timing, at: float, now: float, running: Sequence[Running]
) -> tuple[Action, str]:
    """What is done about an event, and why no run starts. at: when it has happened."""
    if now - at > timing.start_within and timing.missed == Missed.SKIP:
        within = format_duration(timing.start_within)
        return Action.MISS, f"no server started it within {within}"
    if running and timing.overlap == Overlap.SKIP:
        return Action.SKIP, _still_running(running)
    return Action.START, ""


def times(timing: Timing, after: float) -> Iterator[float]:
    """The times of a schedule after a moment, in order (epoch seconds)."""
    since = after - timing.offset
    if timing.start is not None:
        since = max(since, timing.start - _MICROSECOND)
    for plain in _plain_times(timing, since):
        time = round(plain + timing.offset, 6)
        if timing.end is not None and time > timing.end:
            return
        if time > after:
            yield time


def _plain_times(timing: Timing, after: float) -> Iterator[float]:
    """As `times`, without start, end and offset."""
    if timing.every is not None:
        near = max(0, int((after - _first(timing)) / timing.every) - 1)
        for number in count(near):
            if (time := _nth(timing, number)) > after:
                yield time
    elif timing.ical is not None:
        clock, recurrence = zone(timing.time_zone), _recurrence(timing.ical)
        yield from recurrence.times(clock, _base(timing, clock), after)
    elif timing.cron is not None:
        from cronsim import CronSim  # few commands use it

        last, clock = after, zone(timing.time_zone)
        for moment in CronSim(timing.cron, datetime.fromtimestamp(after, clock)):
            time = moment.timestamp()
            if time > last:  # within a repeated hour it begins in the first one
                yield time
                last = time


def _first(timing: Timing) -> float:
    """The first time of an interval, without its offset."""
    assert timing.every is not None
    return timing.start if timing.start is not None else timing.since + timing.every


def _nth(timing: Timing, number: int) -> float:
    assert timing.every is not None
    return round(_first(timing) + number * timing.every, 6)


def _base(timing: Timing, clock: tzinfo) -> datetime:
    """Where a recurrence without DTSTART starts, on its clock."""
    if timing.start is not None:
        return datetime.fromtimestamp(timing.start, clock).replace(tzinfo=None, microsecond=0)
    base = datetime.fromtimestamp(timing.since, clock)
    return datetime(base.year, base.month, base.day)


@lru_cache(100)
def _recurrence(text: str) -> Recurrence:
    found = read_recurrence(text, _is_zone)
    assert isinstance(found, Recurrence), found  # it was checked
    return found


def _last(timing: Timing, next_at: float, now: float) -> float:
    """The last time up to now. next_at: a time up to now."""
    if timing.end is not None:
        now = max(next_at, min(now, timing.end))
    if timing.every is not None:
        number = int((now - timing.offset - _first(timing)) / timing.every) + 1
        nth = (round(_nth(timing, n) + timing.offset, 6) for n in count(number, -1))
        return next(time for time in nth if time <= now)
    for span in _SPANS:
        start = max(next_at, now - span)
        found = next_at
        for found in takewhile(lambda time: time <= now, times(timing, start)):  # noqa: B007
            pass
        if found > next_at or start == next_at:
            return found
    return next_at


def settled(timing: Timing, now: float, draw: float) -> Timing:
    """A timing whose times are set now. draw: a random number from 0 to 1."""
    offset = float(int(draw * timing.jitter))
    time_zone = timing.time_zone
    if timing.ical is not None:
        time_zone = _recurrence(timing.ical).time_zone or time_zone
    return replace(timing, since=float(int(now)), offset=offset, time_zone=time_zone)


def problems_of(timing: Timing, *, by_events: bool = False) -> list[Problem]:
    """What is wrong with it. by_events: whether events start the schedule's runs."""
    problems: list[Problem] = []
    kinds = [name for name in KINDS if getattr(timing, name) is not None]
    if not kinds and not by_events:
        hint = 'cron, such as "0 3 * * *", every, such as 6h, or ical, such as FREQ=WEEKLY'
        problems.append(Problem("", "a schedule needs a time, or an event", hint))
    if len(kinds) + by_events > 1:
        named = " and ".join([*kinds, *["an event"] * by_events])
        problems.append(Problem("", f"a schedule has {named}", "leave all but one of them out"))
    if timing.every is not None and not _SHORTEST <= timing.every <= _LONGEST:
        problems.append(_not_between("every", timing.every))
    if not _SHORTEST <= timing.start_within <= _LONGEST:
        problems.append(_not_between("start_within", timing.start_within))
    ranges = [*_range_problems(timing)]
    problems += ranges
    if timing.cron is not None and (cron := _cron_problem(timing.cron)) is not None:
        problems.append(cron)
    if (found := _zone_problem(timing.time_zone)) is not None:
        problems.append(found)  # times of a recurrence are those of a zone: it is not looked at
    elif timing.ical is not None:
        # no time can be calculated from a start outside the calendar
        given = replace(timing, start=None, end=None) if ranges else timing
        if (ical := _ical_problem(given)) is not None:
            problems.append(ical)
    if not problems and not by_events and next(times(timing, -1.0), None) is None:
        problems.append(Problem("end", "no time is between start and end", "change one of them"))
    return problems


def _range_problems(timing: Timing) -> Iterator[Problem]:
    for name in ("start", "end"):
        at = getattr(timing, name)
        if at is not None and not 0 <= at <= _LATEST:
            yield Problem(name, "must be between the years 1970 and 9000")
    if timing.start is not None and timing.end is not None and timing.end < timing.start:
        yield Problem("end", "is before start", "change one of them")
    most = _LONGEST if timing.every is None else timing.every
    if not 0.0 <= timing.jitter <= most:
        yield Problem("jitter", f"must be from 0s to {format_duration(most)}")


def _ical_problem(timing: Timing) -> Problem | None:
    assert timing.ical is not None
    found = read_recurrence(timing.ical, _is_zone)
    if isinstance(found, Problem):
        return found
    named, given = found.time_zone, timing.time_zone
    if named is not None and given not in ("UTC", named):
        text = f"is of {named}, and the schedule's time zone is {given}"
        return Problem("ical", text, "name one of them")
    plain = replace(timing, start=timing.start, end=None, time_zone=named or given)
    if next(times(plain, -1.0), None) is None:
        text = f"{short(timing.ical)} does not happen in the next years"
        return Problem("ical", text, "change the rule")
    return None


def _is_zone(name: str) -> bool:
    return _zone_problem(name) is None


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
