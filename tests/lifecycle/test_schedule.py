"""Which times of a schedule are due, and what is done about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.lifecycle.schedule import (
    MOST_COUNTED,
    Action,
    Missed,
    Overlap,
    Running,
    Timing,
    due,
    problems_of,
    times,
)

HOURLY = Timing(cron="0 * * * *")
EVERY = Timing(every=60.0, since=1000.0)
RUN = Running("r", "train-1", "IN_PROGRESS")
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()
#: When the clocks of Rome change: at 1:00 UTC.
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)


def clock(timing: Timing, after: datetime, count: int = 4) -> list[str]:
    """The next times, in UTC."""
    found = islice(times(timing, after.timestamp()), count)
    return [f"{datetime.fromtimestamp(each, UTC):%d %H:%M}" for each in found]


# --- which times


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("0 3 * * *", "UTC", SPRING, ["29 03:00", "30 03:00", "31 03:00"]),
        ("0 3 * * *", "Europe/Rome", SPRING, ["29 01:00", "30 01:00", "31 01:00"]),
        # 2:30 does not exist on the 29th
        ("30 2 * * *", "Europe/Rome", SPRING, ["29 01:00", "30 00:30", "31 00:30"]),
        # both are due when the clock has skipped them: once
        ("0,30 2 * * *", "Europe/Rome", SPRING, ["29 01:00", "30 00:00", "30 00:30"]),
        # 2:30 exists twice on the 25th
        ("30 2 * * *", "Europe/Rome", AUTUMN, ["25 00:30", "26 01:30", "27 01:30"]),
        ("30 2 * * *", "Europe/Rome", AUTUMN + timedelta(minutes=70), ["26 01:30", "27 01:30"]),
        # each hour follows the clock
        ("0 * * * *", "Europe/Rome", SPRING, ["29 01:00", "29 02:00", "29 03:00"]),
        ("0 * * * *", "Europe/Rome", AUTUMN, ["25 01:00", "25 02:00", "25 03:00"]),
        ("0 0 1 * mon", "UTC", SPRING, ["30 00:00", "01 00:00", "06 00:00"]),
        ("*/20 9-10 * * 1-5", "UTC", SPRING, ["30 09:00", "30 09:20", "30 09:40", "30 10:00"]),
    ],
)
def test_times_of_cron(cron: str, zone: str, after: datetime, expected: list[str]) -> None:
    timing = Timing(cron=cron, time_zone=zone)
    assert problems_of(timing) == []
    assert clock(timing, after, len(expected)) == expected


def test_intervals_count_from_when_they_were_set() -> None:
    assert [*islice(times(EVERY, 1000.0), 3)] == [1060.0, 1120.0, 1180.0]
    assert [*islice(times(EVERY, 1059.9), 2)] == [1060.0, 1120.0]
    assert [*islice(times(EVERY, 0.0), 1)] == [1060.0]


def test_times_of_intervals_are_stored_as_they_are() -> None:
    """A time that is rounded when it is stored would be another one after it."""
    found = [*islice(times(Timing(every=1.1, since=NOON), NOON), 1000)]
    assert found == [round(time, 6) for time in found]


@pytest.mark.parametrize("zone", ["Europe/Rome", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["*/10 * * * *", "30 2 * * *", "*/20 1-3 * * *", "0,45 1,2 * * *"])
def test_times_increase_from_any_moment_of_a_repeated_hour(cron: str, zone: str) -> None:
    timing = Timing(cron=cron, time_zone=zone)
    for begin in (
        AUTUMN,
        datetime(2026, 11, 1, 5, tzinfo=UTC),
        datetime(2026, 4, 4, 14, tzinfo=UTC),
    ):
        for minutes in range(-90, 150, 5):
            after = begin.timestamp() + 60.0 * minutes
            found = [after, *islice(times(timing, after), 12)]
            assert all(one < two for one, two in pairwise(found)), (begin, minutes)


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        (Timing(), "a schedule needs either cron or every"),
        (Timing(cron="0 3 * * *", every=60.0), "a schedule has either cron or every, not both"),
        (Timing(every=0.5), "every: must be from 1s to 3650d, not 0.5s"),
        (Timing(every=60.0, start_within=0.0), "start_within: must be from 1s to 3650d, not 0s"),
        (Timing(cron="0 3 * *"), "cron: '0 3 * *' needs five fields, not 4"),
        (Timing(cron="0 0 3 * * *"), "needs five fields, not 6"),
        (Timing(cron="0 25 * * *"), "cron: '0 25 * * *': bad hour"),
        (Timing(cron="0 3 30 2 *"), "cron: '0 3 30 2 *': bad day-of-month"),
        (Timing(cron=f"{'0,' * 200}0 3 * * *"), "the most are 200"),
        (Timing(cron="0 3 * * *", time_zone="Europe"), "time_zone: 'Europe' is not a time zone"),
        (Timing(cron="0 3 * * *", time_zone="../etc/x"), "is not a time zone"),
        (Timing(cron="0 3 * * *", time_zone=""), "is not a time zone"),
    ],
)
def test_problems(timing: Timing, expected: str) -> None:
    assert expected in "\n".join(map(str, problems_of(timing)))


# --- what is done


def test_nothing_is_done_before_the_time_or_while_paused() -> None:
    assert due(HOURLY, NOON, NOON - 0.001, ()) is None
    assert due(HOURLY, None, NOON, ()) is None


def test_a_run_starts_at_its_time() -> None:
    found = due(HOURLY, NOON, NOON, ())
    assert found is not None
    assert (found.time, found.action, found.passed) == (NOON, Action.START, 0)
    assert found.next_at == NOON + 3600


@pytest.mark.parametrize(
    ("overlap", "action"),
    [
        (Overlap.ALLOW, Action.START),
        (Overlap.SKIP, Action.SKIP),
        (Overlap.REPLACE, Action.START),
    ],
)
def test_an_earlier_run_has_not_ended(overlap: Overlap, action: Action) -> None:
    found = due(replace(HOURLY, overlap=overlap), NOON, NOON, (RUN,))
    assert found is not None
    assert found.action == action
    assert found.why == ("train-1 is still IN_PROGRESS" if action == Action.SKIP else "")


@pytest.mark.parametrize(
    ("missed", "late", "action"),
    [
        (Missed.SKIP, 600.0, Action.START),
        (Missed.SKIP, 600.1, Action.MISS),
        (Missed.RUN_ONCE, 600.1, Action.START),
    ],
)
def test_a_time_that_has_passed(missed: Missed, late: float, action: Action) -> None:
    found = due(replace(HOURLY, missed=missed), NOON, NOON + late, ())
    assert found is not None
    assert (found.time, found.action, found.next_at) == (NOON, action, NOON + 3600)
    assert found.why == ("no server started it within 10m" if action == Action.MISS else "")


def test_of_several_times_the_last_one_starts_a_run() -> None:
    found = due(HOURLY, NOON, NOON + 5 * 3600 + 60, ())
    assert found is not None
    assert (found.time, found.passed, found.action) == (NOON + 5 * 3600, 5, Action.START)


@pytest.mark.parametrize("timing", [Timing(cron="* * * * *", time_zone="Europe/Rome"), EVERY])
def test_ten_years_without_a_server(timing: Timing) -> None:
    timing = replace(timing, since=NOON)
    first = next(times(timing, NOON))
    found = due(timing, first, NOON + 3650 * 86400 + 30, ())
    assert found is not None
    assert (found.time, found.passed) == (NOON + 3650 * 86400, MOST_COUNTED)


def test_a_yearly_time_after_years() -> None:
    yearly = Timing(cron="0 0 29 2 *", missed=Missed.RUN_ONCE)
    first = next(times(yearly, NOON))
    found = due(yearly, first, NOON + 15 * 366 * 86400, ())
    assert found is not None
    assert f"{datetime.fromtimestamp(found.time, UTC):%Y-%m-%d}" == "2040-02-29"
    assert found.passed == 3


TIMINGS = st.builds(
    Timing,
    cron=st.sampled_from(
        ["30 2 * * *", "*/10 * * * *", "0 2,3 * * *", "15 1-3 * * *", "0 3 * * sun"]
    ),
    time_zone=st.sampled_from(["UTC", "Europe/Rome", "America/New_York", "Australia/Lord_Howe"]),
    missed=st.sampled_from(Missed),
    overlap=st.sampled_from(Overlap),
) | st.builds(
    Timing,
    every=st.floats(1.0, 100_000.0),
    since=st.just(SPRING.timestamp()),
    missed=st.sampled_from(Missed),
)
#: Where the clock is set to, or moves to: on, back, or far ahead.
MOVES = st.lists(
    st.floats(0.0, 120.0) | st.floats(-7200.0, 7200.0) | st.floats(0.0, 40 * 86400.0), max_size=30
)


@given(
    st.text(alphabet="0123456789*/-,#LWlw monfrijan\0x", max_size=30) | st.text(max_size=30),
    st.text(max_size=20) | st.sampled_from(["UTC", "Europe", "/etc/passwd", "posixrules"]),
)
def test_no_text_of_a_user_is_a_defect(cron: str, zone: str) -> None:
    timing = Timing(cron=cron, time_zone=zone)
    if not problems_of(timing):
        next(times(timing, NOON), None)


@given(TIMINGS, st.sampled_from([SPRING, AUTUMN]), MOVES, st.booleans())
def test_no_time_is_used_twice_or_too_early(
    timing: Timing, begin: datetime, moves: list[float], running: bool
) -> None:
    now = begin.timestamp() - 3600.0
    timing = replace(timing, since=now)
    next_at = next(times(timing, now), None)
    done: list[float] = []
    counted = exact = 0
    for move in moves:
        now += move
        found = due(timing, next_at, now, (RUN,) if running else ())
        if found is None:
            assert next_at is None or next_at > now
            continue
        assert found.time <= now
        assert found.next_at is not None and found.next_at > now
        if found.action == Action.START and timing.missed == Missed.SKIP:
            assert now - found.time <= timing.start_within
        done.append(found.time)
        counted += found.passed + 1
        exact += found.passed < MOST_COUNTED
        next_at = found.next_at
    assert all(before < after for before, after in pairwise(done))
    if done and exact == len(done):  # each time up to the last one is accounted for
        since = timing.since if timing.every else begin.timestamp() - 3600.0
        expected = []
        for each in times(timing, since):
            if each > done[-1]:
                break
            expected.append(each)
        assert set(done) <= set(expected)
        assert counted == len(expected)
