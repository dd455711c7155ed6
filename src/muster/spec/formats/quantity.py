"""Kubernetes quantities: `500m`, `2Gi`, `1e3`."""

from __future__ import annotations

import re
from decimal import Decimal

from muster.spec.wording import Refused, say

_POWERS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
#: Characters of a number: its sums and products are far from the largest `Decimal`.
_LONGEST = 100
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")


def parse_quantity(value: object) -> Decimal:
    """The number that a quantity stands for. Raises Refused (a ValueError)."""
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise Refused(f"{say(value)} is not a quantity", "write 500m, 2 or 4Gi")
    number, exponent, unit = match.groups()
    if len(number) > _LONGEST or (exponent and len(exponent) > 5):
        raise Refused(f"{say(value)} is out of range", "write 500m, 2 or 4Gi")
    made = Decimal(number + (exponent or "")) * _POWERS[unit or ""]
    if made < 0:
        raise Refused(f"{say(value)} is negative", "write 500m, 2 or 4Gi")
    return made


def format_cpus(cpus: float) -> str:
    """A number of CPUs as a quantity, in the shortest form."""
    exact = Decimal(repr(cpus))
    if exact == exact.to_integral_value():
        return str(int(exact))
    milli = exact * 1000
    return f"{int(milli)}m" if milli == milli.to_integral_value() else f"{exact:f}"


def format_bytes(size: int) -> str:
    """A size as a quantity, in the largest exact unit."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        count, rest = divmod(size, int(_POWERS[unit]))
        if not rest:
            return f"{count}{unit}"
    return str(size)
