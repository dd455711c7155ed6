"""Ledgers of simulated runs. What they keep is what a database would: rows, not objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import replace

from muster.control.ledger import Ledger, StoreLedger, requested
from muster.control.persist import changed_nodes, node_record, run_changes, status_of
from muster.lifecycle.census import ranges
from muster.lifecycle.effects import Entry
from muster.lifecycle.events import Request
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import RunStatus
from muster.plan.model import RunPlan
from muster.store import events, runs
from muster.store.database import Database
from muster.store.records import Asked, EventRecord, JobRecord, NodeRecord, RunRecord, Scale

Wish = Literal["cancel", "suspend"]


class Book(Ledger, Protocol):
    """A ledger, and what others write into it and read from it."""

    def ask(self, wish: Wish, why: str, now: float) -> bool:
        """Record what a person wants; False if that was known, or the run has ended."""
        ...

    def ask_scale(self, group: str, replicas: int, why: str, now: float) -> bool:
        """Record how many replicas of a group a person wants; False as above."""
        ...

    def state(self) -> RunState:
        """The run's state as recorded."""
        ...

    def asked(self) -> Asked:
        """What people want."""
        ...

    def log(self) -> list[EventRecord]:
        """The run's event log."""
        ...


class MemoryBook:
    """In memory, the way `store.runs` has it. accepted: when the run was (epoch seconds)."""

    def __init__(self, plan: RunPlan, accepted: float, *, suspended: bool) -> None:
        self._plan = plan
        self._run = first_record(plan, accepted, suspended=suspended)
        self._lifecycle = b"{}"
        self._nodes = first_nodes(plan)
        self._log: list[EventRecord] = []
        self._append([("run", {"state": self._run.state})], accepted)
        parked = [node.rank for node in self._nodes if node.state == NodeState.PARKED]
        if parked:
            self._append(
                [("nodes", {"ranks": ranges(parked), "state": NodeState.PARKED})], accepted
            )

    def load(self) -> RunStatus:
        """See `Ledger.load`."""
        run = replace(self._run, lifecycle=msgspec.json.decode(self._lifecycle))
        return status_of(run, self._nodes, self._plan.policy)

    def record(
        self, before: RunStatus, after: RunStatus, entries: Sequence[Entry], now: float
    ) -> None:
        """See `Ledger.record`."""
        changes = run_changes(after)
        self._lifecycle = msgspec.json.encode(changes.pop("lifecycle"))
        if RunState.SUSPENDED in (before.state, after.state):
            changes |= {"suspend_requested_at": None, "suspend_reason": None}
        self._run = replace(self._run, **changes)
        for node in changed_nodes(self._plan, before, after):
            self._nodes[node.rank] = node
        self._append([(entry.kind, entry.data) for entry in entries], now)

    def requests(self) -> list[Request]:
        """See `Ledger.requests`."""
        return requested(self.asked())

    def ask(self, wish: Wish, why: str, now: float) -> bool:
        """See `Book.ask`."""
        if getattr(self._run, f"{wish}_reason") or self.state().terminal:
            return False
        self._run = replace(self._run, **{f"{wish}_requested_at": now, f"{wish}_reason": why})
        self._append([(f"{wish}_requested", {"why": why})], now)
        return True

    def ask_scale(self, group: str, replicas: int, why: str, now: float) -> bool:
        """See `Book.ask_scale`."""
        asked = self._run.scale_requested
        if self.state().terminal or (group in asked and asked[group]["replicas"] == replicas):
            return False
        wish = Scale(replicas=replicas, why=why)
        self._run = replace(self._run, scale_requested={**asked, group: wish})
        self._append([("scale_requested", {"group": group, **wish})], now)
        return True

    def state(self) -> RunState:
        """See `Book.state`."""
        return RunState(self._run.state)

    def asked(self) -> Asked:
        """See `Book.asked`."""
        run = self._run
        return Asked(run.cancel_reason or "", run.suspend_reason or "", run.scale_requested)

    def log(self) -> list[EventRecord]:
        """See `Book.log`."""
        return self._log

    def _append(self, entries: Sequence[tuple[str, Any]], now: float) -> None:
        self._log += [
            EventRecord(self._plan.run_id, seq, now, kind, data)
            for seq, (kind, data) in enumerate(entries, len(self._log) + 1)
        ]


class StoreBook(StoreLedger):
    """In a real database. Accepts the run."""

    def __init__(self, db: Database, plan: RunPlan, accepted: float, *, suspended: bool) -> None:
        super().__init__(db, plan)
        self._id = plan.run_id
        record = first_record(plan, accepted, suspended=suspended)
        job = JobRecord(
            plan.job_id, plan.job_name, 1, plan.job_id, {}, None, None, "", {}, accepted, accepted
        )

        def build(job: JobRecord, number: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
            made = replace(record, job_id=job.id, number=number, name=name)
            return made, first_nodes(plan)

        runs.insert(db, job, build)

    def ask(self, wish: Wish, why: str, now: float) -> bool:
        """See `Book.ask`."""
        if getattr(self.asked(), wish) or self.state().terminal:
            return False
        columns = {f"{wish}_requested_at": now, f"{wish}_reason": why}
        runs.save(self._db, self._id, columns, (), [(f"{wish}_requested", {"why": why})], now)
        return True

    def ask_scale(self, group: str, replicas: int, why: str, now: float) -> bool:
        """See `Book.ask_scale`."""
        asked = self.asked().scale
        if self.state().terminal or (group in asked and asked[group]["replicas"] == replicas):
            return False
        wish = Scale(replicas=replicas, why=why)
        entry = ("scale_requested", {"group": group, **wish})
        columns = {"scale_requested": {**asked, group: wish}}
        runs.save(self._db, self._id, columns, (), [entry], now)
        return True

    def state(self) -> RunState:
        """See `Book.state`."""
        return RunState(runs.get(self._db, self._id).state)

    def asked(self) -> Asked:
        """See `Book.asked`."""
        return runs.requests(self._db, self._id)

    def log(self) -> list[EventRecord]:
        """See `Book.log`."""
        return events.since(self._db, self._id)


def first_nodes(plan: RunPlan) -> list[NodeRecord]:
    """The rows of its nodes."""
    first = zip(plan.nodes, plan.policy.first_nodes(), strict=True)
    return [node_record(node, status) for node, status in first]


def first_record(plan: RunPlan, accepted: float, *, suspended: bool) -> RunRecord:
    """A run that was just accepted, or is to begin suspended."""
    return RunRecord(
        id=plan.run_id,
        name=plan.run_name,
        number=1,
        job_id=plan.job_id,
        job_name=plan.job_name,
        state=RunState.SUSPENDED if suspended else RunState.ACCEPTED,
        details="",
        engine="simulated",
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
