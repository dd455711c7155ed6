"""Times in a store: whole microseconds since the epoch, in a column of integers.

Elsewhere they are seconds (float). A float holds each microsecond of this century exactly enough:
`seconds(micros(t)) == t` for every t that is a whole number of microseconds.
"""

from __future__ import annotations

from typing import Any

_SECOND = 1_000_000


def micros(seconds: float) -> int:
    """Epoch seconds as the store keeps them."""
    return round(seconds * _SECOND)


def optional_micros(seconds: float | None) -> int | None:
    """As `micros`; None stays."""
    return None if seconds is None else micros(seconds)


def seconds(stored: Any) -> Any:
    """A stored time in epoch seconds. What is no integer stays as it is: seconds that a process of
    an earlier version wrote, or what checks of the record refuse."""
    return stored / _SECOND if type(stored) is int else stored
