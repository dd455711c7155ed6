"""Which settings differ between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from muster.describe.settings import value_text
from muster.secrets import hidden

#: Tags that Muster sets begin with it.
_OWN_TAGS = "tags.muster-"
#: The most differences that are listed.
_MOST = 20
#: The most characters of a value.
_LONGEST = 60


def difference_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """A line for each setting that differs between two specs: `PATH: BEFORE -> AFTER`. Secrets are
    hidden; that one differs is said."""
    one, other = dict(_leaves("", before)), dict(_leaves("", after))
    shown_one, shown_other = dict(_leaves("", hidden(before))), dict(_leaves("", hidden(after)))
    lines = [
        f"{path}: {_text(shown_one, path)} -> {_text(shown_other, path)}"
        for path in dict.fromkeys([*one, *other])
        if one.get(path) != other.get(path) and not path.startswith(_OWN_TAGS)
    ]
    rest = len(lines) - _MOST
    return [*lines[:_MOST], f"and {rest} other settings"] if rest > 0 else lines


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The settings below a path. Items of a list with names are found by these."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), inner)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            name = item.get("name", number) if isinstance(item, Mapping) else number
            yield from _leaves(f"{path}[{name}]", item)
    else:
        yield path, list(value) if isinstance(value, tuple) else value


def _text(values: Mapping[str, Any], path: str) -> str:
    value = values.get(path)
    if value is None or value in ([], {}):
        return "not set"
    text = value_text(path, value) or '""'
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
