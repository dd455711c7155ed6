"""Sets of ranks, or of numbers of replicas, as text: `0-3,7`."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from itertools import pairwise
from operator import sub

#: Ranges that people are shown as a whole, whatever they have.
_FEW = 3


def format_ranks(ranks: Iterable[int]) -> str:
    """Ranks in ascending order, consecutive ones as a range: `0-3,7`."""
    from muster.spec.replica_numbers import format_ranges  # most commands write none

    return format_ranges(to_ranges(ranks))


def to_ranges(ranks: Iterable[int]) -> list[range]:
    """Ranks as the fewest ranges, in ascending order."""
    ordered = sorted(ranks)
    steps = map(sub, ordered[1:], ordered)
    starts = [0, *(index for index, step in enumerate(steps, 1) if step != 1)]
    bounds = pairwise([*starts, len(ordered)])
    return [range(ordered[first], ordered[end - 1] + 1) for first, end in bounds if ordered]


def shortened_ranks(ranks: Iterable[int], most: int = 10, count: int | None = None) -> str:
    """Ranks for people, all if they are a few ranges, else the first `most` of them: `4, 17, 40-41
    and 7 more`. count: how many they are, if `ranks` are only the first."""
    found = list(ranks)
    if count in (None, len(found)) and len(found) > most:
        ranges = to_ranges(found)
        if len(ranges) <= _FEW:
            return format_ranks(found).replace(",", ", ")
    text = format_ranks(nsmallest(most, found)).replace(",", ", ")
    left = (len(found) if count is None else count) - min(len(found), most)
    return f"{text} and {left:,} more" if left > 0 else text


def parse_ranks(text: str) -> list[int]:
    """The inverse of `format_ranks`."""
    return [rank for part in parse_ranges(text) for rank in part]


def parse_ranges(text: str) -> list[range]:
    """The ranges of a text of `format_ranks`."""
    ranges = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ranges.append(range(int(first), int(last or first) + 1))
    return ranges
