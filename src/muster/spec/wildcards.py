"""Patterns in which `*` stands for any characters. Pure."""

from __future__ import annotations

from collections.abc import Callable


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text fits a pattern, in which `*` stands for any characters. In linear time."""
    parts = pattern.split("*")

    def fits(text: str) -> bool:
        if len(parts) == 1:
            return text == pattern
        first, *middle, last = parts
        if not text.startswith(first) or not text.endswith(last):
            return False
        at, end = len(first), len(text) - len(last)
        for part in middle:
            at = text.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return at <= end

    return fits
