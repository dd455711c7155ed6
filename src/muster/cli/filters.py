"""Parse the filters of list commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from muster.client.client import Client


def duration(flag: str, text: str) -> float:
    """Parse `90s`, `10m`, `1d` into seconds. Raises InvalidInput."""
    require_unit(flag, text)
    from muster.spec.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidInput(Problem(flag, str(error))) from None


def require_unit(flag: str, text: str) -> None:
    """Raise InvalidInput if a time has no unit. Dates have none either."""
    from muster.spec.quantities import without_unit

    wrong = without_unit(text)
    if wrong is not None and len(text) < len("20261123"):
        raise InvalidInput(Problem(f"{flag} {text}", wrong))


def moment(flag: str, text: str) -> float:
    """The moment (epoch seconds) of `1d` ago, or of a time. Raises InvalidInput."""
    from muster.service.filters import moment_of

    require_unit(flag, text)
    return moment_of(flag, text)


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
