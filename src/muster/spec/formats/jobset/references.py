"""Expand Kubernetes' `$(NAME)` references in values that may differ between nodes.

Kubernetes: `$(NAME)` is the value of a variable defined before, `$$` is a dollar sign, and a
reference to an undefined variable stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from muster.spec.placeholders import fill, joined, literal, pieces, placeholders

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
_DOLLARS = re.compile(r"\$(\$)()")


class Value(Struct, frozen=True):
    """The value of a variable or argument."""

    text: str
    #: Whether `text` has placeholders (`spec.placeholders`), which differ between nodes.
    per_node: bool = False

    @property
    def template(self) -> str:
        """The value as a template, in which literal text is escaped."""
        return self.text if self.per_node else literal(self.text)

    def fixed(self, facts: Mapping[str, str]) -> str | None:
        """The text if it is the same on all nodes, else None. facts: fixed placeholders."""
        if not self.per_node:
            return self.text
        if any(name not in facts for name in placeholders(self.text)):
            return None
        return fill(self.text, facts.__getitem__)


def expand(text: str, lookup: Callable[[str], Value | None]) -> Value:
    """`text` with its references replaced. lookup: name -> value, or None."""
    parts: list[tuple[str, str | None]] = []
    end = 0
    for match in _references(text):
        parts.append((text[end : match.start()], None))
        found = Value("$") if match[1] else lookup(match[2])
        parts += pieces((found or Value(match[0])).template)
        end = match.end()
    parts.append((text[end:], None))
    if all(name is None for _, name in parts):
        return Value("".join(part for part, _ in parts))
    return Value(joined(parts), per_node=True)


def references(text: str) -> list[str]:
    """The names of the variables that a text refers to."""
    return [match[2] for match in _references(text) if match[1] is None]


def _references(text: str) -> Iterator[re.Match[str]]:
    """Every `$$` and `$(NAME)`. Stops at the last `)`, so that the search is linear."""
    closed = text.rfind(")") + 1
    yield from _REFERENCE.finditer(text, 0, closed)
    yield from _DOLLARS.finditer(text, closed)
