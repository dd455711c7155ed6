"""Times in UTC, as aware datetimes and as RFC 3339 text; durations as text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

#: In UTC.
_EPOCH = datetime(1970, 1, 1)
_UNITS = (
    ((86400, "d"), (3600, "h")),
    ((3600, "h"), (60, "m")),
    ((60, "m"), (1, "s")),
)


def time_text_ms(seconds: float | None) -> str | None:
    """As `time_text`, to the millisecond: as OCI writes times."""
    if seconds is None:
        return None
    return (_EPOCH + timedelta(seconds=seconds)).isoformat(timespec="milliseconds") + "Z"


def time_text(seconds: float | None) -> str | None:
    """Epoch seconds as RFC 3339 text in UTC."""
    if seconds is None:
        return None
    # a table of a hundred thousand replicas has two in each row: faster than an aware time
    time = _EPOCH + timedelta(seconds=seconds)
    return time.isoformat(timespec="microseconds") + "Z"


def moment(seconds: float) -> datetime:
    """Epoch seconds as an aware time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def optional_moment(seconds: float | None) -> datetime | None:
    """As `moment`; None stays None."""
    return None if seconds is None else moment(seconds)


def rfc3339(time: datetime) -> str:
    """A time in UTC as RFC 3339 text, to the microsecond."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def minute(time: datetime | None) -> str:
    """A time in UTC for people; "-" for None."""
    return "-" if time is None else f"{time:%Y-%m-%d %H:%M} UTC"


def json_ready(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The same facts with times as RFC 3339 text."""
    return {k: rfc3339(v) if isinstance(v, datetime) else v for k, v in facts.items()}


def ran(seconds: float, suspended: float) -> str:
    """How long something ran, as text: 12m (suspended 2h)."""
    text = span(seconds)
    return f"{text} (suspended {span(suspended)})" if suspended else text


def span(seconds: float) -> str:
    """A duration as short text: 4.2s, 35s, 3m5s, 2h."""
    if seconds < 60:
        return f"{max(seconds, 0):.1f}s" if seconds < 10 else f"{int(seconds)}s"
    for (large, unit), (small, rest) in _UNITS:
        if seconds >= large:
            whole, left = int(seconds // large), int(seconds % large // small)
            return f"{whole}{unit}{left}{rest}" if left else f"{whole}{unit}"
    raise ValueError(seconds)
