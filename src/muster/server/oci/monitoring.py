"""Metrics of job runs, and those that programs post (OCI: Monitoring API 20180401)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from muster.caller import Right
from muster.describe.times import time_text_ms
from muster.server.answers import Answer, encoded
from muster.server.oci import metric_query
from muster.server.oci.errors import OciError, invalid
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.server.oci.value_pages import value_page
from muster.spec.formats.oci.model import Wire, plain
from muster.storage import metric_points
from muster.storage.metric_points import Point

#: Metrics of a request, and dimensions of a metric (OCI).
_MOST_METRICS, _MOST_DIMENSIONS = 50, 20
#: Seconds by which a point may be before and after now (OCI: near the present time).
_BEFORE, _AFTER = 2 * 3600.0, 600.0
#: Streams and values of an answer (OCI).
_MOST_STREAMS, _MOST_VALUES = 2000, 100_000
#: Seconds that a query looks at by default, and metrics are listed for (OCI).
_SPAN, _LISTED = 3 * 3600.0, 14 * 86400.0
_RESERVED = ("oci_", "oracle_")
_GROUPS = ("namespace", "name", "resourceGroup")


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
    for project in projects:
        request.require(project, Right.SUBMIT)
    wrong = {at: text for at, one in enumerate(given.metric_data) if (text := _wrong(one, now))}
    if wrong and (given.batch_atomicity == "ATOMIC" or len(wrong) == len(projects)):
        raise invalid("; ".join(f"metricData[{at}]: {text}" for at, text in wrong.items()))
    home = request.state.backend.home
    for at, (metric, project) in enumerate(zip(given.metric_data, projects, strict=True)):
        if at not in wrong:
            metric_points.append(home, project, metric.namespace, _points(metric))
    failed = [
        {"message": text, "metricData": plain(given.metric_data[at])} for at, text in wrong.items()
    ]
    return Answer(encoded({"failedMetricsCount": len(failed), "failedMetrics": failed}))


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
            text = time_text_ms(point.timestamp.timestamp())
            return f"the timestamp {text} is over 2 hours ago, or over 10 minutes ahead"
        if point.count is not None and point.count <= 0:
            return "count has to be greater than 0"
    return ""


def summarize_metrics_data(request: OciRequest) -> Answer:
    """POST /metrics/actions/summarizeMetricsData"""
    projects, given = _projects(request), request.read(SummarizeMetricsData)
    now = time.time()
    end = now if given.end_time is None else given.end_time.timestamp()
    start = end - _SPAN if given.start_time is None else given.start_time.timestamp()
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
    home, left = request.state.backend.home, _MOST_VALUES
    found: list[Mapping[str, Any]] = []
    for project in projects:
        points = metric_points.points(home, project, _namespace(given.namespace), start, end)
        chosen = (one for one in points if _in_group(one, given.resource_group))
        for stream in metric_query.streams(query, chosen):
            values = metric_query.values(query, stream, start, end, step)
            left -= len(values)
            if left < 0 or len(found) == _MOST_STREAMS:
                raise OciError(
                    *(400, "LimitExceeded"),
                    f"the answer would have over {_MOST_STREAMS} metric streams or "
                    f"{_MOST_VALUES:,} values; choose a shorter time or a longer interval",
                )
            if values:
                found.append(
                    {
                        "namespace": given.namespace,
                        "resourceGroup": stream.resource_group or None,
                        "compartmentId": request.compartments.ocid(project),
                        "name": query.name,
                        "dimensions": stream.dimensions,
                        "metadata": {},
                        "resolution": None,
                        "aggregatedDatapoints": [
                            {"timestamp": time_text_ms(at), "value": value} for at, value in values
                        ],
                    }
                )
    return Answer(encoded(found))


def list_metrics(request: OciRequest) -> Answer:
    """POST /metrics/actions/listMetrics"""
    projects, given = _projects(request), request.read(ListMetrics)
    groups = given.group_by or []
    if wrong := [one for one in groups if one not in _GROUPS]:
        raise invalid(f"groupBy: {', '.join(wrong)}; possible are {', '.join(_GROUPS)}")
    if given.sort_by not in (None, "NAMESPACE", "NAME", "RESOURCEGROUP"):
        raise invalid("sortBy has to be NAMESPACE, NAME or RESOURCEGROUP")
    found: dict[bytes, dict[str, Any]] = {}
    for project in projects:
        for namespace, point in _recent(request, project, given):
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


def _recent(request: OciRequest, project: str, given: ListMetrics) -> Iterator[tuple[str, Point]]:
    home, now = request.state.backend.home, time.time()
    filters = {} if given.group_by else given.dimension_filters or {}
    for namespace in metric_points.namespaces(home, project):
        if given.namespace not in (None, namespace):
            continue
        for point in metric_points.points(home, project, namespace, now - _LISTED, now + _AFTER):
            fits = given.name in (None, point.name) and _in_group(point, given.resource_group)
            if fits and all(point.dimensions.get(key) == one for key, one in filters.items()):
                yield namespace, point


def _in_group(point: Point, group: str | None) -> bool:
    return group is None or point.resource_group == group


def _namespace(name: str) -> str:
    """A name that is safe as that of a file. Raises OciError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,254}", name):
        raise invalid("namespace has to be letters, digits and underscores, with a letter first")
    return name


def _projects(request: OciRequest) -> list[str]:
    """The projects that are asked about. Raises OciError."""
    project = request.project_with(request.required("compartmentId"), Right.READ)
    if not request.flag("compartmentIdInSubtree"):
        return [project]
    return [project, *request.below(project)]


ROUTES = (
    OciRoute("post_metric_data", "POST", "/20180401/metrics", post_metric_data),
    OciRoute(
        "summarize_metrics_data",
        *("POST", "/20180401/metrics/actions/summarizeMetricsData", summarize_metrics_data),
    ),
    OciRoute("list_metrics", "POST", "/20180401/metrics/actions/listMetrics", list_metrics),
)
