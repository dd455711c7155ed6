"""Points of metrics of the OCI API: what job runs use, and what programs have posted.

    metric-points/PROJECT/NAMESPACE/20261128    a point in each line, as JSON; of one day (UTC)

A day that is too large loses its older half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import msgspec
from msgspec import Struct

from muster.storage import line_files
from muster.storage.home import Home
from muster.type_info import compile_type

#: Seconds for which points are kept (OCI: 90 days).
RETENTION = 90 * 86400.0
#: Bytes of a day.
_MOST = 64 << 20
_DAY = 86400.0


class Point(Struct, frozen=True, array_like=True):
    """A value of a metric at a time."""

    name: str
    dimensions: Mapping[str, str]
    time: float
    """Epoch seconds."""
    value: float
    count: float = 1
    """How often the value occurred."""
    resource_group: str = ""


def append(home: Home, project: str, namespace: str, points: Iterable[Point]) -> None:
    """Add points to a namespace of a project."""
    by_day = sorted(points, key=lambda point: point.time)
    for day, found in groupby(by_day, lambda point: _day(point.time)):
        data = b"".join(msgspec.json.encode(point) + b"\n" for point in found)
        line_files.append(_folder(home, project) / namespace / day, data, _MOST)


def points(home: Home, project: str, namespace: str, start: float, end: float) -> Iterator[Point]:
    """The points of a namespace from a time to another one, both included (epoch seconds)."""
    compile_type(Point)
    decoder = msgspec.json.Decoder(Point)
    for day in _days(_folder(home, project) / namespace):
        if _day(start) <= day.name <= _day(end):
            for line in line_files.lines(day):
                point = decoder.decode(line)
                if start <= point.time <= end:
                    yield point


def namespaces(home: Home, project: str) -> list[str]:
    """The namespaces of a project that have points, by name."""
    return sorted(path.name for path in _children(_folder(home, project)))


def remove_old(home: Home, now: float) -> None:
    """Delete what is older than `RETENTION`. now: epoch seconds."""
    oldest = _day(now - RETENTION)
    for project in _children(home.metric_points):
        for namespace in _children(project):
            for day in _days(namespace):
                if day.name < oldest:
                    day.unlink(missing_ok=True)


def _folder(home: Home, project: str) -> Path:
    return home.metric_points / project


def _day(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y%m%d}"


def _days(folder: Path) -> list[Path]:
    return sorted(path for path in _children(folder) if path.name.isdigit())


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
