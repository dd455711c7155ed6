"""The language of metric queries (OCI: Monitoring Query Language): what clients use of it. Pure.

    CpuUtilization[1m]{resourceId = "OCID"}.groupBy(node).mean() > 80

A value is calculated for each stream: the points with the same dimensions; `groupBy` makes one of
those with the same values of some, `grouping` one of all. The time of a value is the end of its
interval (OCI).
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import ceil
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError
from msgspec import Struct

from muster.server.oci.metric_statistics import STATISTICS, Sample, Statistic, percentile
from muster.server.oci.query_text import place_of, unquoted
from muster.spec.wildcards import matcher
from muster.storage.metric_points import Point

#: Which streams are chosen, by their dimensions.
Condition = Callable[[Mapping[str, str]], bool]
_GRAMMAR = r"""
    query: NAME "[" INTERVAL "]" filter? grouping? "." statistic predicate?
    ?filter: "{" either "}"
    ?either: both ("||" both)*          -> either
    ?both: comparison (("," | "&&") comparison)* -> both
    ?comparison: KEY COMPARISON STRING  -> comparison
        | KEY "in"i "(" STRING ("," STRING)* ")" -> among
        | KEY "not"i "in"i "(" STRING ("," STRING)* ")" -> not_among
        | "(" either ")"
    grouping: "." "grouping" "(" ")"
        | "." "groupBy" "(" KEY ("," KEY)* ")" -> group_by
    statistic: STATISTIC "(" NUMBER? ")"
    predicate: ORDER NUMBER
        | "in"i "(" NUMBER "," NUMBER ")" -> between
        | "not"i "in"i "(" NUMBER "," NUMBER ")" -> outside
    STATISTIC: "avg" | "count" | "first" | "increment" | "last" | "max" | "mean" | "min"
        | "percentile" | "rate" | "sum"
    COMPARISON: "=~" | "!=" | "="
    ORDER: "==" | "!=" | "<=" | ">=" | "<" | ">"
    INTERVAL: /[0-9]{1,5}[mhd]/ | "auto"
    NAME: /[A-Za-z][A-Za-z0-9_.$-]*/
    KEY: /[A-Za-z_@\/][A-Za-z0-9_@\/:$-]*/
    STRING: /"(\\.|[^"\\])*"/
    NUMBER: /-?[0-9]+(\.[0-9]+)?/
    %import common.WS
    %ignore WS
"""
_LONGEST = 10_000
#: Nested parentheses: the parser and the transformer call themselves for each.
_DEEPEST = 100
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}
#: Seconds of the longest interval (OCI).
_LONGEST_INTERVAL = 86400.0
#: Values of an answer for `auto`, about.
_AUTOMATIC = 100


class MetricQuery(Struct, frozen=True):
    """What is calculated."""

    name: str
    statistic: Statistic
    interval: float | None
    """Seconds; None: chosen by the time that is searched (`auto`)."""
    fits: Condition
    group_by: Sequence[str] | None = None
    """Dimensions by which streams are grouped; none: all are one; None: each is by itself."""
    keeps: Callable[[float], bool] | None = None
    """Which values are returned; None: all."""

    def seconds(self, span: float) -> float:
        """The interval for a search over so many seconds."""
        if self.interval is not None:
            return self.interval
        found = next((one for one in (60.0, 300.0, 3600.0) if span / one <= _AUTOMATIC), None)
        return found or _LONGEST_INTERVAL


class Stream(Struct, frozen=True):
    """Points of a metric that belong together."""

    resource_group: str
    dimensions: Mapping[str, str]
    points: Sequence[Sample]
    """By time."""


def parse_query(text: str) -> MetricQuery:
    """Read a query. Raises ValueError that says where it is wrong."""
    if len(text) > _LONGEST:
        raise ValueError(f"the query has {len(text):,} characters; the most are {_LONGEST:,}")
    if text.count("(") > _DEEPEST:
        raise ValueError(f"the query is nested more than {_DEEPEST} times")
    try:
        query: MetricQuery = _Reader().transform(_parser().parse(text))
    except UnexpectedInput as error:
        raise ValueError(place_of(text, error)) from None
    except VisitError as error:
        raise ValueError(str(error.orig_exc)) from None
    return query


def parse_interval(text: str) -> float:
    """The seconds of an interval such as `5m`. Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,5})([mhd])", text)
    seconds = 0.0 if found is None else int(found[1]) * _SECONDS[found[2]]
    if not 0 < seconds <= _LONGEST_INTERVAL:
        raise ValueError(f"{text!r} is not an interval: 1m to 60m, 1h to 24h, or 1d")
    return seconds


def streams(query: MetricQuery, points: Iterable[Point]) -> list[Stream]:
    """The streams of a query, in the order of their dimensions."""
    found: dict[Any, list[Sample]] = {}
    for point in points:
        if point.name != query.name or not query.fits(point.dimensions):
            continue
        names: Iterable[str] = point.dimensions if query.group_by is None else query.group_by
        key = tuple(sorted((name, point.dimensions.get(name, "")) for name in names))
        sample = Sample(point.time, point.value, point.count)
        found.setdefault((point.resource_group, key), []).append(sample)
    return [
        Stream(group, dict(key), sorted(samples, key=lambda one: one.time))
        for (group, key), samples in sorted(found.items(), key=lambda item: item[0])
    ]


def values(
    query: MetricQuery, stream: Stream, start: float, end: float, step: float
) -> list[tuple[float, float]]:
    """The values of a stream: the ends of their intervals (epoch seconds), `step` seconds apart,
    and the values. Intervals without points have none. The last one may end after `end`."""
    interval = query.seconds(end - start)
    found = _windows(stream.points, start, end, interval, step)
    windows = [(first, beyond) for _, first, beyond in found]
    values = query.statistic.values(stream.points, windows)
    return [
        (at, value)
        for (at, _, _), value in zip(found, values, strict=True)
        if value is not None and (query.keeps is None or query.keeps(value))
    ]


def cost(query: MetricQuery, stream: Stream, start: float, end: float, step: float) -> int:
    """How many points and intervals are looked at, at most, to calculate the values of a stream."""
    points, overlap = len(stream.points), ceil(query.seconds(end - start) / step)
    windows = min(ceil((end - start) / step) + overlap, points * (overlap + 1))
    return windows + points * (overlap if query.statistic.repeats else 1)


def _windows(
    points: Sequence[Sample], start: float, end: float, interval: float, step: float
) -> list[tuple[float, int, int]]:
    """The intervals that have points: where each ends, and the window of its points."""
    if not points:
        return []
    times = [point.time for point in points]
    found = []
    at = ceil(max(start, times[0]) / step) * step
    while at - interval < times[-1] and at - step < end:
        first, beyond = bisect_right(times, at - interval), bisect_right(times, at)
        if first == beyond:  # the next interval that has a point
            at = max(at + step, ceil(times[first] / step) * step)
            continue
        found.append((at, first, beyond))
        at += step
    return found


_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


# Parser


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, start="query", parser="lalr")


class _Part(Struct, frozen=True):
    """What a part of the query sets."""

    changes: Mapping[str, Any]


class _Reader(Transformer[Token, Any]):
    """Makes a `MetricQuery` of what was parsed."""

    def query(self, parts: list[Any]) -> MetricQuery:
        name, interval, *others = parts
        found: dict[str, Any] = {"fits": lambda _: True}
        for part in others:
            found |= part.changes if isinstance(part, _Part) else {"fits": part}
        seconds = None if interval == "auto" else parse_interval(str(interval))
        return MetricQuery(str(name), interval=seconds, **found)

    def either(self, parts: list[Condition]) -> Condition:
        return lambda given: any(fits(given) for fits in parts)

    def both(self, parts: list[Condition]) -> Condition:
        return lambda given: all(fits(given) for fits in parts)

    def comparison(self, parts: list[Token]) -> Condition:
        key, sign, value = str(parts[0]), str(parts[1]), unquoted(parts[2])
        if sign == "=":
            return lambda given: given.get(key) == value
        if sign == "!=":
            return lambda given: given.get(key) != value
        tests = [matcher(pattern) for pattern in value.split("|")]
        return lambda given: key in given and any(test(given[key]) for test in tests)

    def among(self, parts: list[Token]) -> Condition:
        key, found = str(parts[0]), {unquoted(part) for part in parts[1:]}
        return lambda given: given.get(key) in found

    def not_among(self, parts: list[Token]) -> Condition:
        among = self.among(parts)
        return lambda given: not among(given)

    def grouping(self, _parts: list[Any]) -> _Part:
        return _Part({"group_by": ()})

    def group_by(self, parts: list[Token]) -> _Part:
        return _Part({"group_by": tuple(map(str, parts))})

    def statistic(self, parts: list[Token]) -> _Part:
        name, given = str(parts[0]), [float(part) for part in parts[1:]]
        if name != "percentile":
            if given:
                raise ValueError(f"{name}() takes no number")
            return _Part({"statistic": STATISTICS[name]})
        if not given or not 0 < given[0] < 1:
            raise ValueError("percentile() takes a number between 0 and 1, such as 0.95")
        return _Part({"statistic": percentile(given[0])})

    def predicate(self, parts: list[Token]) -> _Part:
        holds, bound = _ORDERS[str(parts[0])], float(parts[1])
        return _Part({"keeps": lambda value: holds(value, bound)})

    def between(self, parts: list[Token]) -> _Part:
        least, most = map(float, parts)
        return _Part({"keeps": lambda value: least <= value <= most})

    def outside(self, parts: list[Token]) -> _Part:
        least, most = map(float, parts)
        return _Part({"keeps": lambda value: not least <= value <= most})
