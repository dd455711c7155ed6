"""Filters of lists, from text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState

if TYPE_CHECKING:
    from muster.client.client import Client


def duration(flag: str, text: str) -> float:
    """Seconds of `90s`, `10m`, `1d`."""
    from muster.spec.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidInput(Problem(flag, str(error))) from None


def since_filter(text: str | None) -> float | None:
    """Epoch seconds of so long ago."""
    return None if text is None else time.time() - duration("--since", text)


def state_filter(names: Sequence[str]) -> list[RunState] | None:
    """States by name, in any case."""
    try:
        return [RunState(name.upper().replace("-", "_")) for name in names] or None
    except ValueError as error:
        known = ", ".join(s.lower() for s in RunState)
        text = str(error).partition(" is not")[0]
        raise InvalidInput(Problem("--state", f"no state {text}", f"there are: {known}")) from None


def tag_filter(texts: Sequence[str]) -> dict[str, str | None]:
    """Tags by `K=V`; None, which is any value, for `K`."""
    pairs = (text.partition("=") for text in texts)
    return {key: value if equals else None for key, equals, value in pairs}


def job_filter(client: Client, text: str | None) -> str | None:
    """The job meant: a name means all its versions. Raises NotFound."""
    if text is None:
        return None
    job = client.service.job(text)
    return job.name if text == job.name else job.id
