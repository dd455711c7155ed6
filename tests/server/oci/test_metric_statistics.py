"""What is calculated of the points in intervals."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.server.oci import metric_statistics
from muster.server.oci.metric_statistics import STATISTICS, Sample, percentile, summaries


def of(name: str, points: list[Sample]) -> float | None:
    """The value of a statistic, calculated as it is defined."""
    values, count = [point.value for point in points], sum(point.count for point in points)
    total = sum(point.value * point.count for point in points)
    growth = sum(max(0.0, after - before) for before, after in pairwise(values))
    seconds = points[-1].time - points[0].time
    found = {"count": count, "sum": total, "min": min(values), "max": max(values)}
    found |= {"first": values[0], "last": values[-1], "mean": total / count, "avg": total / count}
    if name == "increment":
        return growth if len(points) > 1 else None
    if name == "rate":
        return growth / seconds if seconds else None
    return found[name]


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[Sample], list[tuple[int, int]]]:
    """Points, and windows of them that move on."""
    values = draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))
    points = [Sample(at, value, 1 + at % 2) for at, value in enumerate(values)]
    found, first, beyond = [], 0, 1
    for step, more in draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12)):
        first = min(first + step, len(points) - 1)
        beyond = min(max(beyond + more, first + 1), len(points))
        found.append((first, beyond))
    return points, found


@pytest.mark.parametrize("name", STATISTICS)
@given(drawn=windows())
def test_each_window_has_the_value_of_its_points(
    name: str, drawn: tuple[list[Sample], list[tuple[int, int]]]
) -> None:
    points, chosen = drawn
    found = [*STATISTICS[name].values(points, chosen)]
    assert found == [of(name, points[first:beyond]) for first, beyond in chosen]


def test_each_point_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, summarize = list[Sample](), metric_statistics.summarize

    def counted(point: Sample) -> metric_statistics.Summary:
        looked.append(point)
        return summarize(point)

    monkeypatch.setattr(metric_statistics, "summarize", counted)
    points = [Sample(at, 1.0) for at in range(1000)]
    chosen = [(max(0, end - 500), end) for end in range(1, 1001)]
    counts = [found.count for found in summaries(points, chosen)]
    assert counts == [min(end, 500) for end in range(1, 1001)]
    assert len(looked) <= 3 * len(points)


def test_percentiles_count_points_as_often_as_they_occurred() -> None:
    points = [Sample(0.0, 1.0, count=9), Sample(1.0, 5.0)]
    assert [*percentile(0.9).values(points, [(0, 2), (1, 2)])] == [1.0, 5.0]
