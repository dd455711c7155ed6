"""What the server counts, for Prometheus: GET /metrics.

Labels have few values: routes, verbs, statuses, states, reasons. No name of a user, project, job or
run is among them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

from muster import __version__
from muster.errors import MusterError
from muster.server.answers import Answer
from muster.store.records import RunFilter

if TYPE_CHECKING:
    from muster.server.call import Call
    from muster.server.state import ServerState

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Upper bounds of the buckets of times, in seconds.
_REQUESTS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_RECOVERIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: Route of what has none.
NO_ROUTE = "none"
# as many series again, of when each was first counted
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Counts of one server process. Threads may share it."""

    def __init__(self) -> None:
        #: What is counted here.
        self.registry = CollectorRegistry()
        self._requests = Counter(
            *("muster_requests", "Requests, by their answer.", ["verb", "route", "status"]),
            registry=self.registry,
        )
        self._seconds = Histogram(
            *("muster_request_seconds", "Time until an answer begins.", ["verb", "route"]),
            buckets=_REQUESTS,
            registry=self.registry,
        )
        self._failures = Counter(
            *("muster_node_failures", "Failures of nodes, by reason.", ["reason"]),
            registry=self.registry,
        )
        self._restarts = Counter(
            *("muster_restarts", "Restarts of runs, replicas and nodes."), registry=self.registry
        )
        self._recoveries = Histogram(
            *("muster_recovery_seconds", "Time from a failure until nodes run again."),
            buckets=_RECOVERIES,
            registry=self.registry,
        )
        self._firings = Counter(
            *("muster_schedule_times", "Times of schedules, by what was done.", ["outcome"]),
            registry=self.registry,
        )
        self._deliveries = Counter(
            *("muster_deliveries", "Attempts to send an event.", ["target", "outcome"]),
            registry=self.registry,
        )
        #: Streams and WebSockets that are open.
        self.open_streams = 0

    def request(self, verb: str, route: str, status: int, seconds: float) -> None:
        """Count a request. seconds: until its answer began, of a stream."""
        self._requests.labels(verb, route, str(status)).inc()
        self._seconds.labels(verb, route).observe(seconds)

    def restart(self) -> None:
        """Count a restart of nodes of a run."""
        self._restarts.inc()

    def failure(self, reason: str) -> None:
        """Count a failure of nodes."""
        self._failures.labels(reason).inc()

    def firing(self, outcome: str) -> None:
        """Count what was done at a time of a schedule."""
        self._firings.labels(outcome).inc()

    def delivery(self, target: str, outcome: str) -> None:
        """Count an attempt to send an event. target: the kind."""
        self._deliveries.labels(target, outcome).inc()

    def recovery(self, seconds: float) -> None:
        """Count a recovery: from a failure until nodes run again."""
        self._recoveries.observe(seconds)


async def metrics(call: Call) -> Answer:
    """GET /v1/metrics"""
    return Answer(await call.state.in_thread(_text, call.state), media_type=MEDIA_TYPE)


def _text(state: ServerState) -> bytes:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(_Collector(state))
    return generate_latest(registry)


class _Collector:
    def __init__(self, state: ServerState) -> None:
        self._state = state

    def collect(self) -> Iterable[Any]:
        yield InfoMetricFamily("muster", "The server.", value={"version": __version__})
        yield from self._state.metrics.registry.collect()
        yield GaugeMetricFamily(
            "muster_open_streams",
            "Streams and WebSockets that are open.",
            value=self._state.metrics.open_streams,
        )
        runs = GaugeMetricFamily("muster_runs", "Runs, by state.", labels=["state"])
        began = time.perf_counter()
        store, healthy = self._state.backend.store, 1
        try:
            for name, count in store.runs.state_counts().items():
                runs.add_metric([name], count)
            store.runs.listing(None, RunFilter(limit=1))
        except MusterError:
            healthy = 0
        yield runs
        yield GaugeMetricFamily("muster_store_up", "Whether the records can be read.", healthy)
        yield GaugeMetricFamily(
            "muster_store_seconds",
            "Time to count the runs and read the newest.",
            time.perf_counter() - began,
        )
        yield GaugeMetricFamily(
            "muster_recovery_age_seconds",
            "Time since the last look for runs without a supervisor.",
            self._state.recovery_age(),
        )
