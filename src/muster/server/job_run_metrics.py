"""Records what job runs of the OCI API use while they are in progress, as metrics of the namespace
`oci_datascience_jobrun` (OCI)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from fcntl import LOCK_EX
from typing import IO

from msgspec import Struct
from msgspec.structs import replace

from muster.caller import Caller
from muster.control.persist import plan_of
from muster.errors import MusterError, NotFound
from muster.file_locks import try_flock
from muster.lifecycle.states import RunState
from muster.node.counters import Counters
from muster.node.machine import count_cpus, count_memory
from muster.server.log import ServerLog
from muster.server.periodic_threads import PeriodicThread
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.spec.ocids import ocid
from muster.storage import metric_points
from muster.storage.metric_points import Point
from muster.storage.usage import grown
from muster.store.records import CorruptRecord

NAMESPACE = "oci_datascience_jobrun"
_KIND = "datasciencejobrun"
#: Seconds between two samples (OCI has one in each minute; runs may be short here).
_INTERVAL = 10.0
_RUNS = (RunState.IN_PROGRESS, RunState.CANCELING)


class Node(Struct, frozen=True):
    """What is known of a node since the last sample."""

    group: str
    cpus: float
    """Those that it may use, which are 100 % of its utilization."""
    memory: int
    """Bytes."""
    gpus: int
    counters: Counters | None = None
    at: float = 0.0
    """Seconds on the clock that is never set, of `counters`."""


class JobRunMetrics:
    """A thread that samples job runs in progress."""

    def __init__(
        self, backend: Backend, log: ServerLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """clock: seconds on a clock that is never set."""
        self._backend, self._clock = backend, clock
        self._lock: IO[bytes] | None = None
        given = ("metrics", self._round, log, "metrics of job runs are not recorded")
        self._thread = PeriodicThread(*given, pause=_INTERVAL)
        #: The nodes of each job run in progress; empty for runs that are no job runs.
        self._nodes: dict[str, dict[int, Node]] = {}

    def start(self) -> None:
        """Begin; the first sample is at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present sample."""
        self._thread.stop()
        if self._lock is not None:
            self._lock.close()

    @property
    def followed(self) -> frozenset[str]:
        """The ids of the job runs that were in progress at the last sample."""
        return frozenset(run_id for run_id, nodes in self._nodes.items() if nodes)

    def _round(self) -> float:
        if self._is_only():
            self.look()
        return _INTERVAL

    def _is_only(self) -> bool:
        """Whether no other server of this host samples: two would count what is transferred twice.
        Raises OSError, NoLocks."""
        path = self._backend.home.of_host("job-run-metrics.lock")
        if self._lock is None:
            self._lock = open(path, "ab")  # noqa: SIM115  open while this samples
        return try_flock(self._lock.fileno(), LOCK_EX, path)

    def look(self) -> None:
        """Take one sample. Raises StoreError, OSError."""
        if not self._backend.home.root.exists():  # nothing is written into another one
            return
        live = {run.id: run for run in self._backend.store.runs.live() if run.state in _RUNS}
        for run_id in self._nodes.keys() - live.keys():
            del self._nodes[run_id]
        for run_id, run in live.items():
            if run_id not in self._nodes:
                self._nodes[run_id] = self._find_nodes(run_id)
            if self._nodes[run_id]:
                self._sample(run_id, run.project)

    def _find_nodes(self, run_id: str) -> dict[int, Node]:
        store = self._backend.store
        try:
            store.resources.get(_KIND, run_id)
            plan = plan_of(store.runs.get(run_id))
        except (NotFound, CorruptRecord):
            return {}
        cpus, memory = count_cpus(), count_memory()
        groups = {
            group.name: Node(
                group.name,
                group.resources.cpus or cpus,
                group.resources.memory or memory,
                group.resources.gpus,
            )
            for group in plan.groups
        }
        return {node.rank: groups[node.group] for node in plan.nodes}

    def _sample(self, run_id: str, project: str) -> None:
        try:
            # a job run may have moved to another compartment
            record = self._backend.store.resources.get(_KIND, run_id)
            api = EmbeddedAPI(caller=Caller("", project), backend=self._backend)
            found = api.counters(run_id)
        except MusterError:  # it has ended meanwhile, or its nodes cannot be reached now
            return
        at, now, nodes = self._clock(), time.time(), self._nodes[run_id]
        points: list[Point] = []
        for rank, counters in found.items():
            if (node := nodes.get(rank)) is None:
                continue
            dimensions = {
                "resourceId": ocid(_KIND, run_id),
                "nodeGroup": node.group,
                "rank": str(rank),
            }
            points += [
                Point(name, dimensions, now, value) for name, value in values(node, counters, at)
            ]
            nodes[rank] = replace(node, counters=counters, at=at)
        metric_points.append(self._backend.home, record.project, NAMESPACE, points)


def values(node: Node, now: Counters, at: float) -> Iterator[tuple[str, float]]:
    """The metrics of a node, by their names. node: with the counters at the last sample. at: when
    the present ones were read, on the same clock. Pure."""
    before, seconds = node.counters, at - node.at
    if now.memory is not None:
        yield "MemoryUtilization", _percent(now.memory, node.memory)
    if now.gpus is not None:
        yield "GpuUtilization", _percent(now.gpus, node.gpus)
        yield "GpuMemoryBytes", float(now.gpu_memory or 0)
    if before is None or before.cpu is None or now.cpu is None or seconds <= 0:
        return
    if now.cpu < before.cpu:  # a new incarnation
        return
    yield "CpuUtilization", _percent((now.cpu - before.cpu) / seconds, node.cpus)
    for name, value in _transferred(before, now).items():
        yield name, float(value)


def _transferred(before: Counters, now: Counters) -> Mapping[str, int]:
    """Bytes since the last sample."""
    found = {
        "DiskBytesRead": grown(before.disk_read, now.disk_read),
        "DiskBytesWritten": grown(before.disk_written, now.disk_written),
        "NetworkBytesIn": grown(before.received, now.received),
        "NetworkBytesOut": grown(before.sent, now.sent),
    }
    return {name: value for name, value in found.items() if value is not None}


def _percent(used: float, available: float) -> float:
    return round(100 * used / available, 3) if available else 0.0
