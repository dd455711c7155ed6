"""A store in memory that is stricter than a database: for tests of the contract and of its callers.

Its rows are one text of JSON, decoded for each call: nobody can keep a reference to them, and what
fails changes nothing. It refuses what the contract does not allow, returns in random order what has
no order, and checks after each change that nothing was lost.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from random import Random
from threading import RLock
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, convert, field, to_builtins

from muster.errors import InvalidInput, NotFound, Problem
from muster.identity import Owner
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import TERMINAL, JobState, NodeState, RunState
from muster.store import names
from muster.store.protocols.runs import RunBuilder
from muster.store.records import (
    SUMMARY_LIFECYCLE,
    EventRecord,
    JobEventRecord,
    JobRecord,
    Lease,
    LeaseHeld,
    LeaseLost,
    NewEntry,
    NodeChange,
    NodeFilter,
    NodeRecord,
    PendingRequests,
    RunFilter,
    RunRecord,
    RunStep,
    RunSummary,
)
from muster.store.times import micros, seconds

T = TypeVar("T")
Row = dict[str, Any]

_JOB_TIMES = ("created_at", "updated_at")
_RUN_TIMES = (
    "created_at",
    "started_at",
    "finished_at",
    "cancel_requested_at",
    "suspend_requested_at",
    "expires_at",
)
_NODE_TIMES = ("started_at", "finished_at")
_EDITABLE = ("spec", "display_name", "description", "tags", "updated_at")


class ContractBroken(AssertionError):  # noqa: N818
    """A caller passes what the contract does not allow, or the store itself breaks it."""


class State(Struct):
    """All rows, with times in microseconds."""

    jobs: dict[str, Row] = field(default_factory=dict)
    job_events: dict[str, list[Row]] = field(default_factory=dict)
    runs: dict[str, Row] = field(default_factory=dict)
    nodes: dict[str, dict[str, Row]] = field(default_factory=dict)
    """By run and rank."""
    events: dict[str, list[Row]] = field(default_factory=dict)
    leases: dict[str, Row] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    """The last numbers that were given, by what is counted."""

    def next_number(self, *counted: str) -> int:
        """The next number, from 1."""
        key = "\n".join(counted)
        self.numbers[key] = self.numbers.get(key, 0) + 1
        return self.numbers[key]

    def job(self, job_id: str) -> Row:
        """Raises NotFound."""
        if job_id not in self.jobs:
            raise NotFound(f"no job with the id {job_id!r}")
        return self.jobs[job_id]

    def run(self, run_id: str) -> Row:
        """Raises NotFound."""
        if run_id not in self.runs:
            raise NotFound(f"no run with the id {run_id!r}")
        return self.runs[run_id]

    def check_lease(self, lease: Lease) -> None:
        """Raises LeaseLost, NotFound."""
        self.run(lease.run_id)
        held = self.leases.get(lease.run_id)
        if held is None or (held["owner"], held["token"]) != (lease.owner, lease.token):
            now = None if held is None or not held["owner"] else _lease(held)
            raise LeaseLost(lease, now)

    def append(self, run_id: str, entries: Iterable[NewEntry], now: float) -> None:
        """Add entries to a run's event log."""
        log = self.events.setdefault(run_id, [])
        time = max(_micros(now), log[-1]["time"] if log else 0)
        for kind, data in entries:
            entry = {"run_id": run_id, "seq": len(log) + 1, "time": time}
            log.append({**entry, "kind": _plain(kind), "data": _plain(data)})

    def append_to_job(self, job_id: str, kind: str, by: str, data: Any, now: float) -> None:
        """Add an entry to a Job's event log."""
        log = self.job_events.setdefault(job_id, [])
        time = max(_micros(now), log[-1]["time"] if log else 0)
        entry = {"job_id": job_id, "seq": len(log) + 1, "time": time, "kind": kind, "by": by}
        log.append({**entry, "data": _plain(data)})

    def set_nodes(self, run_id: str, records: Iterable[NodeRecord]) -> None:
        """Insert or replace nodes of a run."""
        for record in records:
            NodeState(record.state)
            row = _row(record, _NODE_TIMES)
            rows = self.nodes.setdefault(run_id, {})
            before = rows.get(str(record.rank))
            if before and not record.metrics and before["incarnation"] == record.incarnation:
                row["metrics"] = before["metrics"]
            rows[str(record.rank)] = row

    def change_nodes(self, run_id: str, changes: Iterable[NodeChange]) -> None:
        """Change nodes of a run, each of which must have a record."""
        rows = self.nodes.get(run_id, {})
        for change in changes:
            for rank in chain.from_iterable(change.ranks):
                before = convert(_timed(rows[str(rank)], _NODE_TIMES), NodeRecord)
                self.set_nodes(run_id, [change.applied_to(before)])

    def insert_job(self, job: JobRecord) -> JobRecord:
        """See `Jobs.insert`."""
        found = self.jobs.get(job.id)
        if found and found["project"] != job.project:
            raise names.no_job_error(job.id)
        found = found or self.by_content(job.project, job.content_hash)
        if found:
            _job(found).check_active()
            return _job(found)
        JobState(job.state)
        version = self.next_number("versions", job.project, job.name)
        self.jobs[job.id] = {**_row(job, _JOB_TIMES), "version": version}
        self.append_to_job(job.id, "created", job.created_by, {}, job.created_at)
        return _job(self.jobs[job.id])

    def by_content(self, project: str, content_hash: str) -> Row | None:
        """See `Jobs.by_content`."""
        meant = (project, content_hash, JobState.ACTIVE)
        rows = reversed(self.jobs.values())
        return next(
            (row for row in rows if (row["project"], row["content_hash"], row["state"]) == meant),
            None,
        )

    def check_ended(self, job_id: str) -> list[Problem]:
        """A problem for each run of the Job that has not ended."""
        live = (row for row in self.runs.values() if row["job_id"] == job_id and _is_live(row))
        return [
            Problem(
                "", f"{row['name']} is {row['state']}", f"`muster cancel {row['name']}` ends it"
            )
            for row in live
        ]


class MemoryStore:
    """See `store.base.Store`. rng: decides the order of what has none."""

    def __init__(self, rng: Random) -> None:
        self._lock = RLock()
        self._text = msgspec.json.encode(State())
        self._rng = rng
        self.jobs = MemoryJobs(self)
        self.runs = MemoryRuns(self)
        self.events = MemoryEvents(self)
        self.leases = MemoryLeases(self)

    def __getattr__(self, name: str) -> Any:
        if name in ("accounts", "secrets", "audit", "schedules", "outbox", "notifications"):
            raise NotImplementedError(f"tests of {name} use a database")
        raise AttributeError(name)

    @property
    def reads_at_once(self) -> bool:
        """See `Store.reads_at_once`."""
        return True

    @property
    def replaced(self) -> bool:
        """See `Store.replaced`."""
        return False

    def close(self) -> None:
        """See `Store.close`."""

    def read(self) -> State:
        """A copy of the rows."""
        return msgspec.json.decode(self._text, type=State)

    @contextmanager
    def write(self) -> Iterator[State]:
        """A transaction: rows to change, which are kept unless the block raises."""
        with self._lock:
            after = self.read()
            yield after
            check_change(self.read(), after)
            self._text = msgspec.json.encode(after)

    def in_no_order(self, found: list[T]) -> list[T]:
        """The list in a random order."""
        return self._rng.sample(found, len(found))


class MemoryJobs:
    """See `store.protocols.jobs.Jobs`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def insert(self, job: JobRecord) -> JobRecord:
        """See `Jobs.insert`."""
        with self._store.write() as state:
            return state.insert_job(job)

    def by_content(self, project: str, content_hash: str) -> JobRecord | None:
        """See `Jobs.by_content`."""
        row = self._store.read().by_content(project, content_hash)
        return None if row is None else _job(row)

    def find(self, project: str, text: str) -> JobRecord:
        """See `Jobs.find`."""
        rows = [r for r in reversed(self._store.read().jobs.values()) if r["project"] == project]
        found = (
            [row for row in rows if row["id"] == text]
            or _by_job_name(rows, text)
            or _by_job_display_name(rows, text)
            or _by_prefix(rows, text)
        )
        if not found:
            known = sorted({n for row in rows for n in (row["name"], row["display_name"]) if n})
            raise names.not_found_error("job", text, known, "muster jobs list")
        if len(found) > 1:
            pairs = [(row["id"], row["name"]) for row in found]
            raise names.ambiguous_id_error("jobs", text, pairs)
        return _job(found[0])

    def listing(
        self,
        project: str,
        *,
        deleted: bool = False,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[JobRecord]:
        """See `Jobs.listing`."""
        rows = [row for row in self._store.read().jobs.values() if row["project"] == project]
        if before is not None:
            ids = [row["id"] for row in rows]
            rows = rows[: ids.index(before) if before in ids else 0]
        found = [
            _job(row)
            for row in reversed(rows)
            if (deleted or row["state"] == JobState.ACTIVE) and _has_tags(row, tags or {})
        ]
        return found[:limit]

    def update(
        self, before: JobRecord, job: JobRecord, *, by: str, changes: Mapping[str, Any]
    ) -> None:
        """See `Jobs.update`."""
        with self._store.write() as state:
            row = state.job(job.id)
            stored = _job(row)
            stored.check_active()
            if stored.updated_at != before.updated_at:
                text = f"job {job.handle} was changed by another user meanwhile"
                raise InvalidInput(Problem("", text, "review the change, then edit the job again"))
            edited = _row(job, _JOB_TIMES)
            row.update({name: edited[name] for name in _EDITABLE})
            state.append_to_job(job.id, "edited", by, {"changes": changes}, job.updated_at)

    def delete(self, job_id: str, *, by: str, now: float) -> bool:
        """See `Jobs.delete`."""
        with self._store.write() as state:
            row = state.job(job_id)
            if row["state"] == JobState.DELETED:
                return False
            if problems := state.check_ended(job_id):
                raise InvalidInput(*problems)
            row["state"] = JobState.DELETED.value
            state.append_to_job(job_id, "deleted", by, {}, now)
            return True

    def delete_unused(self, job_id: str) -> None:
        """See `Jobs.delete_unused`."""
        with self._store.write() as state:
            if all(row["job_id"] != job_id for row in state.runs.values()):
                state.jobs.pop(job_id, None)
                state.job_events.pop(job_id, None)

    def check_ended(self, job_ids: Sequence[str]) -> None:
        """See `Jobs.check_ended`."""
        state = self._store.read()
        if problems := [one for job_id in job_ids for one in state.check_ended(job_id)]:
            raise InvalidInput(*problems)

    def artifact_in_use(self, sha256: str) -> bool:
        """See `Jobs.artifact_in_use`."""
        return sha256 in self.artifacts_in_use()

    def has_artifact(self, project: str, sha256: str) -> bool:
        """See `Jobs.has_artifact`."""
        rows = self._store.read().jobs.values()
        active = [row for row in rows if row["state"] == JobState.ACTIVE]
        return (project, sha256) in {(row["project"], row["artifact_sha256"]) for row in active}

    def artifacts_in_use(self) -> set[str]:
        """See `Jobs.artifacts_in_use`."""
        rows = self._store.read().jobs.values()
        active = (row for row in rows if row["state"] == JobState.ACTIVE)
        return {row["artifact_sha256"] for row in active} - {None}

    def events(self, job_id: str, seq: int = 0) -> list[JobEventRecord]:
        """See `Jobs.events`."""
        log = self._store.read().job_events.get(job_id, [])
        return [convert(_timed(row, ("time",)), JobEventRecord) for row in log[seq:]]


class MemoryRuns:
    """See `store.protocols.runs.Runs`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def insert(
        self,
        job: JobRecord,
        build: RunBuilder,
        owner: Owner | None = None,
        expires_at: float | None = None,
    ) -> RunRecord:
        """See `Runs.insert`."""
        with self._store.write() as state:
            kept = state.insert_job(job)
            number = state.next_number("runs", kept.project, kept.name)
            name = f"{kept.name}-{number}"
            run, nodes = build(kept, number, name)
            _check_new(run, kept, number, name)
            if run.id in state.runs:
                raise ContractBroken(f"a second run with the id {run.id}")
            position = state.next_number("positions")
            state.runs[run.id] = {**_row(run, _RUN_TIMES), "position": position}
            state.set_nodes(run.id, nodes)
            entries: list[NewEntry] = [("run", {"state": run.state, "details": run.details})]
            if ranks := [node.rank for node in nodes if node.state == NodeState.SCALED_DOWN]:
                data = {"ranks": format_ranks(ranks), "state": NodeState.SCALED_DOWN}
                entries.append(("nodes", data))
            state.append(run.id, entries, run.created_at)
            if owner is not None:
                lease = Lease.first(run.id, owner, expires_at)
                state.leases[run.id] = _row(lease, ("expires_at",))
        return run

    # --- one run

    def get(self, run_id: str) -> RunRecord:
        """See `Runs.get`."""
        return _run(self._store.read().run(run_id))

    def summary(self, run_id: str) -> RunSummary:
        """See `Runs.summary`."""
        return _summary(self._store.read().run(run_id))

    def nodes(self, run_id: str, chosen: NodeFilter | None = None) -> list[NodeRecord]:
        """See `Runs.nodes`."""
        rows = self._store.read().nodes.get(run_id, {}).values()
        found = sorted(
            (convert(_timed(row, _NODE_TIMES), NodeRecord) for row in rows),
            key=lambda node: node.rank,
        )
        if chosen is None:
            return found
        found = [
            node
            for node in found
            if node.rank > chosen.after
            and (chosen.before is None or node.rank < chosen.before)
            and (chosen.ranks is None or node.rank in chosen.ranks)
            and (chosen.groups is None or node.group in chosen.groups)
            and (chosen.states is None or node.state in chosen.states)
            and (node.has_started or not chosen.started)
        ]
        if chosen.limit is None:
            return found
        return found[max(len(found) - chosen.limit, 0) :] if chosen.last else found[: chosen.limit]

    def replica_states(self, run_id: str, group: str, nodes: int) -> dict[str, int]:
        """See `Runs.replica_states`."""
        states: dict[int, set[str]] = {}
        for node in self.nodes(run_id):
            if node.group == group and node.has_started:
                states.setdefault(node.replica, set()).add(str(node.state))
        return dict(Counter(",".join(sorted(each)) for each in states.values()))

    def save(self, *steps: RunStep) -> None:
        """See `Runs.save`."""
        with self._store.write() as state:
            for step in steps:
                self._write(state, step)

    def _write(self, state: State, step: RunStep) -> None:
        lease, changes = step.lease, step.changes
        state.check_lease(lease)
        row = state.run(lease.run_id)
        RunState(changes.get("state", row["state"]))
        row.update({name: _column(name, value) for name, value in changes.items()})
        state.set_nodes(lease.run_id, step.nodes)
        state.change_nodes(lease.run_id, step.node_changes)
        state.append(lease.run_id, step.entries, step.now)

    def end_corrupt(self, lease: Lease, why: str, now: float) -> None:
        """See `Runs.end_corrupt`."""
        with self._store.write() as state:
            state.check_lease(lease)
            row = state.run(lease.run_id)
            if not _is_live(row):
                return
            canceled = row["cancel_requested_at"] is not None
            ended = RunState.CANCELED if canceled else RunState.FAILED
            row.update(state=ended.value, details=why, finished_at=_micros(now))
            state.append(lease.run_id, [("run", {"state": ended, "details": why})], now)

    def check_writable(self, run_id: str) -> None:
        """See `Runs.check_writable`."""

    def delete(self, run_id: str) -> None:
        """See `Runs.delete`."""
        with self._store.write() as state:
            for table in (state.runs, state.nodes, state.events, state.leases):
                table.pop(run_id, None)

    # --- requests

    def request(
        self, run_id: str, kind: Literal["cancel", "suspend"], why: str, now: float
    ) -> bool:
        """See `Runs.request`."""
        with self._store.write() as state:
            row = state.runs.get(run_id)
            if row is None or not _is_live(row) or row[f"{kind}_requested_at"] is not None:
                return False
            row.update({f"{kind}_requested_at": _micros(now), f"{kind}_reason": why})
            state.append(run_id, [(f"{kind}_requested", {"why": why})], now)
            return True

    def request_scale(self, run_id: str, group: str, replicas: int, why: str, now: float) -> bool:
        """See `Runs.request_scale`."""
        with self._store.write() as state:
            row = state.runs.get(run_id)
            if row is None or not _is_live(row):
                return False
            requested = row["scale_requested"]
            if requested.get(group, {}).get("replicas") == replicas:
                return False
            requested[group] = {"replicas": replicas, "why": why}
            data = {"group": group, "replicas": replicas, "why": why}
            state.append(run_id, [("scale_requested", data)], now)
            return True

    def pending_requests(self, run_id: str) -> PendingRequests:
        """See `Runs.pending_requests`."""
        row = self._store.read().runs.get(run_id)
        if row is None:
            return PendingRequests()
        cancel, suspend = row["cancel_reason"] or "", row["suspend_reason"] or ""
        return PendingRequests(cancel, suspend, row["scale_requested"])

    def with_requests(self, run_ids: Collection[str]) -> list[str]:
        """See `Runs.with_requests`."""
        state = self._store.read()
        known = [run_id for run_id in set(run_ids) if run_id in state.runs]
        found = [run_id for run_id in known if any(self.pending_requests(run_id))]
        return self._store.in_no_order(found)

    # --- finding runs

    def find(self, project: str, text: str) -> RunRecord:
        """See `Runs.find`."""
        return self.get(self.find_id(project, text))

    def find_id(self, project: str, text: str) -> str:
        """See `Runs.find_id`."""
        rows = [r for r in reversed(self._store.read().runs.values()) if r["project"] == project]
        if text == "last":
            if not rows:
                raise NotFound("no runs yet (`muster run` starts one)")
            return str(rows[0]["id"])
        found = [row for row in rows if text in (row["name"], row["id"])]
        if not found:
            found = [row for row in rows if row["display_name"] == text]
            if len(found) > 1:
                raise names.ambiguous_name_error("runs", text, [row["name"] for row in found])
        found = found or _by_prefix(rows, text)
        if not found:
            known = [n for row in rows for n in (row["name"], row["display_name"]) if n]
            raise names.not_found_error("run", text, known, "muster ps")
        if len(found) > 1:
            pairs = [(row["id"], row["name"]) for row in found]
            raise names.ambiguous_id_error("runs", text, pairs)
        return str(found[0]["id"])

    def listing(self, project: str | None, chosen: RunFilter) -> list[RunSummary]:
        """See `Runs.listing`."""
        return [_summary(row) for row in self._chosen(project, chosen)]

    def records(self, project: str | None, chosen: RunFilter) -> list[RunRecord]:
        """See `Runs.records`."""
        return [_run(row) for row in self._chosen(project, chosen)]

    def _chosen(self, project: str | None, chosen: RunFilter) -> list[Row]:
        rows = [
            row
            for row in reversed(self._store.read().runs.values())
            if project in (None, row["project"])
            and (chosen.states is None or row["state"] in chosen.states)
            and chosen.job in (None, row["job_name"], row["job_id"])
            and (chosen.since is None or row["created_at"] >= micros(chosen.since))
            and (chosen.before is None or row["position"] < chosen.before)
            and _has_tags(row, chosen.tags)
        ]
        return rows[: chosen.limit]

    def state_counts(self) -> dict[str, int]:
        """See `Runs.state_counts`."""
        return dict(Counter(row["state"] for row in self._store.read().runs.values()))

    def first_owner(self) -> str | None:
        """See `Runs.first_owner`."""
        rows = sorted(self._store.read().runs.values(), key=lambda row: row["position"])
        return rows[0]["created_by"] if rows else None

    def live(self) -> list[RunSummary]:
        """See `Runs.live`."""
        rows = self._store.read().runs.values()
        return self._store.in_no_order([_summary(row) for row in rows if _is_live(row)])

    def needing_supervisor(self) -> list[str]:
        """See `Runs.needing_supervisor`."""
        live = [row for row in self._store.read().runs.values() if _is_live(row)]
        return self._store.in_no_order(
            [row["id"] for row in live if row["state"] != "SUSPENDED" or row["cancel_reason"]]
        )

    def expired(self, now: float) -> list[str]:
        """See `Runs.expired`."""
        rows = self._store.read().runs.values()
        kept = [row for row in rows if row["expires_at"] is not None]
        return self._store.in_no_order([r["id"] for r in kept if r["expires_at"] <= micros(now)])


class MemoryEvents:
    """See `store.protocols.events.Events`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def _log(self, run_id: str) -> list[Row]:
        return self._store.read().events.get(run_id, [])

    def since(self, run_id: str, seq: int = 0, limit: int | None = None) -> list[EventRecord]:
        """See `Events.since`."""
        rows = self._log(run_id)[seq:][:limit]
        return [convert(_timed(row, ("time",)), EventRecord) for row in rows]

    def count(self, run_id: str, kind: str) -> int:
        """See `Events.count`."""
        return sum(row["kind"] == kind for row in self._log(run_id))

    def count_since_last_node_entry(self, run_id: str, kind: str, after: float = 0.0) -> int:
        """See `Events.count_since_last_node_entry`."""
        counted = 0
        for row in self._log(run_id):
            counts = row["kind"] == kind and row["time"] > micros(after)
            counted = 0 if row["kind"] == "nodes" else counted + counts
        return counted

    def last(self, run_id: str) -> int:
        """See `Events.last`."""
        return max((row["seq"] for row in self._log(run_id)), default=0)

    def last_time(self, run_id: str, kind: str | None = None) -> float:
        """See `Events.last_time`."""
        times = [row["time"] for row in self._log(run_id) if kind in (None, row["kind"])]
        return float(seconds(max(times, default=0)))


class MemoryLeases:
    """See `store.protocols.leases.Leases`."""

    term: float | None = None

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def now(self) -> float:
        """See `Leases.now`."""
        return time.time()

    def take(
        self,
        run_id: str,
        owner: Owner,
        now: float,
        *,
        expires_at: float | None = None,
        alone: bool = False,
        force: bool = False,
    ) -> Lease:
        """See `Leases.take`."""
        with self._store.write() as state:
            state.run(run_id)
            row = state.leases.get(run_id)
            if row is not None and not (force or _is_free(row, owner, now, alone=alone)):
                raise LeaseHeld(_lease(row))
            token = 1 if row is None else row["token"] + 1
            lease = Lease(run_id, owner.id, owner.host, owner.boot, token, expires_at)
            state.leases[run_id] = _row(lease, ("expires_at",))
            return lease

    def renew(self, leases: Collection[Lease], expires_at: float) -> None:
        """See `Leases.renew`."""
        with self._store.write() as state:
            for lease in leases:
                if _has(state, lease):
                    state.leases[lease.run_id]["expires_at"] = _micros(expires_at)

    def lost(self, leases: Collection[Lease]) -> list[Lease]:
        """See `Leases.lost`."""
        state = self._store.read()
        return self._store.in_no_order([lease for lease in leases if not _has(state, lease)])

    def release(self, lease: Lease) -> None:
        """See `Leases.release`."""
        with self._store.write() as state:
            if _has(state, lease):
                state.leases[lease.run_id].update(owner="", host="", boot="", expires_at=None)

    def get(self, run_id: str) -> Lease | None:
        """See `Leases.get`."""
        row = self._store.read().leases.get(run_id)
        return _lease(row) if row and row["owner"] else None


def _has(state: State, lease: Lease) -> bool:
    """Whether the owner of a lease still has it."""
    row = state.leases.get(lease.run_id)
    return row is not None and (row["owner"], row["token"]) == (lease.owner, lease.token)


# --- invariants


def check_change(before: State, after: State) -> None:
    """Raises ContractBroken if a change loses or repeats something."""
    for key, number in before.numbers.items():
        _require(after.numbers.get(key, 0) >= number, f"a number of {key!r} is given twice")
    for rows, numbered in ((after.jobs, "version"), (after.runs, "number")):
        given = [
            (row["project"], row.get("job_name", row["name"]), row[numbered])
            for row in rows.values()
        ]
        _require(len(set(given)) == len(given), f"two have the same {numbered}: {given}")
    positions = [row["position"] for row in after.runs.values()]
    _require(all(a < b for a, b in pairwise(positions)), f"positions: {positions}")
    for earlier, later in ((before.events, after.events), (before.job_events, after.job_events)):
        for owner_id, log in later.items():
            known = earlier.get(owner_id, [])
            _require(log[: len(known)] == known, f"entries of {owner_id} have changed")
            _require([row["seq"] for row in log] == [*range(1, len(log) + 1)], f"gaps: {log}")
            _require(all(a["time"] <= b["time"] for a, b in pairwise(log)), f"times: {log}")
    for run_id, row in after.leases.items():
        _require(run_id in after.runs, f"a lease of the missing run {run_id}")
        if (held := before.leases.get(run_id)) is not None:
            _require(row["token"] >= held["token"], f"the token of {run_id} decreases")
            other = row["owner"] not in ("", held["owner"])
            _require(not other or row["token"] > held["token"], f"two owners of {run_id}: {row}")


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise ContractBroken(text)


def _check_new(run: RunRecord, job: JobRecord, number: int, name: str) -> None:
    """Raises ContractBroken unless the record is that of the run that is to be built."""
    made = (run.job_id, run.job_name, run.number, run.name, run.project)
    meant = (job.id, job.name, number, name, job.project)
    _require(made == meant, f"the record of another run was built: {made}, not {meant}")
    RunState(run.state)


# --- rows and records


def _plain(value: Any) -> Any:
    """A copy of JSON. Raises ContractBroken if the value is none."""
    if isinstance(value, Mapping):
        _require(all(isinstance(key, str) for key in value), f"keys that are no text: {value!r}")
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        _require(math.isfinite(value), f"not finite: {value}")
    _require(value is None or isinstance(value, (bool, int, float)), f"not JSON: {value!r}")
    return value


def _micros(value: float) -> int:
    """A time as it is kept. Raises ContractBroken if it is none."""
    _require(math.isfinite(value), f"no time: {value}")
    return micros(value)


def _column(name: str, value: Any) -> Any:
    if name in _RUN_TIMES and value is not None:
        return _micros(value)
    return _plain(value)


def _row(record: Struct, times: Sequence[str]) -> Row:
    row: Row = _plain(to_builtins(record))
    for name in times:
        if row[name] is not None:
            row[name] = _micros(row[name])
    return row


def _timed(row: Row, times: Sequence[str]) -> Row:
    return {**row, **{name: seconds(row[name]) for name in times}}


def _job(row: Row) -> JobRecord:
    return convert(_timed(row, _JOB_TIMES), JobRecord)


def _run(row: Row) -> RunRecord:
    return convert(_timed(row, _RUN_TIMES), RunRecord)


def _summary(row: Row) -> RunSummary:
    lifecycle = row["lifecycle"] or {}
    more = {name: lifecycle.get(key) for name, key in SUMMARY_LIFECYCLE.items()}
    return convert({**_timed(row, _RUN_TIMES), **more}, RunSummary)


def _lease(row: Row) -> Lease:
    return convert(_timed(row, ("expires_at",)), Lease)


# --- which rows


def _is_live(row: Row) -> bool:
    return row["state"] not in TERMINAL


def _is_free(row: Row, owner: Owner, now: float, *, alone: bool) -> bool:
    """Whether an owner may take a lease."""
    if row["owner"] in ("", owner.id):
        return True
    if row["expires_at"] is not None and row["expires_at"] <= _micros(now):
        return True
    return alone and owner.on_same_host(row["host"], row["boot"])


def _has_tags(row: Row, tags: Mapping[str, str | None]) -> bool:
    own = row["tags"]
    return all(key in own and value in (None, own[key]) for key, value in tags.items())


def _active_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["state"] != JobState.ACTIVE)


def _by_job_name(rows: list[Row], text: str) -> list[Row]:
    """rows: newest first. Raises NoSuchVersion."""
    name, at, version = text.partition("@")
    named = [row for row in rows if row["name"] == name]
    if not at or not named:
        return _active_first(named)[:1]
    matching = [row for row in named if str(row["version"]) == version]
    if not matching:
        newest = named[0]["version"]
        there = "only version 1" if newest == 1 else f"versions 1 to {newest}"
        raise names.NoSuchVersion(f"job {name!r} has no version {version!r} (it has {there})")
    return matching


def _by_job_display_name(rows: list[Row], text: str) -> list[Row]:
    """rows: newest first. Raises SameName."""
    found = _active_first(row for row in rows if row["display_name"] == text)
    active = [row for row in found if row["state"] == JobState.ACTIVE] or found
    if len({row["name"] for row in active}) > 1:
        handles = [f"{row['name']}@{row['version']}" for row in active]
        raise names.ambiguous_name_error("jobs", text, handles)
    return found[:1]


def _by_prefix(rows: list[Row], text: str) -> list[Row]:
    prefix = names.id_from_ocid(text)
    long_enough = len(prefix) >= names.SHORTEST_PREFIX
    found = [row for row in rows if long_enough and row["id"].startswith(prefix)]
    return sorted(found, key=lambda row: str(row["id"]))
