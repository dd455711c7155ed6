"""Metrics, with the SDK."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from oci.exceptions import ServiceError
from oci.monitoring import MonitoringClient, models

from muster.server.oci import monitoring
from muster.spec.ocids import TENANCY
from support.oci_teams import SOUND, VISION, OciTeams

#: A whole minute, not long ago.
NOW = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=10)


def metric(
    name: str, values: dict[float, float], compartment: str = VISION, **given: Any
) -> models.MetricDataDetails:
    """A metric with values at so many seconds after `NOW`."""
    points = [
        models.Datapoint(timestamp=NOW + timedelta(seconds=at), value=value, count=1)
        for at, value in values.items()
    ]
    given = {"namespace": "training", "dimensions": {"rank": "0"}, **given}
    return models.MetricDataDetails(
        compartment_id=compartment, name=name, datapoints=points, **given
    )


def post(oci: OciTeams, *metrics: Any, user: str = "anouk", atomicity: str | None = None) -> Any:
    details = models.PostMetricDataDetails(metric_data=[*metrics], batch_atomicity=atomicity)
    return oci.client(MonitoringClient, user).post_metric_data(details).data


def summarize(
    oci: OciTeams, query: str, compartment: str = VISION, user: str = "anouk", **given: Any
) -> list[Any]:
    subtree = given.pop("subtree", None)
    details = models.SummarizeMetricsDataDetails(
        **{"namespace": "training", "query": query, "start_time": NOW, **given}
    )
    options = {} if subtree is None else {"compartment_id_in_subtree": subtree}
    client = oci.client(MonitoringClient, user)
    found: list[Any] = client.summarize_metrics_data(compartment, details, **options).data
    return found


def points(stream: Any) -> list[tuple[int, float]]:
    """The values with the seconds after `NOW` of their times."""
    return [
        (round((point.timestamp - NOW).total_seconds()), point.value)
        for point in stream.aggregated_datapoints
    ]


def test_values_that_a_program_posts_are_summarized(oci: OciTeams) -> None:
    reply = post(
        oci,
        metric("loss", {10: 4.0, 20: 2.0, 70: 1.0}),
        metric("loss", {10: 8.0}, dimensions={"rank": "1"}, resource_group="b"),
    )
    assert reply.failed_metrics_count == 0
    (first, second) = summarize(oci, "loss[1m].mean()")
    assert (first.name, first.namespace, first.dimensions) == ("loss", "training", {"rank": "0"})
    assert first.compartment_id == VISION
    assert points(first) == [(60, 3.0), (120, 1.0)]
    assert (second.resource_group, points(second)) == ("b", [(60, 8.0)])
    assert summarize(oci, "loss[1m].mean()", resource_group="b")[0].dimensions == {"rank": "1"}
    (only,) = summarize(oci, 'loss[1m]{rank = "1"}.max()')
    assert points(only) == [(60, 8.0)]
    assert points(summarize(oci, "loss[5m].max()", resolution="1m", resource_group="")[0])[:2] == [
        (60, 4.0),
        (120, 4.0),
    ]


def test_metrics_are_listed(oci: OciTeams) -> None:
    post(oci, metric("steps", {0: 1.0}, namespace="listed"), metric("epochs", {0: 1.0}))
    client = oci.client(MonitoringClient)
    details = models.ListMetricsDetails(namespace="listed")
    (found,) = client.list_metrics(VISION, details).data
    assert (found.name, found.dimensions) == ("steps", {"rank": "0"})
    grouped = models.ListMetricsDetails(group_by=["namespace"])
    names = {one.namespace for one in client.list_metrics(VISION, grouped).data}
    assert {"listed", "training"} <= names
    first = client.list_metrics(VISION, models.ListMetricsDetails(), limit=1)
    assert len(first.data) == 1
    assert first.has_next_page
    filtered = models.ListMetricsDetails(dimension_filters={"rank": "7"})
    assert client.list_metrics(VISION, filtered).data == []


def test_a_subtree_has_the_projects_that_the_caller_may_see(oci: OciTeams) -> None:
    post(oci, metric("in-vision", {0: 1.0}))
    post(oci, metric("in-sound", {0: 1.0}, compartment=SOUND), user="oscar")
    for name, expected in (("in-vision", [VISION]), ("in-sound", [SOUND])):
        found = summarize(oci, f"{name}[1m].count()", TENANCY, "root", subtree=True)
        assert [one.compartment_id for one in found] == expected
    with pytest.raises(ServiceError) as refused:
        summarize(oci, "in-sound[1m].count()", SOUND, "anouk")
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"namespace": "oci_mine"}, "reserved"),
        ({"namespace": "../x"}, "namespace has to be"),
        ({"dimensions": {}}, "1 to 20 dimensions"),
        ({"dimensions": {"a b": "c"}}, "printable"),
        ({"dimensions": {"a": ""}}, "1 to 512"),
        ({"values": {}}, "no datapoints"),
        ({"values": {-8000: 1.0}}, "2 hours ago"),
        ({"values": {8000: 1.0}}, "10 minutes ahead"),
    ],
)
def test_what_is_wrong_with_a_metric_is_said(
    oci: OciTeams, changes: dict[str, Any], text: str
) -> None:
    wrong = metric("wrong", changes.pop("values", {0: 1.0}), **changes)
    with pytest.raises(ServiceError, match=text) as refused:
        post(oci, metric("fine", {0: 1.0}, namespace="atomic"), wrong, atomicity="ATOMIC")
    assert (refused.value.status, refused.value.code) == (400, "InvalidParameter")
    namespaces = models.ListMetricsDetails(namespace="atomic")
    assert oci.client(MonitoringClient).list_metrics(VISION, namespaces).data == []
    reply = post(oci, metric("fine", {0: 1.0}), wrong)
    assert reply.failed_metrics_count == 1
    assert text in reply.failed_metrics[0].message
    assert reply.failed_metrics[0].metric_data.name == "wrong"


@pytest.mark.parametrize(
    ("query", "given"),
    [
        ("loss", {}),
        ("loss[1m].mean(", {}),
        ("loss[2d].mean()", {}),
        ("loss[1m].mean()", {"resolution": "5m"}),
        ("loss[1m].mean()", {"resolution": "x"}),
        ("loss[1m].mean()", {"namespace": "../vision/training"}),
        ("loss[1m].mean()", {"end_time": NOW - timedelta(hours=1)}),
    ],
)
def test_a_query_that_cannot_be_read_is_refused(
    oci: OciTeams, query: str, given: dict[str, Any]
) -> None:
    with pytest.raises(ServiceError) as refused:
        summarize(oci, query, **given)
    assert (refused.value.status, refused.value.code) == (400, "InvalidParameter")


def test_viewers_post_nothing(oci: OciTeams) -> None:
    with pytest.raises(ServiceError) as refused:
        post(oci, metric("loss", {0: 1.0}), user="vera")
    assert (refused.value.status, refused.value.code) == (404, "NotAuthorizedOrNotFound")
    assert post(oci, metric("loss", {0: 1.0}), user="sam").failed_metrics_count == 0


def test_times_of_a_query_may_lack_a_zone(oci: OciTeams) -> None:
    post(oci, metric("zone", {10: 4.0}))
    client = oci.client(MonitoringClient)
    for start, end, found in (
        ("0001-01-01T00:00:00", "9999-12-31T23:59:59", 1),
        (f"{NOW:%Y-%m-%dT%H:%M:%S}", f"{NOW + timedelta(minutes=5):%Y-%m-%dT%H:%M:%S}", 1),
        (None, "0001-01-01T01:00:00", 0),
    ):
        details = {"namespace": "training", "query": "zone[1m].max()", "endTime": end}
        if start is not None:
            details["startTime"] = start
        assert len(client.summarize_metrics_data(VISION, details).data) == found
    details = {"namespace": "n", "query": "m[1m].max()", "endTime": "9999-12-31T23:59:59-12:00"}
    with pytest.raises(ServiceError, match="not a time of the years 1 to 9999"):
        client.summarize_metrics_data(VISION, details)


def test_a_timestamp_of_the_first_year_is_refused(oci: OciTeams) -> None:
    point = {"timestamp": "0001-01-01T00:00:00+12:00", "value": 1.0}
    wrong = {**{"namespace": "n", "name": "m", "compartmentId": VISION}, "dimensions": {"a": "b"}}
    with pytest.raises(ServiceError, match="2 hours ago") as refused:
        post(oci, {**wrong, "datapoints": [point]})
    assert refused.value.status == 400


def test_a_query_that_costs_too_much_is_refused(
    oci: OciTeams, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = dict.fromkeys(range(0, 60, 2), 1.0)
    post(oci, *(metric("costs", points, namespace="costs") for _ in range(2)))
    end = {"namespace": "costs", "resolution": "1m", "end_time": NOW + timedelta(hours=2)}
    # points, and intervals: two hours, and those of the last hour's points
    cheap, dear = 60 + 180, 60 * 60 + 180
    for name, limit, query in (
        ("_MOST_CALCULATED", cheap, "costs[1h].count()"),
        ("_MOST_CALCULATED", dear, "costs[1h].percentile(0.9)"),
        ("_MOST_VALUES", 61, "costs[1h].count()"),
        ("_MOST_STREAMS", 1, "costs[1m].count()"),
        ("_MOST_READ", 60, "costs[1m].count()"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(monitoring, name, limit)
            assert summarize(oci, query, **end)
            patch.setattr(monitoring, name, limit - 1)
            with pytest.raises(ServiceError, match=r"choose|name fewer") as refused:
                summarize(oci, query, **end)
        assert (refused.value.status, refused.value.code) == (400, "LimitExceeded")


def test_a_list_over_projects_costs_no_more_than_one(
    oci: OciTeams, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(oci, metric("m", dict.fromkeys(range(6), 1.0), namespace="listed_a"))
    post(oci, metric("m", dict.fromkeys(range(6), 1.0), SOUND, namespace="listed_a"), user="oscar")
    details = models.ListMetricsDetails(namespace="listed_a")
    client = oci.client(MonitoringClient, "root")
    monkeypatch.setattr(monitoring, "_MOST_READ", 12)
    found = client.list_metrics(TENANCY, details, compartment_id_in_subtree=True).data
    assert {one.compartment_id for one in found} == {VISION, SOUND}
    monkeypatch.setattr(monitoring, "_MOST_READ", 11)
    with pytest.raises(ServiceError, match="choose a shorter time") as refused:
        client.list_metrics(TENANCY, details, compartment_id_in_subtree=True)
    assert (refused.value.status, refused.value.code) == (400, "LimitExceeded")


def test_a_compartment_has_so_many_namespaces(
    oci: OciTeams, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(oci, metric("m", {0: 1.0}, namespace="first"))
    monkeypatch.setattr(monitoring, "_MOST_NAMESPACES", 1)
    with pytest.raises(ServiceError, match="namespaces; the most are 1") as refused:
        post(oci, metric("m", {0: 1.0}, namespace="second"))
    assert (refused.value.status, refused.value.code) == (400, "LimitExceeded")
    assert post(oci, metric("m", {0: 1.0}, namespace="first")).failed_metrics_count == 0
