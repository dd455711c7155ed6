"""Times of requests."""

from __future__ import annotations

from datetime import UTC, datetime

from muster.server.oci.errors import invalid

#: The last second that can be written: epoch seconds of a fraction after it are rounded up.
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def utc(moment: datetime) -> datetime:
    """A time of a request in UTC, as it is without a zone. Raises OciError."""
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise invalid(f"{moment.isoformat()} is not a time of the years 1 to 9999 in UTC") from None


def epoch(moment: datetime) -> float:
    """A time of a request in epoch seconds. Raises OciError."""
    return min(utc(moment).timestamp(), _LAST)
