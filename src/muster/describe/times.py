"""Times as text: RFC 3339, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(seconds: float | None) -> str | None:
    """Epoch seconds as RFC 3339 text in UTC."""
    return rfc3339(moment(seconds))


def moment(seconds: float | None) -> datetime | None:
    """Epoch seconds as a timezone-aware time in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def rfc3339(time: datetime | None) -> str | None:
    """A time as RFC 3339 text in UTC, to the microsecond."""
    return None if time is None else time.isoformat(timespec="microseconds").replace("+00:00", "Z")
