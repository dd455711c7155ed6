"""Recurrences of iCalendar: their times, compared with a slow model, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import Problem
from muster.lifecycle.recurrence import Recurrence, read_recurrence

ROME, LORD_HOWE = ZoneInfo("Europe/Rome"), ZoneInfo("Australia/Lord_Howe")
#: When the clocks of Rome change: at 1:00 UTC.
SPRING, AUTUMN = datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ZONES = {"UTC", "Europe/Rome", "America/New_York"}


def read(text: str) -> Recurrence:
    found = read_recurrence(text, ZONES.__contains__)
    assert isinstance(found, Recurrence), found
    return found


def problem(text: str) -> str:
    found = read_recurrence(text, ZONES.__contains__)
    assert isinstance(found, Problem), found
    return str(found)


def clock(text: str, after: datetime, count: int, zone: tzinfo = ROME) -> list[str]:
    """The next times, in UTC."""
    base = datetime(2026, 1, 1)
    found = islice(read(text).times(zone, base, after.timestamp()), count)
    return [f"{datetime.fromtimestamp(each, UTC):%d %H:%M}" for each in found]


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("FREQ=DAILY;BYHOUR=9", SPRING - DAY, ["28 08:00", "29 07:00", "30 07:00"]),
        # 2:30 does not exist on the 29th: the offset before the change counts (RFC 5545, 3.3.5)
        ("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", SPRING - DAY, ["28 01:30", "29 01:30", "30 00:30"]),
        # 2:30 exists twice on the 25th: the first one counts
        ("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", AUTUMN - DAY, ["25 00:30", "26 01:30", "27 01:30"]),
        ("RRULE:FREQ=WEEKLY;BYDAY=MO,TH;BYHOUR=9", SPRING, ["30 07:00", "02 07:00", "06 07:00"]),
        ("FREQ=MONTHLY;BYDAY=-1FR", SPRING, ["23 22:00", "28 22:00", "25 22:00"]),
        ("FREQ=MONTHLY;BYMONTHDAY=31", SPRING, ["30 22:00", "30 22:00", "30 22:00", "30 22:00"]),
        ("FREQ=DAILY;COUNT=90;BYHOUR=12", SPRING, ["29 10:00", "30 10:00", "31 10:00"]),
        ("FREQ=DAILY;UNTIL=20260330T101500Z;BYHOUR=12", SPRING, ["29 10:00", "30 10:00"]),
        ("FREQ=DAILY;UNTIL=20260330;BYHOUR=23", SPRING, ["29 21:00", "30 21:00"]),
        (
            "DTSTART;TZID=Europe/Rome:20260301T120000\nRRULE:FREQ=DAILY;INTERVAL=14",
            SPRING,
            ["29 10:00", "12 10:00"],
        ),
        ("DTSTART:20260330T120000Z RRULE:FREQ=DAILY", SPRING, ["30 12:00", "31 12:00"]),
        (
            "DTSTART:20260329T090000 RRULE:FREQ=DAILY EXDATE:20260330T090000,20260401T090000",
            SPRING,
            ["29 07:00", "31 07:00", "02 07:00"],
        ),
        (
            "dtstart:20260329T090000\\nrrule:freq=hourly;interval=5",
            SPRING,
            ["29 07:00", "29 12:00"],
        ),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", SPRING, ["28 23:00"]),
    ],
)
def test_times(text: str, after: datetime, expected: list[str]) -> None:
    assert clock(text, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("DTSTART;TZID=Europe/Rome:20260101T090000 RRULE:FREQ=DAILY", "Europe/Rome"),
        ("DTSTART:20260101T090000Z RRULE:FREQ=DAILY", "UTC"),
        ("DTSTART:20260101T090000 RRULE:FREQ=DAILY", None),
        ("DTSTART;VALUE=DATE:20260101 RRULE:FREQ=DAILY", None),
    ],
)
def test_the_zone_that_is_named(text: str, zone: str | None) -> None:
    assert read(text).time_zone == zone


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "'' has no rule"),
        ("DAILY", "'DAILY' is neither DTSTART, RRULE nor EXDATE"),
        ("FREQ=DAILY FREQ=WEEKLY", "has two rules"),
        ("FREQ=SECONDLY", "FREQ must be one of MINUTELY, HOURLY, DAILY, WEEKLY, MONTHLY, YEARLY"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR must be from 0 to 23, not '24'"),
        ("FREQ=DAILY;BYMONTHDAY=0", "BYMONTHDAY must be from 1 to 31, not '0'"),
        ("FREQ=DAILY;BYDAY=1MO", "a day with a number needs FREQ=MONTHLY or YEARLY"),
        ("FREQ=DAILY;BYDAY=MON", "BYDAY must have days such as MO or -1FR, not 'MON'"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY is not possible with FREQ=WEEKLY"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20260101", "has COUNT and UNTIL"),
        ("FREQ=DAILY;COUNT=10001", "COUNT must be from 1 to 10000"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL must be from 1 to 10000"),
        ("FREQ=DAILY;BYHOUR=1;BYHOUR=2", "has BYHOUR twice"),
        ("FREQ=DAILY;COLOR=RED", "'COLOR=RED' is not a part of a rule"),
        ("FREQ=DAILY;UNTIL=tomorrow", "'TOMORROW' is not a date such as 20260105T090000"),
        ("DTSTART:20260231T000000 RRULE:FREQ=DAILY", "'20260231T000000' is not a date"),
        ("DTSTART;TZID=Mars/Base:20260101 RRULE:FREQ=DAILY", "TZID 'Mars/Base' is not a time zone"),
        (
            "DTSTART;TZID=Europe/Rome:20260101T000000 RRULE:FREQ=DAILY EXDATE:20260102T000000Z",
            "names 2 time zones: Europe/Rome, UTC",
        ),
        (f"FREQ=DAILY;BYHOUR={'1,' * 1000}1", "the most are 2000"),
    ],
)
def test_problems(text: str, expected: str) -> None:
    assert expected in problem(text)


@given(
    st.text(max_size=80)
    | st.text(alphabet="FREQDAILYWKMONTHBSTPUC=;:,+-0123456789TZ \n\x00\\", max_size=80)
    | st.lists(
        st.sampled_from(
            [
                *("FREQ=DAILY", "FREQ=YEARLY", "FREQ=MINUTELY", "BYDAY=53MO", "BYSETPOS=-366"),
                *("BYWEEKNO=53", "BYYEARDAY=366", "BYMONTHDAY=-31", "BYMONTH=2", "INTERVAL=9999"),
                *("BYHOUR=0", "BYMINUTE=59", "COUNT=1", "UNTIL=19700101", "WKST=SU", "BYSECOND=7"),
            ]
        ),
        unique=True,
        max_size=6,
    ).map(";".join)
)
@settings(deadline=None)
def test_no_text_of_a_user_is_a_defect(text: str) -> None:
    found = read_recurrence(text, ZONES.__contains__)
    if isinstance(found, Recurrence):
        next(found.times(UTC, datetime(2026, 1, 1), AUTUMN.timestamp()), None)


def test_a_rule_that_began_long_ago_begins_near_the_present() -> None:
    """It would take minutes to count from 1970."""
    text = "DTSTART:19700101T000007 RRULE:FREQ=MINUTELY;INTERVAL=7"
    first, second = islice(read(text).times(UTC, datetime(1970, 1, 1), SPRING.timestamp()), 2)
    assert (first - 7) % 420 == 0
    assert (first - SPRING.timestamp() < 420, second - first) == (True, 420.0)


def test_a_rule_that_never_happens_ends() -> None:
    for text in ("FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30", "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=31"):
        assert [*read(text).times(UTC, datetime(2026, 1, 1), SPRING.timestamp())] == []


# --- a slow model: each minute of the clock


def moment_of(local: datetime, zone: tzinfo) -> float:
    """When the clock shows a local time first; one that it skips, by the offset before."""
    offsets = {(local + way).replace(tzinfo=zone).utcoffset() for way in (-DAY, DAY)}
    found = []
    for offset in offsets:
        assert offset is not None
        at = (local - offset).replace(tzinfo=UTC)
        if at.astimezone(zone).replace(tzinfo=None) == local:
            found.append(at.timestamp())
    if found:
        return min(found)
    before = (local - DAY).replace(tzinfo=zone).utcoffset()
    assert before is not None
    return (local - before).replace(tzinfo=UTC).timestamp()


#: Frequency -> the number of the period that a local time is in.
PERIODS: dict[str, Callable[[datetime], int]] = {
    "MINUTELY": lambda at: at.toordinal() * 1440 + at.hour * 60 + at.minute,
    "HOURLY": lambda at: at.toordinal() * 24 + at.hour,
    "DAILY": lambda at: at.toordinal(),
    "WEEKLY": lambda at: (at.toordinal() - 1) // 7,  # the first of January of year 1 was a Monday
    "MONTHLY": lambda at: at.year * 12 + at.month,
}
FINER = {"MINUTELY": 0, "HOURLY": 1, "DAILY": 2, "WEEKLY": 2, "MONTHLY": 2}


def slow_times(rule: dict[str, Any], start: datetime, end: datetime, zone: tzinfo) -> list[float]:
    """The times of a rule whose DTSTART is `start`, up to the local time `end`."""
    frequency, period = rule["FREQ"], PERIODS[rule["FREQ"]]
    minutes = rule.get("BYMINUTE") or ([start.minute] if FINER[frequency] >= 1 else range(60))
    hours = rule.get("BYHOUR") or ([start.hour] if FINER[frequency] >= 2 else range(24))
    days = rule.get("BYDAY")
    if days is None and frequency == "WEEKLY":
        days = [start.weekday()]
    dates = [start.day] if frequency == "MONTHLY" and days is None else None

    def minutes_of_clock() -> Iterator[datetime]:
        at = start
        while at <= end:
            yield at
            at += timedelta(minutes=1)

    found = {
        moment_of(at, zone)
        for at in minutes_of_clock()
        if at.minute in minutes
        and at.hour in hours
        and (days is None or at.weekday() in days)
        and (dates is None or at.day in dates)
        and (period(at) - period(start)) % rule.get("INTERVAL", 1) == 0
    }
    return sorted(found)


def rule_text(rule: dict[str, Any], start: datetime) -> str:
    names = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
    parts = [f"FREQ={rule['FREQ']}"]
    for name, value in rule.items():
        if name == "BYDAY":
            parts.append(f"BYDAY={','.join(names[day] for day in value)}")
        elif name == "INTERVAL":
            parts.append(f"INTERVAL={value}")
        elif name != "FREQ":
            parts.append(f"{name}={','.join(map(str, value))}")
    return f"DTSTART:{start:%Y%m%dT%H%M%S} RRULE:{';'.join(parts)}"


RULES = st.fixed_dictionaries(
    {"FREQ": st.sampled_from([*PERIODS])},
    optional={
        "INTERVAL": st.integers(1, 5),
        "BYMINUTE": st.lists(st.sampled_from([0, 7, 30, 59]), min_size=1, unique=True),
        "BYHOUR": st.lists(st.sampled_from([0, 1, 2, 3, 12]), min_size=1, unique=True),
        "BYDAY": st.lists(st.integers(0, 6), min_size=1, unique=True),
    },
)


@given(RULES, st.sampled_from([ROME, LORD_HOWE]), st.integers(0, 6), st.integers(0, 5000))
@settings(deadline=None, max_examples=20)
def test_rules_do_what_a_slow_model_says(
    rule: dict[str, Any], zone: tzinfo, change: int, into: int
) -> None:
    """Nine days around each change of the clock, from any moment in them."""
    changes = [(2026, 3, 25), (2026, 10, 21), (2026, 4, 1), (2026, 9, 30)]
    start = datetime(*changes[change % 4], 1, 30)
    end = start + timedelta(days=9)
    expected = slow_times(rule, start, end + DAY, zone)
    after = start.replace(tzinfo=zone).timestamp() + 60.0 * into
    last = end.replace(tzinfo=zone).timestamp()
    made = read(rule_text(rule, start)).times(zone, start, after)
    found = [*takewhile(lambda at: at <= last, made)]
    assert found == [at for at in expected if after < at <= last]
    assert all(one < other for one, other in pairwise(found))


@pytest.mark.parametrize(
    "rule",
    [
        {"FREQ": "DAILY", "BYHOUR": [2], "BYMINUTE": [30]},
        {"FREQ": "HOURLY", "INTERVAL": 5},
        {"FREQ": "WEEKLY", "BYDAY": [0, 6], "BYHOUR": [1, 2, 3]},
    ],
)
def test_a_year_with_both_changes(rule: dict[str, Any]) -> None:
    start = datetime(2026, 1, 15, 2, 30)
    expected = slow_times(rule, start, start + 366 * DAY, ROME)
    after = start.replace(tzinfo=ROME).timestamp() - 1
    last = (start + 365 * DAY).replace(tzinfo=ROME).timestamp()
    made = read(rule_text(rule, start)).times(ROME, start, after)
    assert [*takewhile(lambda at: at <= last, made)] == [at for at in expected if at <= last]
