"""One node of many fails: how much work until all are running again?

The control plane is real: the controller, `decide`, every SQLite transaction. The nodes are
simulated: they act immediately and report in batches of some thousand events.
JobSet states 290 pods per second at 15,000 nodes (README, since 0.3.0; without a harness).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from muster.control.clock import SteadyClock
from muster.control.drive import Driver, RunParts
from muster.control.ledger import StoreLedger
from muster.control.persist import node_record
from muster.engines.base import Report
from muster.engines.loop import EventLoop, RunLoop
from muster.identity import Owner, new_owner
from muster.lifecycle.events import (
    CancelRequested,
    NodeEnded,
    NodeEvent,
    NodeReady,
    NodeStarted,
    SessionClosed,
)
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef, NodeStatus
from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.override_models import RunOverrides
from muster.spec.policies import FailurePolicy
from muster.spec.resolve import resolve
from muster.store.records import JobRecord, Lease, NodeRecord, RunRecord
from muster.store.sqlite.store import SqliteStore

JOBSET = 290  # pods per second
AT_ONCE = 4096  # events reported together
OWNER = new_owner()
STRATEGIES = ("in_place", "recreate", "blocking_recreate")


class ImmediateSession:
    """A session whose nodes act immediately. When all are up for the first time, one of them fails;
    when all are up again, the run is canceled."""

    def __init__(self, loop: RunLoop, report: Report) -> None:
        self._participant = loop.add(self._step)
        self._report = report
        self._events: list[NodeEvent] = []
        self.failed_at = 0.0
        self.seconds = 0.0
        self.requested: list[CancelRequested] = []

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        self._events += [NodeStarted(*ref) for ref in nodes]
        self._events += [NodeReady(*ref) for ref in nodes]
        self._participant.notify()

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        self._events += [NodeEnded(ref.rank, 143, 15, incarnation=ref[1]) for ref in nodes]
        self._participant.notify()

    kill = stop

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None: ...

    def release(self, nodes: Sequence[NodeRef]) -> None: ...

    def notified(self) -> None: ...

    def _step(self, _ready: object) -> None:
        if self._events:
            batch, self._events = self._events[:AT_ONCE], self._events[AT_ONCE:]
            self._report(batch)
        elif not self.failed_at:
            self.failed_at = time.perf_counter()
            self._report([NodeEnded(7, 1, message="lost a GPU")])
        elif not self.seconds:
            self.seconds = time.perf_counter() - self.failed_at
            self.requested = [CancelRequested("measured")]
            self._report([])
        self._participant.notify()

    def close(self) -> None:
        self._report([SessionClosed()])

    def finish_logs(self) -> None: ...


def recover(size: int, strategy: str) -> float:
    """Seconds from the failure until all nodes are recorded as running again."""
    sessions: list[ImmediateSession] = []

    def open_session(loop: RunLoop, report: Report) -> ImmediateSession:
        sessions.append(ImmediateSession(loop, report))
        return sessions[0]

    with tempfile.TemporaryDirectory() as folder, closing(EventLoop()) as loop:
        store = SqliteStore.open(Path(folder) / "muster.db")
        plan = make_plan("run", size, strategy)
        ledger = accept(store, plan)
        driver = Driver(loop)
        driver.add(
            RunParts(
                plan.policy, ledger, SteadyClock(), open_session, lambda: sessions[0].requested
            )
        )
        driver.drive()
        assert store.runs.get(plan.run_id).attempt == 1
        store.close()
    return sessions[0].seconds


def make_plan(run_id: str, size: int, strategy: str = "in_place") -> RunPlan:
    """A run in replicas of four nodes."""
    failure = FailurePolicy(max_restarts=3, strategy=strategy)  # type: ignore[arg-type]
    group = NodeGroup(name="workers", nodes=4, replicas=size // 4, command=("train",))
    spec = resolve(JobSpec(node_groups=(group,), failure=failure), RunOverrides()).spec
    return build_plan(
        arrange(spec),
        Identity(run_id, "bench-1", "job", "bench"),
        artifact=None,
        addresses=lambda _, count: ["10.0.0.1"] * count,
        source_kind=lambda _: "directory",
        shape_of=lambda _: ResourcePlan(),
    )


def accept(store: SqliteStore, plan: RunPlan) -> StoreLedger:
    """Record a run as accepted, and take its lease. Returns its ledger."""
    owner = new_owner()
    insert(store, plan, owner)
    return StoreLedger(store, plan, Lease.first(plan.run_id, owner))


def insert(store: SqliteStore, plan: RunPlan, owner: Owner | None) -> None:
    """Record a run as accepted. owner: of its lease."""
    job = JobRecord(plan.job_id, "bench", 0, plan.job_id, {}, None, None, "", {}, 0.0, 0.0)

    def build(job: JobRecord, number: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
        record = RunRecord(
            id=plan.run_id,
            name=name,
            number=number,
            job_id=job.id,
            job_name=job.name,
            state=RunState.ACCEPTED,
            details="",
            engine="simulated",
            attempt=0,
            created_at=time.time(),
            started_at=None,
            finished_at=None,
            exit_code=None,
            node_count=len(plan.nodes),
            spec={},
            origins={},
            overrides={},
            plan=plan.to_json(),
            lifecycle={},
            notes=[],
            cancel_requested_at=None,
            cancel_reason=None,
        )
        return record, [node_record(node, NodeStatus()) for node in plan.nodes]

    store.runs.insert(job, build, owner)


def main() -> None:
    sizes = (1_000, 5_000, 15_000, 50_000, 100_000)
    print(f"{'nodes':>8}  {'strategy':<18} {'seconds':>8} {'nodes/s':>9} {'us/node':>8}  x JobSet")
    for size in sizes:
        for strategy in STRATEGIES:
            took = min(recover(size, strategy) for _ in range(3 if size <= 15_000 else 1))
            rate = size / took
            print(
                f"{size:>8,}  {strategy:<18} {took:>8.3f} {rate:>9,.0f} {took / size * 1e6:>8.1f}"
                f"  {rate / JOBSET:>6.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
