"""Rules of iCalendar (RFC 5545, RRULE) on a clock without a zone. Pure.

A rule is a filter over days, and over the times of each day, period by period: that is what section
3.3.10 calls to expand or to limit. Only days up to a horizon are looked at, so that a rule which
never happens takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import islice

from msgspec import Struct

#: Years in which an occurrence is looked for. The calendar repeats after 28, but for centuries.
_HORIZON = 28
#: Of rules by the minute, which have many times a day.
_HORIZON_OF_MINUTES = 4
_DAY = timedelta(days=1)


class WeekDay(Struct, frozen=True):
    """A day of the week, as in BYDAY."""

    day: int
    """0 is Monday."""
    number: int = 0
    """Which one of the month or year; negative ones count from its end. 0: each."""


class Rule(Struct, frozen=True):
    """The parts of a rule; empty ones were not given. Negative numbers count from the end."""

    frequency: str
    interval: int = 1
    count: int | None = None
    """How many occurrences there are; None: no limit."""
    months: Sequence[int] = ()
    month_days: Sequence[int] = ()
    year_days: Sequence[int] = ()
    weeks: Sequence[int] = ()
    days: Sequence[WeekDay] = ()
    hours: Sequence[int] = ()
    minutes: Sequence[int] = ()
    seconds: Sequence[int] = ()
    positions: Sequence[int] = ()
    """Which occurrences of each period count (BYSETPOS)."""
    week_start: int = 0
    """The day on which weeks start (WKST)."""

    def occurrences(self, first: datetime, near: datetime) -> Iterator[datetime]:
        """The occurrences of a rule that starts at `first`, in order; they may begin later than
        that, but include all from `near` on, for some years."""
        begin = first if self.count is not None else max(first, near - _DAY)
        years = _HORIZON_OF_MINUTES if self.frequency == "MINUTELY" else _HORIZON
        last_year = min(max(first, near).year + years, 9998)
        found = (
            at
            for period in self._periods(first.date(), begin.date(), last_year)
            for at in self._of_period(period, first, begin.date())
            if at >= first
        )
        return islice(found, self.count)

    # --- periods

    def _periods(self, first: date, begin: date, last_year: int) -> Iterator[list[date]]:
        """The days of each period from the one of `begin` on, which match. first: where the rule
        starts, from which intervals count."""
        last, step = date(last_year, 12, 31), self.interval
        match self.frequency:
            case "YEARLY":
                years = _steps(first.year, begin.year, last.year, step)
                starts = (date(year, 1, 1) for year in years)
            case "MONTHLY":
                months = _steps(_month(first), _month(begin), _month(last), step)
                starts = (date(month // 12, month % 12 + 1, 1) for month in months)
            case _:
                every_day = self.frequency in ("HOURLY", "MINUTELY")  # hours are looked at later
                place = first.toordinal(), begin.toordinal()
                if self.frequency == "WEEKLY":
                    place, step = (self._week(first).toordinal(), place[1]), 7 * step
                days = _steps(*place, last.toordinal(), 1 if every_day else step)
                starts = (date.fromordinal(day) for day in days)
        for start in starts:
            matching = [day for day in self._days_of_period(start) if self._has_day(day, first)]
            if matching:
                yield matching

    def _days_of_period(self, start: date) -> Iterator[date]:
        match self.frequency:
            case "YEARLY":
                end = date(start.year + 1, 1, 1)
            case "MONTHLY":
                end = _next_month(start)
            case "WEEKLY":
                end = start + 7 * _DAY
            case _:
                end = start + _DAY
        return (date.fromordinal(day) for day in range(start.toordinal(), end.toordinal()))

    def _week(self, day: date) -> date:
        """The first day of its week."""
        return day - (day.weekday() - self.week_start) % 7 * _DAY

    # --- days

    def _has_day(self, day: date, first: date) -> bool:
        """Whether a day matches the parts about days; those that are missing are as those of the
        first one."""
        if self.months and day.month not in self.months:
            return False
        month_days, days = self.month_days, self.days
        if not (month_days or days or self.year_days):
            if self.frequency == "WEEKLY" or self.weeks:
                days = (WeekDay(first.weekday()),)
            elif self.frequency in ("MONTHLY", "YEARLY"):
                month_days = (first.day,)
                if self.frequency == "YEARLY" and not self.months and day.month != first.month:
                    return False
        if month_days and not _is_one(month_days, day.day, _length_of_month(day)):
            return False
        if self.year_days:
            length = date(day.year, 12, 31).timetuple().tm_yday
            if not _is_one(self.year_days, day.timetuple().tm_yday, length):
                return False
        if self.weeks and not _is_one(self.weeks, *self._week_number(day)):
            return False
        return not days or any(self._is_day(one, day) for one in days)

    def _is_day(self, one: WeekDay, day: date) -> bool:
        if one.day != day.weekday():
            return False
        if not one.number:
            return True
        if self.frequency == "MONTHLY" or self.months:
            at, length = day.day, _length_of_month(day)
        else:
            at = day.timetuple().tm_yday
            length = date(day.year, 12, 31).timetuple().tm_yday
        from_end = (length - at) // 7 + 1
        return one.number in ((at - 1) // 7 + 1, -from_end)

    def _week_number(self, day: date) -> tuple[int, int]:
        """The number of a day's week, and how many weeks that year has. The first one has at least
        four days in it."""
        week = self._week(day)
        year = (week + 3 * _DAY).year
        first, following = self._week(date(year, 1, 4)), self._week(date(year + 1, 1, 4))
        return (week - first).days // 7 + 1, (following - first).days // 7

    # --- times of days

    def _of_period(self, days: list[date], first: datetime, begin: date) -> Iterator[datetime]:
        """The occurrences on the days of a period. begin: none before it are needed."""
        if self.positions:
            return self._at_positions(days, first)
        return (at for day in days if day >= begin for at in self._of_day(day, first))

    def _at_positions(self, days: list[date], first: datetime) -> Iterator[datetime]:
        """The chosen occurrences of a period, which may have millions of others. Each of its days
        has the same times."""
        hours, minutes, seconds = self._clock(first)
        of_hour = len(minutes) * len(seconds)
        of_day = len(hours) * of_hour
        length = len(days) * of_day
        chosen = {n - 1 if n > 0 else length + n for n in self.positions}
        for number in sorted(n for n in chosen if 0 <= n < length):
            day, in_day = divmod(number, of_day)
            hour, in_hour = divmod(in_day, of_hour)
            minute, second = divmod(in_hour, len(seconds))
            yield _at(days[day], hours[hour], minutes[minute], seconds[second])

    def _of_day(self, day: date, first: datetime) -> Iterator[datetime]:
        hours, minutes, seconds = self._clock(first)
        days = day.toordinal() - first.toordinal()
        if self.frequency == "MINUTELY":
            clock = self._by_minute(days, first, hours, set(minutes))
        elif self.frequency == "HOURLY":
            start = (first.hour - days * 24) % self.interval
            chosen = sorted({*hours} & {*range(start, 24, self.interval)})
            clock = ((hour, minute) for hour in chosen for minute in minutes)
        else:
            clock = ((hour, minute) for hour in hours for minute in minutes)
        for hour, minute in clock:
            for second in seconds:
                yield _at(day, hour, minute, second)

    def _clock(self, first: datetime) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """The hours, minutes and seconds that match; of those that are missing, the ones of the
        first occurrence, or all that the frequency counts."""
        hourly, by_minute = self.frequency == "HOURLY", self.frequency == "MINUTELY"
        hours = sorted(self.hours) or (range(24) if hourly or by_minute else (first.hour,))
        minutes = sorted(self.minutes) or (range(60) if by_minute else (first.minute,))
        return hours, minutes, sorted(self.seconds) or (first.second,)

    def _by_minute(
        self, days: int, first: datetime, hours: Sequence[int], minutes: Container[int]
    ) -> Iterator[tuple[int, int]]:
        """The hours and minutes of a day, which is so many days after the first one."""
        since = days * 1440 - first.hour * 60 - first.minute
        spans = [(60 * hour, 60 * hour + 60) for hour in hours] if self.hours else [(0, 1440)]
        for start, end in spans:
            for at in range(start + -(since + start) % self.interval, end, self.interval):
                if at % 60 in minutes:
                    yield divmod(at, 60)


def _at(day: date, hour: int, minute: int, second: int) -> datetime:
    return datetime(day.year, day.month, day.day, hour, minute, second)


def _steps(first: int, begin: int, last: int, step: int) -> range:
    """Numbers from `first` to `last` in steps, beginning with the last one up to `begin`."""
    return range(first + max(0, (begin - first) // step) * step, last + 1, step)


def _month(day: date) -> int:
    return day.year * 12 + day.month - 1


def _next_month(start: date) -> date:
    month = _month(start) + 1
    return date(month // 12, month % 12 + 1, 1)


def _length_of_month(day: date) -> int:
    return (_next_month(day.replace(day=1)) - _DAY).day


def _is_one(numbers: Sequence[int], at: int, length: int) -> bool:
    """Whether a number is one of these, of which negative ones count from the end."""
    return at in numbers or at - length - 1 in numbers
