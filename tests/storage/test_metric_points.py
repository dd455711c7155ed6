"""Points of metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.storage import metric_points
from muster.storage.home import Home
from muster.storage.metric_points import RETENTION, Point

DAY = 86400.0
#: Noon of a day.
NOON = 20_000 * DAY + DAY / 2


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def point(time: float, value: float = 1.0) -> Point:
    return Point("loss", {"rank": "0"}, time, value)


def read(home: Home, start: float, end: float, project: str = "a") -> list[Point]:
    return list(metric_points.points(home, project, "n", start, end))


def test_points_are_found_by_their_times(home: Home) -> None:
    given = [point(NOON + at) for at in (-DAY, -1.0, 0.0, 1.0, DAY)]
    metric_points.append(home, "a", "n", reversed(given))
    assert read(home, NOON - 2 * DAY, NOON + 2 * DAY) == given
    assert read(home, NOON, NOON + 1) == given[2:4]
    assert read(home, NOON + 0.5, NOON + 0.9) == []
    assert read(home, NOON, NOON + 1, project="b") == []


def test_a_point_is_read_as_it_was_added(home: Home) -> None:
    given = Point("a.b", {"k": 'v"\n', "ü": "x"}, NOON, -1e300, 2.5, "group")
    metric_points.append(home, "a", "n", [given])
    assert read(home, NOON, NOON) == [given]


def test_namespaces_are_listed_by_project(home: Home) -> None:
    assert metric_points.namespaces(home, "a") == []
    for project, namespace in (("a", "y"), ("a", "x"), ("b", "z")):
        metric_points.append(home, project, namespace, [point(NOON)])
    assert metric_points.namespaces(home, "a") == ["x", "y"]


def test_old_days_are_deleted(home: Home) -> None:
    metric_points.remove_old(home, NOON)  # there are none
    old, kept = point(NOON - RETENTION - DAY), point(NOON - RETENTION + DAY)
    metric_points.append(home, "a", "n", [old, kept])
    metric_points.remove_old(home, NOON)
    assert read(home, 0.0, NOON) == [kept]
