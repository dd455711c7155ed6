"""Parts of messages: values as text, suggestions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from muster.errors import Problem
from muster.secrets import HIDDEN, names_secret, redacted


class Refused(ValueError):  # noqa: N818
    """An invalid value: what is wrong with it, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint


class SeveralRefused(Refused):
    """Several invalid parts of a value, by index, or of a file, by line."""

    def __init__(self, parts: Sequence[tuple[int, Refused]]) -> None:
        super().__init__(parts[0][1].message, parts[0][1].hint)
        self.parts = parts

    def listed(self) -> tuple[Sequence[tuple[int, Refused]], str]:
        """The parts that are listed, and the number of the others as in "2 more problems"; "" if
        there are none."""
        more = len(self.parts) - _MAX_LISTED
        rest = f"{more:,} more problem{'s' if more > 1 else ''}" if more > 0 else ""
        return self.parts[:_MAX_LISTED], rest


#: Maximum parts of one value or file that are listed.
_MAX_LISTED = 10
#: Maximum characters of a value in a message; longer ones are cut.
_MAX_LENGTH = 60
#: Minimum characters of a part of a secret that is hidden in messages: shorter ones are in words.
_SECRET = 4


def say(value: Any) -> str:
    """A value as in "must be a number, not ...". Only the kind of containers is named."""
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
    """`repr`, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 4]}...{text[-1]}"


def without_secret(problem: Problem, holder: Any, field: str) -> Problem:
    """A problem of a mapping's field, without the value if the name is that of a secret, and
    without a hint that is made of it. The name is the field's, or is given next to it (Kubernetes:
    `{name, value}`)."""
    value, name = holder.get(field), holder.get("name")
    by = name if field == "value" and isinstance(name, str) else str(field)
    if not names_secret(by) or not isinstance(value, (str, int, float)):
        return problem
    text = str(value)
    hint = redacted(problem.hint, [say(value), text])
    if {*re.findall(r"\w+", hint)} & {*re.findall(r"\w+", text)}:
        hint = ""
    parts = (part for part in re.split(r"[\s,;\"()\[\]{}]+", text) if len(part) >= _SECRET)
    known = sorted((say(value), text, *parts), key=len, reverse=True)
    message = _without_parts(redacted(problem.message, known), text)
    return problem._replace(message=message, hint=hint)


def _without_parts(message: str, secret: str) -> str:
    """The message without words that are a part of the secret, maybe one that was cut."""

    def shown(match: re.Match[str]) -> str:
        word = match[0].strip(".,;:")
        is_part = word in secret or word in repr(secret)
        is_short = len(word) < (_SECRET if word.isalpha() else 2)
        return match[0].replace(word, HIDDEN) if is_part and not is_short else match[0]

    return re.sub(r"[^\s'\"]+", shown, message)


def close_to(name: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The most similar known names. Case is ignored, except to choose between names that differ in
    nothing else."""
    from difflib import get_close_matches

    by_lower: dict[str, list[str]] = {}
    for text in known:
        by_lower.setdefault(text.lower(), []).append(text)
    lower = name.lower()
    close = [lower] if lower in by_lower else get_close_matches(lower, by_lower, count, cutoff)
    return [get_close_matches(name, by_lower[text], 1, 0.0)[0] for text in close]


def alternatives(names: Collection[str]) -> str:
    """Names as in "a, b or c"; "" if there are none."""
    *others, last = names or [""]
    return f"{', '.join(others)} or {last}" if others else last


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint: the name that was probably meant, else all names; "" if there are none."""
    names = list(known)
    close = close_to(name, names)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"use {alternatives(names)}" if names else ""
