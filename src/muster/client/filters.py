"""Parse what runs are chosen by: states, times and durations, the same in every command and in
Python."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState
from muster.spec.quantities import is_bare_number, no_unit, parse_duration
from muster.spec.wording import Refused, short, suggestion

#: Names that other programs have for a state.
_OTHER_NAMES = {
    "CANCELLED": RunState.CANCELED,
    "COMPLETED": RunState.SUCCEEDED,
    "PENDING": RunState.QUEUED,
    "RUNNING": RunState.IN_PROGRESS,
}
#: States that no stored run has.
_NEVER = {RunState.NEEDS_ATTENTION, RunState.DELETED}


def states_named(field: str, names: Sequence[str]) -> list[RunState] | None:
    """States by name, case-insensitive; also by the names in _OTHER_NAMES. A RunState stays as it
    is. None if there are no names. field: named in errors. Raises InvalidInput."""
    known = {str(state): state for state in RunState if state not in _NEVER}
    states = []
    for name in names:
        if isinstance(name, RunState):
            states.append(name)
            continue
        upper = name.upper().replace("-", "_")
        state = _OTHER_NAMES.get(upper) or known.get(upper)
        if state is None:
            hint = suggestion(upper, known)
            raise InvalidInput(Problem(field, f"no state named {short(name)}", hint))
        states.append(state)
    return states or None


def numbers_in(field: str, given: Collection[int] | str | int | None) -> list[int] | None:
    """Numbers of replicas: a list or text such as `3,17,40-42`. Raises InvalidInput."""
    if given is None:
        return None
    from muster.spec.replica_numbers import MOST_LISTED, parse_numbers

    texts = [given] if isinstance(given, (str, int)) else given
    try:
        spans = parse_numbers(",".join(map(str, texts)), limit=MOST_LISTED) if texts else ()
    except Refused as error:
        raise InvalidInput(Problem(field, error.message, error.hint)) from None
    return [number for span in spans for number in span]


def duration_of(field: str, value: object) -> float:
    """The seconds of `90s`, `10m`, `1d`. field: named in errors. Raises InvalidInput, also for text
    without a unit."""
    if isinstance(value, str) and is_bare_number(value):
        raise InvalidInput(Problem(field, *no_unit(value)))
    try:
        return parse_duration(value)
    except Refused as error:
        raise InvalidInput(Problem(field, error.message, error.hint)) from None


def moment_of(field: str, text: str) -> float:
    """The moment (epoch seconds) that lies a duration before now, or that of a time such as
    `2026-11-23T10:00`, local unless it has a zone. field: named in errors. Raises InvalidInput."""
    with suppress(ValueError):
        if not text.isdecimal():  # 20261123 is more likely a number without a unit
            return datetime.fromisoformat(text).timestamp()
    if is_bare_number(text):
        raise InvalidInput(Problem(field, *no_unit(text)))
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        hint = "write 90s, 10m, 1d or 2026-11-23T10:00"
        problem = Problem(field, f"{text!r} is neither a duration nor a time", hint)
        raise InvalidInput(problem) from None


def age_of(field: str, text: str) -> float:
    """Seconds since a moment of `moment_of`. Raises InvalidInput, also if it is yet to come."""
    moment = moment_of(field, text)
    age = time.time() - moment
    if age < 0:
        raise InvalidInput(Problem(field, f"{text} is in the future"))
    return age


def since_of(since: float | datetime | timedelta | None) -> float | None:
    """As `epoch_seconds`; epoch seconds and None as they are."""
    if since is None or isinstance(since, (datetime, timedelta)):
        return None if since is None else epoch_seconds(since)
    return float(since) if isinstance(since, (int, float)) else epoch_seconds(since)


def limit_of(limit: int | None) -> int | None:
    """How many to list; None = all, as for 0. Raises InvalidInput."""
    if limit is None:
        return None
    if not isinstance(limit, int) or limit < 0:
        problem = Problem("limit", f"must be 0 (all) or a larger whole number, not {limit!r}")
        raise InvalidInput(problem)
    return limit or None


def epoch_seconds(since: datetime | timedelta) -> float:
    """Epoch seconds of an aware time, or of the moment this long ago. Raises InvalidInput."""
    if isinstance(since, timedelta):
        return time.time() - since.total_seconds()
    if isinstance(since, datetime) and since.tzinfo is not None:
        return since.timestamp() - 1e-6  # stored times are finer than those of `created_at`
    text = f"must be an aware datetime or a timedelta, not {since!r}"
    raise InvalidInput(Problem("since", text, "such as timedelta(hours=1), or datetime.now(UTC)"))
