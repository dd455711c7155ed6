"""Numbers and lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, noun: str) -> str:
    """1 node, 2 nodes."""
    return f"{number} {noun}s" if number != 1 else f"1 {noun}"


def named(names: Sequence[object], most: int) -> str:
    """The first `most` names, and how many there are besides: a, b and 3 more."""
    shown = ", ".join(map(str, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
