"""The memory below which no program starts: a run that asks for less has a slip in it."""

from __future__ import annotations

from muster.errors import Problem

_LEAST = 16 << 20


def check_least_memory(memory: int, path: str, most: int) -> Problem | None:
    """A problem with a limit in bytes. path: of the setting. most: what a machine may have."""
    if memory >= _LEAST:
        return None
    hint = meant_size(memory, _LEAST, most) or "at least 16MiB"
    return Problem(path, f"{memory} bytes are too few for any program", hint)


def meant_size(number: int, least: int, most: int) -> str:
    """A hint for a number without a unit: the largest one with which the size is possible."""
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if number and least <= number << power <= most:
            return f"did you mean {number}{unit}?"
    return ""
