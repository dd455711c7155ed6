"""Which times of a schedule are due, and what is done about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
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
    happens,
    on_event,
    problems_of,
    settled,
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
        (Timing(), "a schedule needs a time, or an event"),
        (
            Timing(cron="0 3 * * *", every=60.0),
            "a schedule has cron and every (leave all but one of them out)",
        ),
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


# --- from when to when, and how much later


def test_times_have_a_start_an_end_and_an_offset() -> None:
    daily = Timing(cron="0 12 * * *", start=NOON, end=NOON + 2 * 86400.0)
    assert [*times(daily, 0.0)] == [NOON, NOON + 86400.0, NOON + 2 * 86400.0]
    later = replace(daily, offset=60.0)
    assert [*times(later, NOON)] == [NOON + 60.0, NOON + 86460.0]
    every = Timing(every=3600.0, start=NOON, end=NOON + 4000.0, since=5.0)
    assert [*times(every, 0.0)] == [NOON, NOON + 3600.0]
    ical = Timing(ical="FREQ=DAILY", start=NOON + 90.0, end=NOON + 100_000.0)
    assert [*times(ical, 0.0)] == [NOON + 90.0, NOON + 86490.0]


def test_after_its_end_a_schedule_has_no_next_time() -> None:
    timing = Timing(every=60.0, since=NOON, end=NOON + 150.0)
    found = due(timing, NOON + 60.0, NOON + 100_000.0, ())
    assert found is not None
    assert (found.time, found.passed, found.next_at) == (NOON + 120.0, 1, None)


def test_an_offset_is_drawn_when_times_are_set() -> None:
    timing = Timing(cron="0 3 * * *", jitter=600.0)
    assert [settled(timing, NOON, draw).offset for draw in (0.0, 0.5, 0.9999)] == [0, 300, 599]
    assert settled(timing, NOON + 0.5, 0.5).since == NOON


def test_a_recurrence_follows_the_zone_that_it_names() -> None:
    timing = Timing(ical="DTSTART;TZID=Europe/Rome:20260101T090000 RRULE:FREQ=DAILY")
    assert problems_of(timing) == []
    assert settled(timing, NOON, 0.0).time_zone == "Europe/Rome"


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        (Timing(ical="FREQ=DAILY", every=60.0), "a schedule has every and ical"),
        (
            Timing(ical="FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"),
            "does not happen in the next years (change the rule)",
        ),
        (Timing(ical="FREQ=OFTEN"), "ical: FREQ must be one of"),
        (
            Timing(
                ical="DTSTART;TZID=Europe/Rome:20260101T090000 RRULE:FREQ=DAILY",
                time_zone="Asia/Tokyo",
            ),
            "ical: is of Europe/Rome, and the schedule's time zone is Asia/Tokyo",
        ),
        (Timing(every=60.0, start=NOON, end=NOON - 1), "end: is before start"),
        (Timing(every=60.0, start=-1.0), "start: must be between the years 1970 and 9000"),
        (Timing(ical="FREQ=DAILY", start=1e300), "start: must be between the years 1970 and 9000"),
        (Timing(ical="FREQ=OFTEN", start=1e300), "ical: FREQ must be one of"),
        (Timing(every=60.0, jitter=61.0), "jitter: must be from 0s to 1m"),
        (Timing(cron="0 3 * * *", jitter=-1.0), "jitter: must be from 0s"),
        (Timing(cron="0 3 * * *", start=NOON, end=NOON + 60), "no time is between start and end"),
    ],
)
def test_problems_of_other_kinds(timing: Timing, expected: str) -> None:
    assert expected in "\n".join(map(str, problems_of(timing)))


def test_events_need_no_times() -> None:
    assert problems_of(Timing(), by_events=True) == []
    (found,) = problems_of(Timing(every=60.0), by_events=True)
    assert "a schedule has every and an event" in str(found)
    assert [*times(Timing(), 0.0)] == []


@pytest.mark.parametrize(
    ("timing", "late", "running", "expected"),
    [
        (Timing(), 0.0, (), (Action.START, "")),
        (Timing(), 601.0, (), (Action.MISS, "no server started it within 10m")),
        (Timing(missed=Missed.RUN_ONCE), 601.0, (), (Action.START, "")),
        (Timing(), 0.0, (RUN,), (Action.SKIP, "train-1 is still IN_PROGRESS")),
        (Timing(overlap=Overlap.ALLOW), 0.0, (RUN,), (Action.START, "")),
        (Timing(overlap=Overlap.REPLACE), 0.0, (RUN,), (Action.START, "")),
    ],
)
def test_what_is_done_about_an_event(
    timing: Timing, late: float, running: tuple[Running, ...], expected: tuple[Action, str]
) -> None:
    assert on_event(timing, NOON, NOON + late, running) == expected


def test_events_happen_between_start_and_end() -> None:
    timing = Timing(start=NOON, end=NOON + 60.0)
    assert [happens(timing, NOON + at) for at in (-1.0, 0.0, 60.0, 61.0)] == [
        *(False, True, True, False)
    ]


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        # at 2:30 in Rome; that does not exist on 29 March, and exists twice on 25 October
        (Timing(cron="30 2 * * *", time_zone="Europe/Rome"), "01:00"),
        (Timing(ical="FREQ=DAILY;BYHOUR=2;BYMINUTE=30", time_zone="Europe/Rome"), "01:30"),
        (Timing(every=86400.0, start=datetime(2026, 1, 1, 1, 30, tzinfo=UTC).timestamp()), ""),
    ],
)
@pytest.mark.parametrize("restarts", [1, 7])
def test_a_year_of_days(timing: Timing, expected: str, restarts: int) -> None:
    """Each day has one run, however servers come and go. expected: the time of 29 March in UTC."""
    now = datetime(2025, 12, 31, 23, 30, tzinfo=UTC).timestamp()
    end = now + 365 * 86400.0
    timing = replace(timing, since=now, missed=Missed.RUN_ONCE)
    next_at, done = next(times(timing, now)), list[str]()
    while now < end:
        # a server looks at the time itself, or is down until some hours later
        now = next_at if len(done) % restarts else max(next_at, now + 3.3 * 3600.0)
        found = due(timing, next_at, now, ())
        assert found is not None and found.action == Action.START
        assert (found.passed, found.next_at is not None) == (0, True)
        done.append(f"{datetime.fromtimestamp(found.time, UTC):%m-%d %H:%M}")
        assert found.next_at is not None
        next_at = found.next_at
        if next_at > end:
            break
    model = []
    for number in range(365):
        day = datetime(2026, 1, 1) + timedelta(days=number)
        summer = datetime(2026, 3, 29) < day <= datetime(2026, 10, 25)
        clock_of = "00:30" if expected and summer else "01:30"
        if expected and day == datetime(2026, 3, 29):
            clock_of = expected
        model.append(f"{day:%m-%d} {clock_of}")
    assert done == model


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


TIMINGS = (
    st.builds(
        Timing,
        cron=st.sampled_from(
            ["30 2 * * *", "*/10 * * * *", "0 2,3 * * *", "15 1-3 * * *", "0 3 * * sun"]
        ),
        time_zone=st.sampled_from(
            ["UTC", "Europe/Rome", "America/New_York", "Australia/Lord_Howe"]
        ),
        missed=st.sampled_from(Missed),
        overlap=st.sampled_from(Overlap),
    )
    | st.builds(
        Timing,
        every=st.floats(1.0, 100_000.0),
        missed=st.sampled_from(Missed),
    )
    | st.builds(
        Timing,
        ical=st.sampled_from(
            [
                *(
                    "FREQ=DAILY;BYHOUR=2;BYMINUTE=30",
                    "FREQ=HOURLY;INTERVAL=5",
                    "FREQ=WEEKLY;BYDAY=SU",
                ),
                *("FREQ=MINUTELY;INTERVAL=7", "DTSTART:20260327T023000 RRULE:FREQ=DAILY;COUNT=400"),
            ]
        ),
        time_zone=st.sampled_from(["UTC", "Europe/Rome", "Australia/Lord_Howe"]),
        missed=st.sampled_from(Missed),
    )
)
#: From when to when after the beginning, and the offset.
RANGES = st.tuples(
    st.none() | st.floats(0.0, 86400.0).map(round),
    st.none() | st.floats(200_000.0, 20 * 86400.0).map(round),
    st.sampled_from([0.0, 0.0, 1.0, 599.0]),
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


@given(TIMINGS, RANGES, st.sampled_from([SPRING, AUTUMN]), MOVES, st.booleans())
@settings(deadline=None)
def test_no_time_is_used_twice_or_too_early(
    timing: Timing,
    range_: tuple[float | None, float | None, float],
    begin: datetime,
    moves: list[float],
    running: bool,
) -> None:
    now = begin.timestamp() - 3600.0
    start, end, offset = range_
    timing = replace(
        timing,
        since=now,
        start=None if start is None else now + start,
        end=None if end is None else now + end,
        offset=offset,
    )
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
        assert happens(timing, found.time)
        if found.next_at is None:
            assert timing.end is not None or "COUNT" in (timing.ical or "")
        else:
            assert found.next_at > now
        if found.action == Action.START and timing.missed == Missed.SKIP:
            assert now - found.time <= timing.start_within
        done.append(found.time)
        counted += found.passed + 1
        exact += found.passed < MOST_COUNTED
        next_at = found.next_at
    assert all(before < after for before, after in pairwise(done))
    if done and exact == len(done):  # each time up to the last one is accounted for
        expected = []
        for each in times(timing, timing.since):
            if each > done[-1]:
                break
            expected.append(each)
        assert set(done) <= set(expected)
        assert counted == len(expected)


def test_a_wrong_time_and_a_wrong_zone_are_both_found() -> None:
    found = problems_of(Timing(cron="70 2 * * *", time_zone="Europe/Rom"))
    assert [problem.path for problem in found] == ["cron", "time_zone"]
