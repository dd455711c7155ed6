"""Rules of iCalendar, compared with those of dateutil where both follow RFC 5545."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

import pytest
from dateutil import rrule
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.lifecycle.recurrence_rule import Rule, WeekDay

#: Field of `Rule` -> parameter of dateutil.
NAMES = {
    "months": "bymonth",
    "month_days": "bymonthday",
    "year_days": "byyearday",
    "hours": "byhour",
    "minutes": "byminute",
    "positions": "bysetpos",
}
FIRST = datetime(2026, 1, 15, 9, 30)
#: Nothing is compared beyond.
END = datetime(2028, 6, 1)

SECOND_WEEK = FIRST + timedelta(days=7)


def numbers(*values: int) -> Any:
    return st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)


def rules(frequency: str) -> Any:
    parts = {
        "interval": st.integers(1, 5),
        "hours": numbers(0, 2, 9, 23),
        "minutes": numbers(0, 30, 59),
        "months": numbers(1, 2, 3, 6, 12),
        "week_start": st.integers(0, 6),
    }
    if frequency in ("MONTHLY", "YEARLY"):
        parts["month_days"] = numbers(1, 15, 31, -1, -3)
        place = st.tuples(st.integers(0, 6), st.sampled_from([1, 2, 5, -1]))
        days = st.lists(place, min_size=1, max_size=2)
        parts["days"] = days.map(lambda every: [WeekDay(*one) for one in every])
    else:
        parts["days"] = numbers(*range(7)).map(lambda every: [WeekDay(day) for day in every])
    if frequency not in ("MINUTELY", "HOURLY"):
        parts["positions"] = numbers(1, 2, -1)
    if frequency == "YEARLY":
        parts["year_days"] = numbers(1, 60, 200, 366, -1)
    return st.fixed_dictionaries({"frequency": st.just(frequency)}, optional=parts)


def of_dateutil(given: dict[str, Any], count: int) -> list[datetime]:
    """The first occurrences."""
    more = {NAMES[name]: value for name, value in given.items() if name in NAMES}
    if "days" in given:
        more["byweekday"] = [rrule.weekday(one.day, one.number or None) for one in given["days"]]
    rule = rrule.rrule(
        getattr(rrule, given["frequency"]),
        dtstart=FIRST,
        interval=given.get("interval", 1),
        wkst=given.get("week_start", 0),
        count=count,
        **more,
    )
    return [*rule]


@pytest.mark.parametrize(
    "frequency", ["MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"]
)
def test_rules_are_those_of_dateutil(frequency: str) -> None:
    @given(rules(frequency))
    @settings(deadline=None, max_examples=40)
    def compare(parts: dict[str, Any]) -> None:
        end = END
        if frequency == "MINUTELY":  # dateutil looks at each minute
            end = FIRST + timedelta(days=8)
            parts.pop("months", None)
        ours = [*takewhile(lambda at: at < end, Rule(**parts).occurrences(FIRST, FIRST))][:300]
        if not ours:  # dateutil looks for what never happens up to the year 9999
            return
        theirs = of_dateutil(parts, len(ours))
        if frequency == "WEEKLY" and "positions" in parts:
            # dateutil counts positions from DTSTART in its week, RFC 5545 from the week's start
            theirs, ours = ([at for at in of if at >= SECOND_WEEK] for of in (theirs, ours))
            shared = min(len(theirs), len(ours))
            theirs, ours = theirs[:shared], ours[:shared]
        assert theirs == ours

    compare()


@pytest.mark.parametrize(
    "frequency", ["MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"]
)
@given(data=st.data(), days=st.integers(0, 900))
@settings(deadline=None, max_examples=30)
def test_a_later_beginning_changes_nothing(frequency: str, data: st.DataObject, days: int) -> None:
    rule = Rule(**data.draw(rules(frequency)))
    near = FIRST + timedelta(days=days)
    every = [at for at in islice(rule.occurrences(FIRST, FIRST), 300) if at >= near]
    from_there = (at for at in rule.occurrences(FIRST, near) if at >= near)
    assert [*islice(from_there, len(every))] == every


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule("YEARLY", weeks=[1], days=[WeekDay(0)]), ["2027-01-04", "2028-01-03"]),
        (Rule("YEARLY", weeks=[-1], days=[WeekDay(0)]), ["2026-12-28", "2027-12-27"]),
        (Rule("YEARLY", weeks=[20]), ["2026-05-14", "2027-05-20"]),
        (Rule("YEARLY", year_days=[-1]), ["2026-12-31", "2027-12-31"]),
        (Rule("YEARLY", months=[2], month_days=[29]), ["2028-02-29", "2032-02-29"]),
        (Rule("MONTHLY", days=[WeekDay(4, -1)], months=[1, 2]), ["2026-01-30", "2026-02-27"]),
        (Rule("MONTHLY", days=[WeekDay(d) for d in range(5)], positions=[-1]), ["2026-01-30"]),
        (Rule("YEARLY", days=[WeekDay(0, -1)]), ["2026-12-28", "2027-12-27", "2028-12-25"]),
        (Rule("MINUTELY", months=[2], month_days=[29], hours=[0], minutes=[0]), ["2028-02-29"]),
        (Rule("YEARLY", interval=9999), ["2026-01-15"]),
        (
            Rule("YEARLY", days=[WeekDay(0), WeekDay(1, 1)], months=[2]),
            ["2026-02-02", "2026-02-03"],
        ),
    ],
)
def test_days_of_years(rule: Rule, expected: list[str]) -> None:
    found = islice(rule.occurrences(FIRST, FIRST), len(expected))
    assert [f"{at:%Y-%m-%d}" for at in found] == expected


@pytest.mark.parametrize("interval", [1, 7, 59, 1439, 1440, 1441, 9999])
def test_the_last_of_counted_minutes(interval: int) -> None:
    rule = Rule("MINUTELY", interval, count=10_000)
    begin = datetime(1970, 1, 1, 0, 17)
    *_, last = rule.occurrences(begin, datetime(2165, 1, 1))
    assert last == begin + 9_999 * timedelta(minutes=interval)


def test_positions_among_all_seconds_of_years() -> None:
    clock = {"hours": range(24), "minutes": range(60), "seconds": range(60)}
    days = [WeekDay(day) for day in range(7)]
    rule = Rule("YEARLY", days=days, positions=[1, 366, -1], **clock)
    found = [*islice(rule.occurrences(FIRST, FIRST), 4)]
    assert found == [
        datetime(2026, 12, 31, 23, 59, 59),
        datetime(2027, 1, 1),
        datetime(2027, 1, 1, 0, 6, 5),
        datetime(2027, 12, 31, 23, 59, 59),
    ]


def test_all_seconds_of_years_begin_late() -> None:
    clock = {"hours": range(24), "minutes": range(60), "seconds": range(60)}
    rule = Rule("YEARLY", days=[WeekDay(day) for day in range(7)], **clock)
    near = datetime(2030, 12, 30, 5)
    assert next(at for at in rule.occurrences(FIRST, near) if at >= near) == near
