"""One node of many fails: how much work until all are running again?

The control plane is real: the controller, `decide`, every SQLite transaction. The nodes are
simulated: they act immediately and report in batches of some thousand events.
JobSet states 290 pods per second at 15,000 nodes (README, since 0.3.0; without a harness).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from muster.control.clock import SteadyClock
from muster.control.controller import Controller
from muster.control.ledger import StoreLedger
from muster.control.persist import node_record
from muster.lifecycle.events import CancelRequested, NodeEnded, NodeEvent, NodeReady, NodeStarted
from muster.lifecycle.status import NodeRef, NodeStatus
from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.models import JobSpec, NodeGroup, RunOverrides
from muster.spec.policies import FailurePolicy
from muster.spec.resolve import resolve
from muster.store.records import JobRecord, RunRecord
from muster.store.sqlite.database import Database

JOBSET = 290  # pods per second
AT_ONCE = 4096  # events reported together
STRATEGIES = ("in_place", "recreate", "blocking_recreate")


class ImmediateSession:
    """A session whose nodes act immediately. When all are up for the first time, one of them fails;
    when all are up again, the run is canceled."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._events: list[NodeEvent] = []
        self._started = False
        self.failed_at = 0.0
        self.seconds = 0.0
        self.requested: list[CancelRequested] = []

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        self._started = True
        self._events += [NodeStarted(*ref) for ref in nodes]
        self._events += [NodeReady(*ref) for ref in nodes]

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        self._events += [NodeEnded(ref.rank, 143, 15, incarnation=ref[1]) for ref in nodes]

    kill = stop

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None: ...

    def release(self, nodes: Sequence[NodeRef]) -> None: ...

    def events(self, timeout: float | None, wake: int) -> list[NodeEvent]:
        if not self._started:
            return []
        if not self._events and not self.failed_at:
            self.failed_at = time.perf_counter()
            return [NodeEnded(7, 1, message="lost a GPU")]
        if not self._events:
            self.seconds = time.perf_counter() - self.failed_at
            self.requested = [CancelRequested("measured")]
            return []
        batch, self._events = self._events[:AT_ONCE], self._events[AT_ONCE:]
        return batch

    def close(self) -> None: ...

    def finish_logs(self) -> None: ...


def recover(size: int, strategy: str) -> float:
    """Seconds from the failure until all nodes are recorded as running again."""
    with tempfile.TemporaryDirectory() as folder:
        db = Database.open(Path(folder) / "muster.db")
        plan = make_plan(size, strategy)
        accept(db, plan)
        session = ImmediateSession(size)
        ledger = StoreLedger(db, plan)
        Controller(plan.policy, ledger, session, SteadyClock(), 0, lambda: session.requested).run()
        assert db.runs.get(plan.run_id).attempt == 1
        db.close()
    return session.seconds


def make_plan(size: int, strategy: str) -> RunPlan:
    failure = FailurePolicy(max_restarts=3, strategy=strategy)  # type: ignore[arg-type]
    group = NodeGroup(name="workers", nodes=4, replicas=size // 4, command=("train",))
    spec = resolve(JobSpec(node_groups=(group,), failure=failure), RunOverrides()).spec
    return build_plan(
        arrange(spec),
        Identity("run", "bench-1", "job", "bench"),
        artifact=None,
        addresses=lambda _, count: ["10.0.0.1"] * count,
        source_kind=lambda _: "directory",
        shape_of=lambda _: ResourcePlan(),
    )


def accept(db: Database, plan: RunPlan) -> None:
    job = JobRecord("job", "bench", 0, "", {}, None, None, "", {}, 0.0, 0.0)
    blank = dict.fromkeys(RunRecord.__struct_fields__)
    known = {
        "id": plan.run_id,
        "name": plan.run_name,
        "number": 1,
        "job_id": "job",
        "job_name": "bench",
        "state": "ACCEPTED",
        "details": "",
        "engine": "simulated",
        "attempt": 0,
        "created_at": time.time(),
        "node_count": len(plan.nodes),
        "plan": plan.to_json(),
        "lifecycle": {},
        "scale_requested": {},
    }
    record = RunRecord(**{**blank, **known})
    nodes = [node_record(node, NodeStatus()) for node in plan.nodes]
    db.runs.insert(job, lambda *_: (record, nodes))


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
