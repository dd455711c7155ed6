"""How messages name values and guess what was meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from muster.errors import Problem
from muster.secrets import names_secret, redacted


class Refused(ValueError):  # noqa: N818
    """A value that cannot be taken: what is wrong with it, and what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint


#: Longer values are cut: a message has to stay one line a person reads.
_LONGEST = 60


def say(value: Any) -> str:
    """A value as it stands in "must be a number, not ...". Containers by kind only."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, (str, int, float)):
        return short(value)
    return f"a {type(value).__name__}"


def short(value: Any) -> str:
    """`repr`, cut where it would fill the screen."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]}...{text[-1]}"


def unsaid(problem: Problem, holder: Any, field: str) -> Problem:
    """What is wrong with a field of a mapping, or in it; without its value where that goes by the
    name of a secret, which may be the field's or stand beside it (Kubernetes: `{name, value}`)."""
    value, name = holder.get(field), holder.get("name")
    by = name if field == "value" and isinstance(name, str) else str(field)
    if not names_secret(by) or not isinstance(value, (str, int, float)):
        return problem
    known = sorted((say(value), str(value)), key=len, reverse=True)
    message, hint = redacted(problem.message, known), redacted(problem.hint, known)
    return problem._replace(message=message, hint=hint)


def close_to(name: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known names that look most like this one; upper and lower case are the same."""
    from difflib import get_close_matches

    by_lower = {text.lower(): text for text in known}
    if name.lower() in by_lower:
        return [by_lower[name.lower()]]
    return [by_lower[text] for text in get_close_matches(name.lower(), by_lower, count, cutoff)]


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint: the one that was probably meant, else everything there is."""
    names = list(known)
    close = close_to(name, names)
    return f'did you mean "{close[0]}"?' if close else f"there are: {', '.join(names)}"
