"""Numbers of replicas or ranks as text: `3,17,40-42`. Pure.

This is what users write; `lifecycle.ranks` reads the shortest form, which needs no checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_PART = r"(\d{1,18})(?:-(\d{1,18}))?"
#: Numbers of replicas are less, whatever an array has: their text stays short.
_LIMIT = 10**9
#: Numbers that are listed one by one are less: a mistyped range must not fill the memory.
MOST_LISTED = 1_000_000


def parse_numbers(
    text: str, noun: str = "replica number", limit: int = _LIMIT
) -> tuple[range, ...]:
    """Disjoint ranges in ascending order. noun: what one is, for messages. limit: all are less.
    Raises Refused."""
    from muster.spec.wording import Refused, short

    spans = []
    for part in map(str.strip, text.split(",")):
        match = re.fullmatch(_PART, part, re.ASCII)
        if match is None:
            raise Refused(f"{short(part)} is not a {noun}", "write 3 or 3,17,40-42")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise Refused(f"{part} is an empty range", f"write {last}-{first}")
        if last >= limit:
            raise Refused(f"a {noun} is less than {limit:,}, not {last}")
        spans.append(range(first, last + 1))
    return tuple(_joined(spans))


def format_ranges(ranges: Iterable[range]) -> str:
    """The shortest text of the numbers in some ranges, in any order, also overlapping."""
    return ",".join(
        str(span.start) if len(span) == 1 else f"{span.start}-{span.stop - 1}"
        for span in _joined(span for span in ranges if span)
    )


def numbers_text(value: Any) -> Any:
    """Numbers as text in the shortest form, from text, a number or a list of numbers. Values of
    other types are returned as they are. Raises Refused."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        value = str(value)
    elif isinstance(value, (list, tuple, range, set, frozenset)):
        value = ",".join(str(number) for number in value)
    return format_ranges(parse_numbers(value)) if isinstance(value, str) else value


def _joined(spans: Iterable[range]) -> Iterator[range]:
    """The numbers of the spans, each once and in order."""
    current: range | None = None
    for span in sorted(spans, key=lambda span: span.start):
        if current is not None and span.start <= current.stop:
            current = range(current.start, max(current.stop, span.stop))
            continue
        if current is not None:
            yield current
        current = span
    if current is not None:
        yield current
