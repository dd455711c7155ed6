"""Durations and sizes as people write them."""

from __future__ import annotations

import re

_DURATION_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?i?)B?", re.IGNORECASE)
_POWERS = "KMGTP"


def parse_duration(text: str | float) -> float:
    """Seconds of `90s`, `10m`, `1h30m`, `1.5h`, `30d`; a bare number is seconds.

    Raises ValueError.
    """
    if isinstance(text, (int, float)):
        return float(text)
    cleaned = text.strip().lower()
    try:
        return float(cleaned)
    except ValueError:
        pass  # not a bare number
    parts = _DURATION_PART.findall(cleaned)
    if not parts or "".join(number + unit for number, unit in parts) != cleaned:
        raise ValueError(f"{text!r} is not a duration; write 90s, 10m, 1h30m or 30d")
    return sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """The shortest text `parse_duration` reads as exactly this."""
    if seconds != int(seconds):
        return f"{seconds:g}s"
    left, text = int(seconds), ""
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_DURATION_UNITS[unit]))
        if count:
            text += f"{count}{unit}"
    return text or "0s"


def parse_size(text: str | float) -> int:
    """Bytes of `4GiB`, `500MB`, `1.5Gi`, `1024`. Ki, Mi, ... are powers of 1024, K, M, ... of 1000.

    Raises ValueError.
    """
    if isinstance(text, (int, float)):
        return int(text)
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write 4GiB, 500MB or a number of bytes")
    number, unit = match[1], match[2].upper()
    base = 1024 if unit.endswith("I") else 1000
    power = _POWERS.index(unit[0]) + 1 if unit and unit[0] in _POWERS else 0
    return int(float(number) * base**power)


def format_size(size: int) -> str:
    """A size for people: the largest binary unit that keeps it readable."""
    for power in range(len(_POWERS), 0, -1):
        if size >= 1024**power:
            text = f"{size / 1024**power:.1f}".removesuffix(".0")
            return f"{text}{_POWERS[power - 1]}iB"
    return f"{size}B"
