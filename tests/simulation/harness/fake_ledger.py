"""Ledgers of simulated runs. They keep rows, as a database does, not objects."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import replace

from muster.control.controller import Record
from muster.control.ledger import Ledger, StoreLedger, request_events
from muster.control.persist import node_changes, node_record, run_changes, status_of
from muster.identity import new_owner
from muster.lifecycle.events import Request
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import RunStatus
from muster.plan.model import RunPlan
from muster.store.base import Store
from muster.store.records import (
    EventRecord,
    JobRecord,
    Lease,
    NodeRecord,
    PendingRequests,
    RunRecord,
    Scale,
)

RequestKind = Literal["cancel", "suspend"]

#: The process that drives every simulated run.
OWNER = new_owner()


class FakeLedger(Ledger, Protocol):
    """A ledger with the operations of users and observers."""

    def request(self, kind: RequestKind, why: str, now: float) -> bool:
        """Record a request; False if it was recorded before, or the run has ended."""
        ...

    def request_scale(self, group: str, replicas: int, why: str, now: float) -> bool:
        """Record a request to scale a group; False as above."""
        ...

    def state(self) -> RunState:
        """The run's state as recorded."""
        ...

    def pending(self) -> PendingRequests:
        """The pending requests."""
        ...

    def log(self) -> list[EventRecord]:
        """The run's event log."""
        ...


class MemoryLedger:
    """A ledger in memory. accepted: when the run was accepted (epoch seconds)."""

    def __init__(self, plan: RunPlan, accepted: float, *, suspended: bool) -> None:
        self._plan = plan
        self._run = first_record(plan, accepted, suspended=suspended)
        self._lifecycle = b"{}"
        self._nodes = first_nodes(plan)
        self._log: list[EventRecord] = []
        self._append([("run", {"state": self._run.state})], accepted)
        scaled_down = [node.rank for node in self._nodes if node.state == NodeState.SCALED_DOWN]
        if scaled_down:
            self._append(
                [("nodes", {"ranks": format_ranks(scaled_down), "state": NodeState.SCALED_DOWN})],
                accepted,
            )

    def load(self) -> RunStatus:
        """See `Ledger.load`."""
        run = replace(self._run, lifecycle=msgspec.json.decode(self._lifecycle))
        return status_of(run, self._nodes, self._plan.policy)

    def record(self, record: Record) -> None:
        """See `Ledger.record`."""
        before, after = record.before, record.after
        changes = run_changes(before, after)
        if "lifecycle" in changes:
            self._lifecycle = msgspec.json.encode(changes.pop("lifecycle"))
        if RunState.SUSPENDED in (before.state, after.state):
            changes |= {"suspend_requested_at": None, "suspend_reason": None}
        self._run = replace(self._run, **changes)
        nodes, changed = node_changes(self._plan, before, after, record.metrics)
        for node in nodes:
            self._nodes[node.rank] = node
        for change in changed:
            for rank in chain.from_iterable(change.ranks):
                self._nodes[rank] = change.applied_to(self._nodes[rank])
        self._append([(entry.kind, entry.data) for entry in record.entries], record.now)

    def requests(self) -> list[Request]:
        """See `Ledger.requests`."""
        return request_events(self.pending())

    def request(self, kind: RequestKind, why: str, now: float) -> bool:
        """See `FakeLedger.request`."""
        if getattr(self._run, f"{kind}_reason") or self.state().terminal:
            return False
        self._run = replace(self._run, **{f"{kind}_requested_at": now, f"{kind}_reason": why})
        self._append([(f"{kind}_requested", {"why": why})], now)
        return True

    def request_scale(self, group: str, replicas: int, why: str, now: float) -> bool:
        """See `FakeLedger.request_scale`."""
        pending = self._run.scale_requested
        if self.state().terminal or (group in pending and pending[group]["replicas"] == replicas):
            return False
        scale = Scale(replicas=replicas, why=why)
        self._run = replace(self._run, scale_requested={**pending, group: scale})
        self._append([("scale_requested", {"group": group, **scale})], now)
        return True

    def state(self) -> RunState:
        """See `FakeLedger.state`."""
        return RunState(self._run.state)

    def pending(self) -> PendingRequests:
        """See `FakeLedger.pending`."""
        run = self._run
        return PendingRequests(
            run.cancel_reason or "", run.suspend_reason or "", run.scale_requested
        )

    def log(self) -> list[EventRecord]:
        """See `FakeLedger.log`."""
        return self._log

    def _append(self, entries: Sequence[tuple[str, Any]], now: float) -> None:
        self._log += [
            EventRecord(self._plan.run_id, seq, now, kind, data)
            for seq, (kind, data) in enumerate(entries, len(self._log) + 1)
        ]


class RecordedLedger(StoreLedger):
    """A ledger in a store, into which it inserts the run. Every simulated process that drives the
    run has the same lease."""

    def __init__(self, store: Store, plan: RunPlan, accepted: float, *, suspended: bool) -> None:
        super().__init__(store, plan, Lease.first(plan.run_id, OWNER))
        self._id = plan.run_id
        record = first_record(plan, accepted, suspended=suspended)
        job = JobRecord(
            plan.job_id, plan.job_name, 1, plan.job_id, {}, None, None, "", {}, accepted, accepted
        )

        def build(job: JobRecord, number: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
            made = replace(record, job_id=job.id, number=number, name=name)
            return made, first_nodes(plan)

        store.runs.insert(job, build, OWNER)

    def request(self, kind: RequestKind, why: str, now: float) -> bool:
        """See `FakeLedger.request`."""
        return self._store.runs.request(self._id, kind, why, now)

    def request_scale(self, group: str, replicas: int, why: str, now: float) -> bool:
        """See `FakeLedger.request_scale`."""
        return self._store.runs.request_scale(self._id, group, replicas, why, now)

    def state(self) -> RunState:
        """See `FakeLedger.state`."""
        return RunState(self._store.runs.get(self._id).state)

    def pending(self) -> PendingRequests:
        """See `FakeLedger.pending`."""
        return self._store.runs.pending_requests(self._id)

    def log(self) -> list[EventRecord]:
        """See `FakeLedger.log`."""
        return self._store.events.since(self._id)


def first_nodes(plan: RunPlan) -> list[NodeRecord]:
    """The rows of a new run's nodes."""
    first = zip(plan.nodes, plan.policy.first_nodes(), strict=True)
    return [node_record(node, status) for node, status in first]


def first_record(plan: RunPlan, accepted: float, *, suspended: bool) -> RunRecord:
    """The row of a new run."""
    return RunRecord(
        id=plan.run_id,
        name=plan.run_name,
        number=1,
        job_id=plan.job_id,
        job_name=plan.job_name,
        state=RunState.SUSPENDED if suspended else RunState.ACCEPTED,
        details="",
        engine="local",
        attempt=0,
        created_at=accepted,
        started_at=None,
        finished_at=None,
        exit_code=None,
        node_count=plan.policy.initial_size,
        spec={},
        origins={},
        overrides={},
        plan={},
        lifecycle={},
        notes=[],
        cancel_requested_at=None,
        cancel_reason=None,
    )
