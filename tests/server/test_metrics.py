"""Metrics of a server, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from muster.client.http.api import HttpAPI
from muster.errors import NotFound
from muster.server.run_observer import RunObserver
from muster.service.backend import Backend
from muster.storage.home import Home
from support.api_runs import start, wait
from support.faults import until
from support.server_thread import ServerThread, running_server


@pytest.fixture
def server(own_home: Path) -> Iterator[ServerThread]:
    with running_server(Backend(Home(own_home))) as server:
        yield server


def samples(api: HttpAPI) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Name and labels -> value."""
    text = api.connection.request("GET", "/v1/metrics").decode()
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_requests_are_counted_by_route_and_answer(server: ServerThread) -> None:
    api = HttpAPI(server.address())
    api.jobs()
    for name in ("a", "b"):
        with pytest.raises(NotFound):
            api.job(name)
    found = samples(api)
    labels = (("route", "/jobs/{text}"), ("verb", "GET"))
    assert found["muster_requests_total", (labels[0], ("status", "404"), labels[1])] == 2
    assert found["muster_request_seconds_count", labels] == 2
    assert found["muster_store_up", ()] == 1
    api.close()


def test_an_unknown_path_makes_no_label(server: ServerThread) -> None:
    api = HttpAPI(server.address())
    for path in ("/v1/x1", "/v1/x2"):
        with pytest.raises(NotFound):
            api.connection.request("GET", path)
    routes = {dict(labels).get("route") for _, labels in samples(api)}
    assert "none" in routes
    assert not {"/x1", "/x2", "/v1/x1"} & routes
    api.close()


def test_runs_are_counted_by_state_and_their_recoveries(server: ServerThread) -> None:
    api = HttpAPI(server.address())
    program = 'test "$MUSTER_RESTART" -gt 0 || exit 3'
    run = start(api, program, failure={"max_restarts": 1})
    assert wait(api, run.id) == "SUCCEEDED"

    def is_counted(name: str, *labels: tuple[str, str]) -> Callable[[], bool]:
        return lambda: samples(api).get((name, labels)) == 1

    until(is_counted("muster_runs", ("state", "SUCCEEDED")), "the run is counted")
    until(is_counted("muster_restarts_total"), "the restart is counted")
    until(is_counted("muster_recovery_seconds_count"), "the recovery is counted")
    assert samples(api)["muster_node_failures_total", (("reason", "exit"),)] == 1
    api.close()


def test_what_happened_before_the_server_started_is_not_counted(own_home: Path) -> None:
    backend = Backend(Home(own_home))
    with running_server(backend) as server:
        api = HttpAPI(server.address())
        run = start(api, "exit 3")
        assert wait(api, run.id) == "FAILED"
        fresh = server.server.state.metrics.__class__()
        observer = RunObserver(Backend(Home(own_home)), fresh)
        observer.begin()
        observer.look()
        counted = {family.name: family.samples for family in fresh.registry.collect()}
        assert counted["muster_node_failures"] == []
        api.close()
