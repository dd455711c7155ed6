"""Metrics of job runs, and those that programs post (OCI: Monitoring API 20180401)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from muster.caller import Chooser
from muster.describe.times import time_text_ms
from muster.iam.resources import variables_of_metrics
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci import metric_query
from muster.server.oci.errors import OciError, invalid
from muster.server.oci.moments import epoch
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.server.oci.value_pages import value_page
from muster.spec.formats.oci.model import Wire, plain
from muster.storage import metric_points
from muster.storage.home import Home
from muster.storage.metric_points import Point

#: Metrics of a request, and dimensions of a metric (OCI).
_MOST_METRICS, _MOST_DIMENSIONS = 50, 20
#: Seconds by which a point may be before and after now (OCI: near the present time).
_BEFORE, _AFTER = 2 * 3600.0, 600.0
#: Streams and values of an answer (OCI).
_MOST_STREAMS, _MOST_VALUES = 2000, 100_000
#: Points that one request reads; points and intervals that it looks at to calculate values.
_MOST_READ, _MOST_CALCULATED = 2_000_000, 5_000_000
#: Namespaces of a project: each is a folder.
_MOST_NAMESPACES = 1000
#: Seconds that a query looks at by default, and metrics are listed for (OCI).
_SPAN, _LISTED = 3 * 3600.0, 14 * 86400.0
_RESERVED = ("oci_", "oracle_")
_GROUPS = ("namespace", "name", "resourceGroup")


class _Budget:
    """Counts what a request costs, and ends it at a limit."""

    def __init__(self, limit: int, what: str) -> None:
        """what: exceeds the limit, and what to do about it."""
        self._left, self._what = limit, what

    def spend(self, amount: int) -> None:
        """Raises OciError if that is too much."""
        self._left -= amount
        if self._left < 0:
            raise OciError(400, "LimitExceeded", self._what)


class _Costs:
    """What one request may cost."""

    def __init__(self) -> None:
        shorter = "choose a shorter time"
        self.read = _Budget(
            _MOST_READ, f"over {_MOST_READ:,} points are looked at; {shorter}, or name a namespace"
        )
        self.calculated = _Budget(
            _MOST_CALCULATED,
            f"over {_MOST_CALCULATED:,} points and intervals would be looked at; {shorter}, or a "
            "longer resolution",
        )
        self.values = _Budget(
            _MOST_VALUES,
            f"the answer would have over {_MOST_VALUES:,} values; {shorter}, or a longer interval",
        )
        self.streams = _Budget(
            _MOST_STREAMS, f"over {_MOST_STREAMS} metric streams are found; name fewer"
        )


class Datapoint(Wire, frozen=True, kw_only=True):
    """OCI: Datapoint."""

    timestamp: datetime
    value: float
    count: float | None = None


class MetricDataDetails(Wire, frozen=True, kw_only=True):
    """OCI: MetricDataDetails."""

    namespace: str
    compartment_id: str
    name: str
    dimensions: dict[str, str]
    datapoints: list[Datapoint]
    resource_group: str | None = None
    metadata: dict[str, str] | None = None


class PostMetricData(Wire, frozen=True, kw_only=True):
    """OCI: PostMetricDataDetails."""

    metric_data: list[MetricDataDetails]
    batch_atomicity: str | None = None


class SummarizeMetricsData(Wire, frozen=True, kw_only=True):
    """OCI: SummarizeMetricsDataDetails."""

    namespace: str
    query: str
    resource_group: str | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    resolution: str | None = None


class ListMetrics(Wire, frozen=True, kw_only=True):
    """OCI: ListMetricsDetails."""

    name: str | None = None
    namespace: str | None = None
    resource_group: str | None = None
    dimension_filters: dict[str, str] | None = None
    group_by: list[str] | None = None
    sort_by: str | None = None
    sort_order: str | None = None


def post_metric_data(request: OciRequest) -> Answer:
    """POST /metrics"""
    given, now = request.read(PostMetricData), time.time()
    if given.batch_atomicity not in (None, "ATOMIC", "NON_ATOMIC"):
        raise invalid("batchAtomicity has to be ATOMIC or NON_ATOMIC")
    if not 0 < len(given.metric_data) <= _MOST_METRICS:
        raise invalid(f"metricData has to have 1 to {_MOST_METRICS} metrics")
    projects = [request.project_of(metric.compartment_id) for metric in given.metric_data]
    both = list(zip(given.metric_data, projects, strict=True))
    for project, namespace in {(project, metric.namespace) for metric, project in both}:
        request.require(project, request.permission, variables_of_metrics(namespace))
    wrong = {at: text for at, one in enumerate(given.metric_data) if (text := _wrong(one, now))}
    if wrong and (given.batch_atomicity == "ATOMIC" or len(wrong) == len(projects)):
        raise invalid("; ".join(f"metricData[{at}]: {text}" for at, text in wrong.items()))
    home = request.state.backend.home
    right = [one for at, one in enumerate(both) if at not in wrong]
    _check_namespaces(home, {(project, metric.namespace) for metric, project in right})
    for metric, project in right:
        metric_points.append(home, project, metric.namespace, _points(metric))
    failed = [
        {"message": text, "metricData": plain(given.metric_data[at])} for at, text in wrong.items()
    ]
    return Answer(encoded({"failedMetricsCount": len(failed), "failedMetrics": failed}))


def _check_namespaces(home: Home, given: set[tuple[str, str]]) -> None:
    """Raises OciError if a project would have too many namespaces."""
    for project in {project for project, _ in given}:
        known = {*metric_points.namespaces(home, project)}
        new = {name for one, name in given if one == project} - known
        if new and len(known) + len(new) > _MOST_NAMESPACES:
            text = f"the compartment has {len(known)} namespaces; the most are {_MOST_NAMESPACES}"
            raise OciError(400, "LimitExceeded", f"{text}; use one that it has")


def _points(metric: MetricDataDetails) -> Iterator[Point]:
    for point in metric.datapoints:
        at, count = point.timestamp.timestamp(), point.count or 1
        group = metric.resource_group or ""
        yield Point(metric.name, metric.dimensions, at, point.value, count, group)


def _wrong(metric: MetricDataDetails, now: float) -> str:
    """What is wrong with a metric, in one sentence; "" if nothing is."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,254}", metric.namespace):
        return "namespace has to be letters, digits and underscores, with a letter first"
    if metric.namespace.startswith(_RESERVED):
        return f"namespace begins with {' or '.join(_RESERVED)}, which are reserved"
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.$-]{0,254}", metric.name):
        return "name has to be letters, digits and any of . _ - $, with a letter first"
    if not re.fullmatch(r"([A-Za-z][A-Za-z0-9_.$-]{0,254})?", metric.resource_group or ""):
        return "resourceGroup has to be letters, digits and any of . _ - $, with a letter first"
    return _wrong_dimensions(metric.dimensions) or _wrong_datapoints(metric.datapoints, now)


def _wrong_dimensions(dimensions: Mapping[str, str]) -> str:
    if not 0 < len(dimensions) <= _MOST_DIMENSIONS:
        return f"there have to be 1 to {_MOST_DIMENSIONS} dimensions"
    for key, value in dimensions.items():
        if not re.fullmatch(r"[!-~]{1,256}", key):
            return f"the dimension {key[:100]!r} is not 1 to 256 printable characters of ASCII"
        if not 0 < len(value) <= 512:
            return f"the value of the dimension {key[:100]!r} does not have 1 to 512 characters"
    return ""


def _wrong_datapoints(datapoints: list[Datapoint], now: float) -> str:
    if not datapoints:
        return "there are no datapoints"
    for point in datapoints:
        if point.timestamp.tzinfo is None:
            return f"the timestamp {point.timestamp.isoformat()} has no time zone"
        if not now - _BEFORE < point.timestamp.timestamp() < now + _AFTER:
            text = point.timestamp.isoformat()
            return f"the timestamp {text} is over 2 hours ago, or over 10 minutes ahead"
        if point.count is not None and point.count <= 0:
            return "count has to be greater than 0"
    return ""


def summarize_metrics_data(request: OciRequest) -> Answer:
    """POST /metrics/actions/summarizeMetricsData"""
    projects, given = _projects(request), request.read(SummarizeMetricsData)
    now = time.time()
    end = now if given.end_time is None else max(0.0, epoch(given.end_time))
    start = end - _SPAN if given.start_time is None else epoch(given.start_time)
    start = max(0.0, start)
    if end < start:
        raise invalid("endTime is before startTime")
    try:
        query = metric_query.parse_query(given.query)
        interval = query.seconds(end - start)
        step = metric_query.parse_interval(given.resolution) if given.resolution else interval
    except ValueError as error:
        raise invalid(f"query, resolution: {error}") from None
    if step > interval:
        raise invalid("resolution is longer than the interval of the query")
    home, namespace, costs = request.state.backend.home, _namespace(given.namespace), _Costs()
    found: list[Mapping[str, Any]] = []
    for project, sees in projects:
        if not sees(variables_of_metrics(namespace)):
            continue
        points = _read(metric_points.points(home, project, namespace, start, end), costs)
        chosen = (one for one in points if _in_group(one, given.resource_group))
        for stream in metric_query.streams(query, chosen):
            costs.calculated.spend(metric_query.cost(query, stream, start, end, step))
            values = metric_query.values(query, stream, start, end, step)
            costs.values.spend(len(values))
            if values:
                costs.streams.spend(1)
                common = {"namespace": namespace, "name": query.name}
                common["compartmentId"] = request.compartments.ocid(project)
                found.append({**common, **_shown_stream(stream, values)})
    return Answer(encoded(found))


def _shown_stream(
    stream: metric_query.Stream, values: list[tuple[float, float]]
) -> Mapping[str, Any]:
    return {
        "resourceGroup": stream.resource_group or None,
        "dimensions": stream.dimensions,
        "metadata": {},
        "resolution": None,
        "aggregatedDatapoints": [
            {"timestamp": time_text_ms(at), "value": value} for at, value in values
        ],
    }


def list_metrics(request: OciRequest) -> Answer:
    """POST /metrics/actions/listMetrics"""
    projects, given = _projects(request), request.read(ListMetrics)
    groups = given.group_by or []
    if wrong := [one for one in groups if one not in _GROUPS]:
        raise invalid(f"groupBy: {', '.join(wrong)}; possible are {', '.join(_GROUPS)}")
    if given.sort_by not in (None, "NAMESPACE", "NAME", "RESOURCEGROUP"):
        raise invalid("sortBy has to be NAMESPACE, NAME or RESOURCEGROUP")
    found, costs = dict[bytes, dict[str, Any]](), _Costs()
    for project, sees in projects:
        for namespace, point in _recent(request, project, sees, given, costs):
            shown: dict[str, Any] = {
                "namespace": namespace,
                "name": point.name,
                "resourceGroup": point.resource_group or None,
            }
            if groups:
                shown = {name: shown[name] for name in groups}
            else:
                shown["dimensions"] = point.dimensions
            shown["compartmentId"] = request.compartments.ocid(project)
            found.setdefault(msgspec.json.encode(shown, order="deterministic"), shown)
    names = {"NAMESPACE": "namespace", "RESOURCEGROUP": "resourceGroup"}
    name = names.get(given.sort_by or "", "name")
    ordered = sorted(
        found.values(),
        key=lambda one: str(one.get(name) or ""),
        reverse=(given.sort_order or "ASC").upper() == "DESC",
    )
    return value_page(request, ordered)


def _recent(
    request: OciRequest, project: str, sees: Chooser, given: ListMetrics, costs: _Costs
) -> Iterator[tuple[str, Point]]:
    """The points of a project that fit, with their namespaces, of those that the caller sees."""
    home, now = request.state.backend.home, time.time()
    filters = {} if given.group_by else given.dimension_filters or {}
    for namespace in metric_points.namespaces(home, project):
        if given.namespace not in (None, namespace) or not sees(variables_of_metrics(namespace)):
            continue
        points = metric_points.points(home, project, namespace, now - _LISTED, now + _AFTER)
        for point in _read(points, costs):
            fits = given.name in (None, point.name) and _in_group(point, given.resource_group)
            if fits and all(point.dimensions.get(key) == one for key, one in filters.items()):
                yield namespace, point


def _read(points: Iterable[Point], costs: _Costs) -> Iterator[Point]:
    for point in points:
        costs.read.spend(1)
        yield point


def _in_group(point: Point, group: str | None) -> bool:
    return group is None or point.resource_group == group


def _namespace(name: str) -> str:
    """A name that is safe as that of a file. Raises OciError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,254}", name):
        raise invalid("namespace has to be letters, digits and underscores, with a letter first")
    return name


def _projects(request: OciRequest) -> list[tuple[str, Chooser]]:
    """The projects that are asked about, and of which namespaces the caller sees metrics. Raises
    OciError, Forbidden."""
    project = request.project_of(request.required("compartmentId"))
    found = [(project, request.seen(project, request.permission))]
    if request.flag("compartmentIdInSubtree"):
        found += request.below(project, request.permission)
    return found


ROUTES = (
    OciRoute(
        "post_metric_data", "POST", "/20180401/metrics", post_metric_data, Permission.METRIC_WRITE
    ),
    OciRoute(
        "summarize_metrics_data",
        *("POST", "/20180401/metrics/actions/summarizeMetricsData", summarize_metrics_data),
        permission=Permission.METRIC_READ,
    ),
    OciRoute(
        *("list_metrics", "POST", "/20180401/metrics/actions/listMetrics", list_metrics),
        permission=Permission.METRIC_INSPECT,
    ),
)
