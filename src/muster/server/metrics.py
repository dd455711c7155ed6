"""What the server counts, for Prometheus: GET /metrics.

Labels have few values: routes, verbs, statuses, states, reasons. No name of a user, project, job or
run is among them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

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


class Histogram:
    """How many values were at most as large as each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Add a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Each bound with the number of values up to it, and the sum of all values."""
        total, made = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            made.append((bound, float(total)))
        return made, self._sum


class Metrics:
    """Counts of one server process. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: dict[tuple[str, str], Histogram] = {}
        self._statuses: dict[tuple[str, str, str], int] = {}
        self._restarts = 0
        self._failures: dict[str, int] = {}
        self._firings: dict[str, int] = {}
        self._recoveries = Histogram(_RECOVERIES)
        #: Streams and WebSockets that are open.
        self.open_streams = 0

    def request(self, verb: str, route: str, status: int, seconds: float) -> None:
        """Count a request. seconds: until its answer began, of a stream."""
        with self._lock:
            key = (verb, route, str(status))
            self._statuses[key] = self._statuses.get(key, 0) + 1
            histogram = self._requests.get((verb, route))
            if histogram is None:
                histogram = self._requests[verb, route] = Histogram(_REQUESTS)
            histogram.observe(seconds)

    def restart(self) -> None:
        """Count a restart of nodes of a run."""
        with self._lock:
            self._restarts += 1

    def failure(self, reason: str) -> None:
        """Count a failure of nodes."""
        with self._lock:
            self._failures[reason] = self._failures.get(reason, 0) + 1

    def firing(self, outcome: str) -> None:
        """Count what was done at a time of a schedule."""
        with self._lock:
            self._firings[outcome] = self._firings.get(outcome, 0) + 1

    def recovery(self, seconds: float) -> None:
        """Count a recovery: from a failure until nodes run again."""
        with self._lock:
            self._recoveries.observe(seconds)

    def families(self) -> Iterator[Any]:
        """What was counted, as metric families of prometheus_client."""
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        labels = ["verb", "route"]
        with self._lock:
            counted = CounterMetricFamily(
                "muster_requests", "Requests, by their answer.", labels=[*labels, "status"]
            )
            for key, count in self._statuses.items():
                counted.add_metric(key, count)
            seconds = HistogramMetricFamily(
                "muster_request_seconds", "Time until an answer begins.", labels=labels
            )
            for pair, histogram in self._requests.items():
                seconds.add_metric(pair, *histogram.buckets())
            failures = CounterMetricFamily(
                "muster_node_failures", "Failures of nodes, by reason.", labels=["reason"]
            )
            for reason, count in self._failures.items():
                failures.add_metric([reason], count)
            firings = CounterMetricFamily(
                "muster_schedule_times",
                "Times of schedules, by what was done.",
                labels=["outcome"],
            )
            for outcome, count in self._firings.items():
                firings.add_metric([outcome], count)
            restarts = CounterMetricFamily(
                "muster_restarts", "Restarts of runs, replicas and nodes.", value=self._restarts
            )
            recoveries = HistogramMetricFamily(
                "muster_recovery_seconds", "Time from a failure until nodes run again."
            )
            recoveries.add_metric([], *self._recoveries.buckets())
        yield from (counted, seconds, failures, restarts, recoveries, firings)


async def metrics(call: Call) -> Answer:
    """GET /v1/metrics"""
    return Answer(await call.state.in_thread(_text, call.state), media_type=MEDIA_TYPE)


def _text(state: ServerState) -> bytes:
    from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
    from prometheus_client.exposition import generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(_Collector(state))
    return generate_latest(registry)


class _Collector:
    def __init__(self, state: ServerState) -> None:
        self._state = state

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        yield InfoMetricFamily("muster", "The server.", value={"version": __version__})
        yield from self._state.metrics.families()
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
