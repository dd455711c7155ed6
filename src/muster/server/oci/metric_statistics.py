"""What metric queries calculate of the points in intervals. Pure.

Intervals overlap if they are longer than the time from one to the next: with an interval of a day
each minute, a point is in 1,440. Points in a row are summarized, and summaries are joined, so that
each point is looked at a few times only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

#: Where the points of an interval begin and end among all points; later ones follow.
Window = tuple[int, int]


class Sample(Struct, frozen=True, gc=False):
    """What statistics need of a point: a query may keep a million, each with a fifth of the memory
    that the point takes."""

    time: float
    """Epoch seconds."""
    value: float
    count: float = 1
    """How often the value occurred."""


class Summary(Struct, frozen=True):
    """What statistics need of some points in a row."""

    first: Sample
    last: Sample
    total: float
    count: float
    least: float
    most: float
    growth: float
    """By how much the values grew. A smaller value means that the counter was reset."""


class Statistic(Struct, frozen=True):
    """How values are calculated."""

    values: Callable[[Sequence[Sample], Iterable[Window]], Iterator[float | None]]
    """The value of each window, none of which is empty; None: it has none."""
    repeats: bool = False
    """Whether it looks at each point once for each window that has it."""


def summarize(point: Sample) -> Summary:
    """The summary of one point."""
    value = point.value
    return Summary(point, point, value * point.count, point.count, value, value, 0.0)


def join(one: Summary, other: Summary) -> Summary:
    """The summary of the points of two, of which the other's follow."""
    step = other.first.value - one.last.value
    return Summary(
        one.first,
        other.last,
        one.total + other.total,
        one.count + other.count,
        min(one.least, other.least),
        max(one.most, other.most),
        one.growth + max(step, 0.0) + other.growth,
    )


def summaries(points: Sequence[Sample], windows: Iterable[Window]) -> Iterator[Summary]:
    """The summary of each window, as a queue of two stacks aggregates a sliding window.

    A place among the points divides the windows: before it, the summaries of all that begin there
    are known; behind it, one grows with the windows. Once a window begins behind it, it moves to
    that window's end.
    """
    known: list[Summary] = []
    place = end = 0
    behind: Summary | None = None
    for first, beyond in windows:
        for point in points[end:beyond]:
            behind = summarize(point) if behind is None else join(behind, summarize(point))
        end = beyond
        if first >= place:
            known = [summarize(points[beyond - 1])]
            for point in reversed(points[first : beyond - 1]):
                known.append(join(summarize(point), known[-1]))
            place, behind = beyond, None
        found = known[place - 1 - first]
        yield found if behind is None else join(found, behind)


def _of_summary(value: Callable[[Summary], float | None]) -> Statistic:
    return Statistic(lambda points, windows: map(value, summaries(points, windows)))


def _increment(found: Summary) -> float | None:
    return None if found.first is found.last else found.growth


def _rate(found: Summary) -> float | None:
    """The growth in a second."""
    seconds = found.last.time - found.first.time
    return found.growth / seconds if seconds else None


_MEAN = _of_summary(lambda found: found.total / found.count)
#: By their names in queries.
STATISTICS: Mapping[str, Statistic] = {
    "avg": _MEAN,
    "count": _of_summary(lambda found: found.count),
    "first": _of_summary(lambda found: found.first.value),
    "increment": _of_summary(_increment),
    "last": _of_summary(lambda found: found.last.value),
    "max": _of_summary(lambda found: found.most),
    "mean": _MEAN,
    "min": _of_summary(lambda found: found.least),
    "rate": _of_summary(_rate),
    "sum": _of_summary(lambda found: found.total),
}


def percentile(share: float) -> Statistic:
    """The value that a share of the points does not exceed."""

    def value(points: Sequence[Sample]) -> float:
        ordered = sorted(points, key=lambda point: point.value)
        left = share * sum(point.count for point in ordered)
        for point in ordered:
            left -= point.count
            if left <= 0:
                return point.value
        return ordered[-1].value

    def values(points: Sequence[Sample], windows: Iterable[Window]) -> Iterator[float | None]:
        return (value(points[first:beyond]) for first, beyond in windows)

    return Statistic(values, repeats=True)
