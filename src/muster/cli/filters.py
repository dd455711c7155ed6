"""Parse the filters of list commands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState

if TYPE_CHECKING:
    from muster.client.client import Client


#: Names that other programs have for a state.
_STATES = {
    "cancelled": RunState.CANCELED,
    "completed": RunState.SUCCEEDED,
    "pending": RunState.QUEUED,
    "running": RunState.IN_PROGRESS,
}


def duration(flag: str, text: str) -> float:
    """Parse `90s`, `10m`, `1d` into seconds. Raises InvalidInput."""
    from muster.spec.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidInput(Problem(flag, str(error))) from None


def since_filter(flag: str, text: str | None) -> float | None:
    """The moment (epoch seconds) that lies the given duration before now, or that of a time such as
    `2026-11-23T10:00`, local unless it has a zone. flag: names the option in errors. Raises
    InvalidInput."""
    if text is None:
        return None
    from datetime import datetime

    from muster.spec.quantities import parse_duration

    with suppress(ValueError):
        return datetime.fromisoformat(text).timestamp()
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        hint = "write 90s, 10m, 1d or 2026-11-23T10:00"
        problem = Problem(flag, f"{text!r} is neither a duration nor a time", hint)
        raise InvalidInput(problem) from None


def state_filter(names: Sequence[str]) -> list[RunState] | None:
    """States by name, case-insensitive; also by the names in _STATES. Raises InvalidInput."""
    known = {state.lower(): state for state in RunState}
    states = []
    for name in names:
        lower = name.lower().replace("-", "_")
        state = _STATES.get(lower) or known.get(lower)
        if state is None:
            from muster.spec.wording import suggestion

            raise InvalidInput(
                Problem("--state", f"no state named {name!r}", suggestion(name, known))
            )
        states.append(state)
    return states or None


def tag_filter(texts: Sequence[str]) -> dict[str, str | None]:
    """Tags by `K=V`; for `K` alone the value is None, which matches any."""
    pairs = (text.partition("=") for text in texts)
    return {key: value if equals else None for key, equals, value in pairs}


def job_filter(client: Client, text: str | None) -> str | None:
    """The name of a job, if given, which matches all its versions; else its id. Raises NotFound."""
    if text is None:
        return None
    job = client.service.job(text)
    return job.name if text == job.name else job.id
