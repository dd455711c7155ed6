"""Durations and sizes as text."""

from __future__ import annotations

import re

from muster.spec.wording import Refused, say, short

_DURATION_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
# compiled when they are used: most commands read no quantity
_DURATION = rf"(?:{_NUMBER}\s*(?:ms|[smhdw])\s*)+"
_DURATION_PART = rf"({_NUMBER})\s*(ms|[smhdw])"
_PLAIN = rf"(?i:{_NUMBER}(?:e[+-]?\d+)?)"
_SIZE = rf"(?i:({_NUMBER})\s*(?:([KMGTP])(I?))?B?)"
_POWERS = "KMGTP"


def parse_duration(value: object) -> float:
    """The seconds of `90s`, `10m`, `1h30m`, `1.5h`, `30d`; a bare number is seconds.

    Never negative, infinite or NaN. Raises Refused.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        text = f"must be a duration, not {say(value)}"
        raise Refused(text, "write 90s, 10m, 1h30m or 30d")
    cleaned = str(value).strip().lower()
    if re.fullmatch(_PLAIN, cleaned):
        seconds = float(cleaned)
    elif re.fullmatch(_DURATION, cleaned):
        parts = re.findall(_DURATION_PART, cleaned)
        seconds = sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)
    else:
        raise Refused(f"{short(value)} is not a duration", "write 90s, 10m, 1h30m or 30d")
    if seconds == float("inf"):
        raise Refused(f"{short(value)} is too long", "write 30d or less")
    return seconds


def is_bare_number(value: object) -> bool:
    """Whether a time is a number other than 0 without a unit. On the command line, and where files
    are deleted by age, it is refused: minutes (as for Slurm) or days may be meant, not seconds."""
    text = str(value).strip()
    return re.fullmatch(_PLAIN, text) is not None and float(text) != 0


def no_unit(value: object, quote: str = "") -> tuple[str, str]:
    """What is wrong with a bare number, and a hint. quote: around what is to be written."""
    text = str(value).strip()
    *others, last = (f"{quote}{text}{unit}{quote}" for unit in "smhd")
    return f"{text} has no unit", f"write {', '.join(others)} or {last}"


def format_duration(seconds: float) -> str:
    """A short text that `parse_duration` reads as exactly this duration."""
    if seconds != int(seconds):
        from decimal import Decimal

        return f"{Decimal(repr(seconds)):f}s"
    left, text = int(seconds), ""
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_DURATION_UNITS[unit]))
        if count:
            text += f"{count}{unit}"
    return text or "0s"


def parse_size(value: object) -> int:
    """The bytes of `4GiB`, `500MB`, `1.5Gi`, `1024`. Ki, Mi, ... are powers of 1024, K, M, ... of
    1000.

    Raises Refused.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        text = f"must be a size, not {say(value)}"
        raise Refused(text, "write 4GiB or 500MB")
    match = re.fullmatch(_SIZE, str(value).strip())
    if match is None:
        raise Refused(f"{short(value)} is not a size", "write 4GiB, 500MB or a number of bytes")
    number, unit, binary = match.groups()
    power = _POWERS.index(unit.upper()) + 1 if unit else 0
    whole, _, fraction = number.partition(".")
    # integers, because floats are inexact for the largest sizes
    unit_size: int = (1024 if binary else 1000) ** power
    scaled = int(f"{whole or 0}{fraction}") * unit_size
    digits: int = 10 ** len(fraction)
    size, rest = divmod(scaled, digits)
    if rest and not unit:
        raise Refused(f"{short(value)} is not a whole number of bytes", "write 4GiB or 500MB")
    return size


def format_size(size: int) -> str:
    """A size with one decimal: 1.5GiB."""
    for power in range(len(_POWERS), 0, -1):
        # 1023.99KiB would be written 1024KiB
        if round(size / 1024 ** (power - 1), 1) >= 1024:
            return f"{round(size / 1024**power, 1):g}{_POWERS[power - 1]}iB"
    return f"{size}B"
