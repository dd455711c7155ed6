"""Runs and their nodes."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

from muster.errors import NotFound
from muster.identity import Owner
from muster.lifecycle.states import NodeState, RunState, stored_node_state
from muster.store import names
from muster.store.records import (
    JobRecord,
    Lease,
    NewEntry,
    NodeFilter,
    NodeRecord,
    PendingRequests,
    RunFilter,
    RunRecord,
    RunStep,
    RunSummary,
    decoded,
)
from muster.store.sql.database import LIVE, Connection, Database, Dialect, Row, lock_runs
from muster.store.sql.events import append_events, has_events
from muster.store.sql.jobs import add_job
from muster.store.sql.leases import check_lease, write_lease
from muster.store.sql.numbers import next_number
from muster.store.sql.reports import heard_state, is_job_run, report_job, report_run
from muster.store.sql.rows import (
    RUN_QUERY,
    change_nodes,
    change_run,
    corrupt,
    insert_run,
    node_query,
    node_record,
    run_record,
    run_summary,
    summary_columns,
    write_nodes,
)
from muster.store.sql.search import by_prefix, tag_conditions
from muster.store.times import micros

if TYPE_CHECKING:
    from muster.store.protocols.runs import RunBuilder


class SqlRuns:
    """See `store.protocols.runs.Runs`."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._summaries = f"SELECT {summary_columns(db.dialect)} FROM runs"
        #: The runs of a project, newest first.
        self._newest = f"FROM {db.dialect.runs_by_project} WHERE project = ? ORDER BY position DESC"

    def insert(
        self,
        job: JobRecord,
        build: RunBuilder,
        owner: Owner | None = None,
        expires_at: float | None = None,
    ) -> RunRecord:
        """See `Runs.insert`."""
        inserted = ""

        def done(connection: Connection) -> bool:
            sql = "SELECT 1 FROM runs WHERE id = ?"
            return connection.execute(sql, (inserted,)).fetchone() is not None

        with self._db.transaction(durable=True, done=done) as connection:
            kept, new = add_job(connection, job)
            number = next_number(connection, "runs", kept.project, kept.name)
            run, nodes = build(kept, number, f"{kept.name}-{number}")
            inserted = run.id
            insert_run(connection, run)
            write_nodes(connection, run.id, nodes)
            accepted = ("run", {"state": run.state, "details": run.details})
            entries = [accepted, *_scaled_down(nodes)]
            append_events(connection, run.id, entries, run.created_at)
            if owner is not None:
                write_lease(connection, Lease.first(run.id, owner, expires_at))
            if heard_state(connection, run.id) is not None:
                # the job of a job run is a resource, which has reported its own creation
                if new and not is_job_run(connection, run.id):
                    report_job(connection, kept, "created", job.created_at, by=job.created_by)
                report_run(connection, run.id, run.created_at, RunState.ACCEPTED, "")
                if run.state != RunState.ACCEPTED:  # it was submitted suspended
                    report_run(connection, run.id, run.created_at)
        return run

    # --- one run

    def get(self, run_id: str) -> RunRecord:
        """See `Runs.get`."""
        rows = self._db.read(f"{RUN_QUERY} WHERE id = ?", (run_id,))
        if not rows:
            raise names.no_run_error(run_id)
        return run_record(self._db, rows[0])

    def summary(self, run_id: str) -> RunSummary:
        """See `Runs.summary`."""
        rows = self._db.read(f"{self._summaries} WHERE id = ?", (run_id,))
        if not rows:
            raise names.no_run_error(run_id)
        return run_summary(rows[0])

    def nodes(self, run_id: str, chosen: NodeFilter | None = None) -> list[NodeRecord]:
        """See `Runs.nodes`."""
        sql = node_query(self._db.dialect)
        values: list[Any] = [run_id]
        if chosen is not None:
            clauses, more = _node_clauses(self._db.dialect, chosen)
            sql, values = sql + clauses, [*values, *more]
        last = chosen is not None and chosen.last
        sql += f" ORDER BY rank{' DESC' * last}"
        if chosen is not None and chosen.limit is not None:
            sql, values = f"{sql} LIMIT ?", [*values, chosen.limit]
        rows = self._db.read(sql, values)
        return [node_record(self._db, run_id, row) for row in (reversed(rows) if last else rows)]

    def replica_states(self, run_id: str, group: str, nodes: int) -> dict[str, int]:
        """See `Runs.replica_states`."""
        of_group = f"FROM nodes WHERE run_id = ? AND grp = ? AND {_STARTED}"
        states = f"SELECT state AS states {of_group}"
        if nodes > 1:
            joined = self._db.dialect.join_distinct.format("state")
            states = f"SELECT {joined} AS states {of_group} GROUP BY replica"
        sql = f"SELECT states, count(*) AS number FROM ({states}) AS replicas GROUP BY states"
        counted: dict[str, int] = {}
        for row in self._db.read(sql, (run_id, group)):
            names = {str(stored_node_state(state)) for state in str(row["states"]).split(",")}
            key = ",".join(sorted(names))
            counted[key] = counted.get(key, 0) + row["number"]
        return counted

    def save(self, *steps: RunStep) -> None:
        """See `Runs.save`."""
        states = [step.changes.get("state", RunState.IN_PROGRESS) for step in steps]

        first = {step.lease.run_id: 0 for step in steps}

        def write(connection: Connection) -> None:
            lock_runs(connection, first)
            for step in steps:
                first[step.lease.run_id] = _write_step(connection, step)

        def done(connection: Connection) -> bool:
            # to write the columns of a run or a node twice does no harm
            return all(
                has_events(connection, step.lease.run_id, step.entries, first[step.lease.run_id])
                for step in steps
            )

        durable = any(RunState(state).terminal for state in states)
        self._db.write(write, durable=durable, done=done)

    def end_corrupt(self, lease: Lease, why: str, now: float) -> None:
        """See `Runs.end_corrupt`."""
        run_id = lease.run_id

        def step(connection: Connection) -> None:
            lock_runs(connection, [run_id])
            check_lease(connection, lease)
            heard = heard_state(connection, run_id) is not None
            requested = f"SELECT cancel_requested_at FROM runs WHERE id = ? AND {LIVE}"
            for (canceled,) in connection.execute(requested, (run_id,)).fetchall():
                state = RunState.FAILED if canceled is None else RunState.CANCELED
                connection.execute(
                    "UPDATE runs SET state = ?, details = ?, finished_at = ? WHERE id = ?",
                    (state, why, micros(now), run_id),
                )
                append_events(connection, run_id, [("run", {"state": state, "details": why})], now)
                if heard:
                    report_run(connection, run_id, now)

        self._db.write(step, durable=True)

    def check_writable(self, run_id: str) -> None:
        """See `Runs.check_writable`."""
        with self._db.transaction() as connection:
            # an empty transaction succeeds on some read-only disks
            connection.execute("UPDATE runs SET id = id WHERE id = ?", (run_id,))

    def delete(self, run_id: str) -> None:
        """See `Runs.delete`."""

        def step(connection: Connection) -> None:
            if heard_state(connection, run_id) is not None:
                report_run(connection, run_id, self._db.now(), RunState.DELETED, "")
            connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))

        self._db.write(step, durable=True)

    # --- requests

    def request(
        self, run_id: str, kind: Literal["cancel", "suspend"], why: str, now: float
    ) -> bool:
        """See `Runs.request`."""

        def step(connection: Connection) -> bool:
            sql = (
                f"UPDATE runs SET {kind}_requested_at = ?, {kind}_reason = ? WHERE id = ? "
                f"AND {kind}_requested_at IS NULL AND {LIVE} RETURNING id"
            )
            if not connection.execute(sql, (micros(now), why, run_id)).fetchall():
                return False
            append_events(connection, run_id, [(f"{kind}_requested", {"why": why})], now)
            return True

        return self._db.write(step, durable=True)

    def request_scale(self, run_id: str, group: str, replicas: int, why: str, now: float) -> bool:
        """See `Runs.request_scale`."""

        def step(connection: Connection) -> bool:
            sql = f"SELECT scale_requested FROM runs WHERE id = ? AND {LIVE}"
            row = connection.execute(sql + connection.dialect.lock, (run_id,)).fetchone()
            if row is None:
                return False
            requested = self._parse_scale_requests(run_id, row[0])
            if requested.get(group, {}).get("replicas") == replicas:
                return False
            requested[group] = {"replicas": replicas, "why": why}
            connection.execute(
                "UPDATE runs SET scale_requested = ? WHERE id = ?", (json.dumps(requested), run_id)
            )
            data = {"group": group, "replicas": replicas, "why": why}
            append_events(connection, run_id, [("scale_requested", data)], now)
            return True

        return self._db.write(step, durable=True)

    def pending_requests(self, run_id: str) -> PendingRequests:
        """See `Runs.pending_requests`."""
        sql = "SELECT cancel_reason, suspend_reason, scale_requested FROM runs WHERE id = ?"
        rows = self._db.read(sql, (run_id,))
        if not rows:
            return PendingRequests()
        cancel, suspend, scale = rows[0]
        scales = self._parse_scale_requests(run_id, scale)
        return PendingRequests(cancel or "", suspend or "", scales)

    def with_requests(self, run_ids: Collection[str]) -> list[str]:
        """See `Runs.with_requests`."""
        given = self._db.dialect.is_any.format("id", type="TEXT")
        requested = (
            "coalesce(cancel_reason, '') != '' OR coalesce(suspend_reason, '') != '' "
            "OR scale_requested != '{}'"
        )
        sql = f"SELECT id FROM runs WHERE {given} AND ({requested})"
        return [row["id"] for row in self._db.read(sql, (json.dumps(list(run_ids)),))]

    def _parse_scale_requests(self, run_id: str, text: Any) -> Any:
        try:
            return decoded(text)
        except ValueError as error:
            raise corrupt(self._db, run_id, run_id, f"scale_requested: {error}") from None

    # --- finding runs

    def find(self, project: str, text: str) -> RunRecord:
        """See `Runs.find`."""
        rows = self._named(RUN_QUERY, project, text)
        if len(rows) == 1:
            return run_record(self._db, rows[0])
        return self.get(self._id_of(project, text, rows))

    def find_id(self, project: str, text: str) -> str:
        """See `Runs.find_id`."""
        rows = self._named("SELECT id, name FROM runs", project, text)
        return self._id_of(project, text, rows)

    def _named(self, query: str, project: str, text: str) -> Sequence[Row]:
        """The runs with this name or id."""
        if text == "last" or not names.is_valid_unicode(text):
            return []
        where = "WHERE project = ? AND (name = ? OR id = ?)"
        return self._db.read(f"{query} {where}", (project, text, text))

    def _id_of(self, project: str, text: str, rows: Sequence[Row]) -> str:
        """The id of a run. rows: see `_named`."""
        if text == "last":
            newest = self._db.read(f"SELECT id {self._newest} LIMIT 1", (project,))
            if not newest:
                raise NotFound("no runs yet (`muster run` starts one)")
            return str(newest[0]["id"])
        if names.is_valid_unicode(text):
            rows = (
                rows
                or self._by_display_name(project, text)
                or by_prefix(self._db, "runs", project, names.id_from_ocid(text))
            )
        if not rows:
            recent = f"SELECT name, display_name {self._newest} LIMIT 200"
            given = [name for row in self._db.read(recent, (project,)) for name in row if name]
            raise names.not_found_error("run", text, given, "muster ps")
        if len(rows) > 1:
            pairs = [(row["id"], row["name"]) for row in rows]
            raise names.ambiguous_id_error("runs", text, pairs)
        return str(rows[0]["id"])

    def _by_display_name(self, project: str, text: str) -> Sequence[Row]:
        """Raises InvalidInput if several runs have this display name."""
        sql = (
            "SELECT id, name FROM runs WHERE project = ? AND display_name = ? "
            "ORDER BY position DESC"
        )
        rows = self._db.read(sql, (project, text))
        if len(rows) > 1:
            raise names.ambiguous_name_error("runs", text, [row["name"] for row in rows])
        return rows

    def listing(self, project: str | None, chosen: RunFilter) -> list[RunSummary]:
        """See `Runs.listing`."""
        clauses, values = _clauses(self._db.dialect, project, chosen)
        rows = self._db.read(f"{self._summaries}{clauses}", values)
        return [run_summary(row) for row in rows]

    def records(self, project: str | None, chosen: RunFilter) -> list[RunRecord]:
        """See `Runs.records`."""
        clauses, values = _clauses(self._db.dialect, project, chosen)
        rows = self._db.read(f"{RUN_QUERY}{clauses}", values)
        return [run_record(self._db, row) for row in rows]

    def state_counts(self) -> dict[str, int]:
        """See `Runs.state_counts`."""
        rows = self._db.read("SELECT state, count(*) AS number FROM runs GROUP BY state")
        return {str(row["state"]): row["number"] for row in rows}

    def first_owner(self) -> str | None:
        """See `Runs.first_owner`."""
        rows = self._db.read("SELECT created_by FROM runs ORDER BY position LIMIT 1")
        return str(rows[0]["created_by"]) if rows else None

    def live(self) -> list[RunSummary]:
        """See `Runs.live`."""
        rows = self._db.read(f"{self._summaries} WHERE {LIVE}")
        return [run_summary(row) for row in rows]

    def needing_supervisor(self) -> list[str]:
        """See `Runs.needing_supervisor`."""
        canceled = "coalesce(cancel_reason, '') != ''"
        driven = f"{LIVE} AND (state != 'SUSPENDED' OR {canceled})"
        return [row["id"] for row in self._db.read(f"SELECT id FROM runs WHERE {driven}")]

    def expired(self, now: float) -> list[str]:
        """See `Runs.expired`."""
        sql = "SELECT id FROM runs WHERE expires_at IS NOT NULL AND expires_at <= ?"
        return [row["id"] for row in self._db.read(sql, (micros(now),))]


def _scaled_down(nodes: Sequence[NodeRecord]) -> list[NewEntry]:
    """The log entry for nodes that are not desired at the start. Nodes without an entry are
    PENDING."""
    ranks = [node.rank for node in nodes if node.state == NodeState.SCALED_DOWN]
    if not ranks:
        return []
    from muster.lifecycle.ranks import format_ranks

    return [("nodes", {"ranks": format_ranks(ranks), "state": NodeState.SCALED_DOWN})]


#: See `NodeRecord.has_started`.
_STARTED = (
    "state NOT IN ('SCALED_DOWN', 'PARKED') AND (started_at IS NOT NULL "
    "OR state NOT IN ('PENDING', 'STOPPED') OR (state = 'PENDING' AND incarnation > 0))"
)


def _node_clauses(dialect: Dialect, chosen: NodeFilter) -> tuple[str, list[Any]]:
    """Conditions of a query for nodes, and their values."""
    where = " AND rank > ?" + (f" AND {_STARTED}" if chosen.started else "")
    values: list[Any] = [chosen.after]
    if chosen.before is not None:
        where += " AND rank < ?"
        values.append(chosen.before)
    ranks = chosen.ranks
    if isinstance(ranks, range) and ranks.step == 1:
        where += " AND rank BETWEEN ? AND ?"
        values += [ranks.start, ranks.stop - 1]
        ranks = None
    columns = (
        ("rank", "INTEGER", ranks),
        ("grp", "TEXT", chosen.groups),
        ("state", "TEXT", chosen.states),
    )
    for column, kind, given in columns:
        if given is not None:  # as one value: the number of values is limited
            where += f" AND {dialect.is_any.format(column, type=kind)}"
            values.append(json.dumps(list(given)))
    return where, values


def _clauses(dialect: Dialect, project: str | None, chosen: RunFilter) -> tuple[str, list[Any]]:
    """The end of a query for runs, newest first, and its values."""
    where, values = tag_conditions(dialect, chosen.tags)
    column = str if chosen.since is None else dialect.unindexed.format
    if project is not None:
        # to use the index on time
        where.append(f"{column('project')} = ?")
        values.append(project)
    if chosen.states is not None:
        marks = ", ".join("?" * len(chosen.states))
        where.append(f"state IN ({marks})" if marks else "1 = 0")
        values += [str(state) for state in chosen.states]
    if chosen.job is not None:
        where.append("(job_name = ? OR job_id = ?)")
        values += [chosen.job, chosen.job]
    if chosen.since is not None:
        where.append("created_at >= ?")
        values.append(micros(chosen.since))
    if chosen.before is not None:
        where.append("position < ?")
        values.append(chosen.before)
    clauses = f" WHERE {' AND '.join(where)}" if where else ""
    # not by time, since the clock may have been set back
    clauses += f" ORDER BY {column('position')} DESC"
    if chosen.limit is not None:
        clauses += " LIMIT ?"
        values.append(chosen.limit)
    return clauses, values


def _new_states(step: RunStep) -> list[tuple[str, str]]:
    """The states that a run has in a step, which may be several: it may start and end in one. Each
    with its details."""
    logged = [
        (str(data["state"]), str(data.get("details") or ""))
        for kind, data in step.entries
        if kind == "run" and "state" in data
    ]
    if (last := step.changes.get("state")) is not None and (not logged or logged[-1][0] != last):
        logged.append((str(last), str(step.changes.get("details") or "")))
    return logged


def _write_step(connection: Connection, step: RunStep) -> int:
    """Within a transaction that has locked the run: record a step of it. Returns the number of its
    first entry in the event log."""
    run_id = step.lease.run_id
    check_lease(connection, step.lease)
    states = _new_states(step)
    before = heard_state(connection, run_id) if states else None
    change_run(connection, run_id, step.changes)
    write_nodes(connection, run_id, step.nodes)
    change_nodes(connection, run_id, step.node_changes)
    for state, details in states if before is not None else ():
        if state != before:
            report_run(connection, run_id, step.now, state, details)
            before = state
    return append_events(connection, run_id, step.entries, step.now)
