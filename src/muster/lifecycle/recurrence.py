"""Recurrences of iCalendar (RFC 5545): a start, one rule, and dates that are left out. Pure.

The rule is computed on the clock of a time zone. As section 3.3.5 says, a local time that the
clock skips is taken with the offset before the change, and of one that the clock repeats the first
counts. Without DTSTART, a rule starts at midnight, so that `FREQ=DAILY;BYHOUR=9` is each day at
9:00.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from heapq import heappop, heappush
from typing import Any

from msgspec import Struct

from muster.errors import Problem
from muster.lifecycle.recurrence_rule import Rule, WeekDay
from muster.spec.wording import short

#: A local time that the clock skips may be later than the next ones: no time zone's clock changes
#: by more.
_LONGEST_CHANGE = timedelta(hours=3)
#: Occurrences that are counted from the first: each look computes all of them.
_MOST_COUNT = 10_000
_MOST_INTERVAL = 10_000
_LONGEST_TEXT = 2000
_FREQUENCIES = ("MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
#: Part of a rule -> the field of `Rule`, the least and the greatest number, and whether negative
#: ones count from the end.
_NUMBERS: Mapping[str, tuple[str, int, int, bool]] = {
    "BYMONTH": ("months", 1, 12, False),
    "BYMONTHDAY": ("month_days", 1, 31, True),
    "BYYEARDAY": ("year_days", 1, 366, True),
    "BYWEEKNO": ("weeks", 1, 53, True),
    "BYHOUR": ("hours", 0, 23, False),
    "BYMINUTE": ("minutes", 0, 59, False),
    "BYSECOND": ("seconds", 0, 59, False),
    "BYSETPOS": ("positions", 1, 366, True),
}
#: Parts that RFC 5545 allows with some frequencies only; BYSETPOS chooses nothing within a minute.
_ONLY_WITH = {
    "BYSETPOS": ("DAILY", "WEEKLY", "MONTHLY", "YEARLY"),
    "BYWEEKNO": ("YEARLY",),
    "BYYEARDAY": ("MINUTELY", "HOURLY", "YEARLY"),
    "BYMONTHDAY": ("MINUTELY", "HOURLY", "DAILY", "MONTHLY", "YEARLY"),
}
_HINT = (
    'a rule of RFC 5545, such as "FREQ=WEEKLY;BYDAY=MO,TH;BYHOUR=9", after an optional '
    '"DTSTART;TZID=Europe/Rome:20260105T090000"'
)
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?", re.ASCII)


class _Wrong(Exception):  # noqa: N818
    """What is wrong with a text."""


class Moment(Struct, frozen=True):
    """A date with a time, as a recurrence gives it."""

    local: datetime
    """Without a zone."""
    utc: bool
    """Whether it is of UTC, rather than of the recurrence's zone."""
    whole_day: bool
    """Whether it is a date alone; `local` is its midnight."""

    def epoch(self, zone: tzinfo) -> float:
        """Epoch seconds. zone: of the recurrence."""
        return _epoch(self.local, UTC if self.utc else zone)


class Recurrence(Struct, frozen=True):
    """A recurrence. Its texts were checked."""

    rule: Rule
    start: Moment | None = None
    """DTSTART."""
    until: Moment | None = None
    without: tuple[Moment, ...] = ()
    """EXDATE."""
    time_zone: str | None = None
    """Which the texts name: that of TZID, or UTC; None if they name none."""

    def times(self, zone: tzinfo, base: datetime, after: float) -> Iterator[float]:
        """The times after a moment, in order (epoch seconds). zone: whose clock it follows. base:
        where it starts without DTSTART, on that clock."""
        left_out = {moment.epoch(zone) for moment in self.without}
        until = None
        if self.until is not None:
            day = timedelta(days=1, microseconds=-1) if self.until.whole_day else timedelta()
            until = self.until.epoch(zone) + day.total_seconds()
        first = base
        if self.start is not None:
            first = _local(self.start.epoch(zone), zone)
        last, waiting = after, list[tuple[float, datetime]]()

        def released(before: datetime | None) -> Iterator[float]:
            nonlocal last
            while waiting and (before is None or waiting[0][1] <= before):
                time = heappop(waiting)[0]
                if time > last and time not in left_out:
                    last = time
                    yield time

        near = _local(after, zone) - _LONGEST_CHANGE
        for local in self.rule.occurrences(first, near):
            if local < near:
                continue
            yield from released(local - _LONGEST_CHANGE)
            time = _epoch(local, zone)
            if until is not None and time > until + _LONGEST_CHANGE.total_seconds():
                break
            if until is None or time <= until:
                heappush(waiting, (time, local))
        yield from released(None)


def _local(at: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None, microsecond=0, fold=0)


def _epoch(local: datetime, zone: tzinfo) -> float:
    return local.replace(tzinfo=zone).timestamp()


# --- reading


def read_recurrence(text: str, has_zone: Callable[[str], bool]) -> Recurrence | Problem:
    """A recurrence, or what is wrong with it. text: DTSTART, RRULE and EXDATE, with white space
    between them. has_zone: whether a name is that of a time zone."""
    if len(text) > _LONGEST_TEXT:
        text = f"has {len(text)} characters; the most are {_LONGEST_TEXT}"
        return Problem("ical", text, _HINT)
    try:
        return _read(text, has_zone)
    except _Wrong as error:
        return Problem("ical", str(error), _HINT)


def _read(text: str, has_zone: Callable[[str], bool]) -> Recurrence:
    rule: tuple[Rule, Moment | None] | None = None
    start: Moment | None = None
    without: list[Moment] = []
    zones: set[str] = set()
    unfolded = re.sub(r"\r?\n[ \t]", "", text)
    for word in unfolded.replace("\\n", "\n").split():
        name, parameters, value = _split(word)
        if name == "RRULE":
            if rule is not None:
                raise _Wrong("has two rules; give each a schedule of its own")
            rule = _read_rule(value)
            continue
        moments = [_read_moment(part) for part in value.split(",")]
        if name == "DTSTART":
            if start is not None or len(moments) > 1:
                raise _Wrong("has two starts (DTSTART)")
            start = moments[0]
        else:
            without += moments
        zones |= _zones_of(name, parameters, moments, has_zone)
    if rule is None:
        raise _Wrong(f"{short(text)} has no rule")
    if len(zones) > 1:
        raise _Wrong(f"names {len(zones)} time zones: {', '.join(sorted(zones))}")
    zone = next(iter(zones), None)
    return Recurrence(rule[0], start, rule[1], tuple(without), zone)


def _split(word: str) -> tuple[str, str, str]:
    """The name, the parameters and the value of a property; a rule may stand alone."""
    if word.upper().startswith("FREQ="):
        return "RRULE", "", word
    head, colon, value = word.partition(":")
    name, _, parameters = head.partition(";")
    name = name.upper()
    if not colon or name not in ("DTSTART", "RRULE", "EXDATE"):
        raise _Wrong(f"{short(word)} is neither DTSTART, RRULE nor EXDATE")
    return name, parameters, value


def _zones_of(
    name: str, parameters: str, moments: list[Moment], has_zone: Callable[[str], bool]
) -> set[str]:
    zones = {"UTC"} if any(moment.utc for moment in moments) else set[str]()
    for parameter in filter(None, parameters.split(";")):
        key, _, value = parameter.partition("=")
        if key.upper() == "VALUE" and value.upper() in ("DATE", "DATE-TIME"):
            continue
        if key.upper() != "TZID":
            raise _Wrong(f"{name} has the unknown parameter {short(parameter)}")
        if not has_zone(value):
            raise _Wrong(f"TZID {short(value)} is not a time zone")
        zones.add(value)
    return zones


def _read_moment(text: str) -> Moment:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise _Wrong(f"{short(text)} is not a date such as 20260105T090000")
    year, month, day, *clock = found.groups()
    try:
        local = datetime(*(int(part or 0) for part in (year, month, day, *clock[:3])))  # type: ignore[arg-type]
    except ValueError:
        raise _Wrong(f"{short(text)} is not a date") from None
    if not 1970 <= local.year <= 9000:
        raise _Wrong(f"{short(text)} is not between the years 1970 and 9000")
    return Moment(local, utc=clock[3] == "Z", whole_day=clock[0] is None)


def _read_rule(text: str) -> tuple[Rule, Moment | None]:
    """The rule, and UNTIL."""
    given: dict[str, str] = {}
    for part in text.upper().rstrip(";").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise _Wrong(f"{short(part)} is not a part of a rule")
        if name in given:
            raise _Wrong(f"has {name} twice")
        given[name] = value
    frequency = given.pop("FREQ", "")
    if frequency not in _FREQUENCIES:
        raise _Wrong(f"FREQ must be one of {', '.join(_FREQUENCIES)}, not {short(frequency)}")
    if "COUNT" in given and "UNTIL" in given:
        raise _Wrong("has COUNT and UNTIL; leave one of them out")
    interval = _number("INTERVAL", given.pop("INTERVAL", "1"), 1, _MOST_INTERVAL)
    count, until = given.pop("COUNT", None), given.pop("UNTIL", None)
    parts: dict[str, Any] = {}
    for name, value in given.items():
        if frequency not in _ONLY_WITH.get(name, _FREQUENCIES):
            raise _Wrong(f"{name} is not possible with FREQ={frequency}")
        if name in _NUMBERS:
            keyword, least, most, signed = _NUMBERS[name]
            numbers = {_number(name, each, least, most, signed=signed) for each in value.split(",")}
            parts[keyword] = sorted(numbers)
        elif name == "BYDAY":
            parts["days"] = [_day(each, frequency) for each in value.split(",")]
        elif name == "WKST" and value in _DAYS:
            parts["week_start"] = _DAYS.index(value)
        else:
            raise _Wrong(f"{short(f'{name}={value}')} is not a part of a rule")
    number = None if count is None else _number("COUNT", count, 1, _MOST_COUNT)
    rule = Rule(frequency, interval, number, **parts)
    return rule, None if until is None else _read_moment(until)


def _number(name: str, text: str, least: int, most: int, *, signed: bool = False) -> int:
    found = re.fullmatch(r"([+-]?)(\d{1,5})", text, re.ASCII)
    if found is not None and least <= int(found[2]) <= most and (signed or not found[1]):
        return int(text)
    raise _Wrong(f"{name} must be from {least} to {most}, not {short(text)}")


def _day(text: str, frequency: str) -> WeekDay:
    found = re.fullmatch(rf"([+-]?\d{{1,2}})?({'|'.join(_DAYS)})", text, re.ASCII)
    if found is None:
        raise _Wrong(f"BYDAY must have days such as MO or -1FR, not {short(text)}")
    if found[1] is None:
        return WeekDay(_DAYS.index(found[2]))
    if frequency not in ("MONTHLY", "YEARLY"):
        raise _Wrong(f"{short(text)}: a day with a number needs FREQ=MONTHLY or YEARLY")
    number = int(found[1])
    if not 1 <= abs(number) <= 53:
        raise _Wrong(f"BYDAY must have numbers from 1 to 53, not {short(text)}")
    return WeekDay(_DAYS.index(found[2]), number)
