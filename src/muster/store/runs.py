"""Queries and changes of runs and their nodes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from muster.errors import NotFound
from muster.lifecycle.states import NodeState, RunState
from muster.store import jobs, lookup
from muster.store.database import Database, Row
from muster.store.records import (
    JobRecord,
    NodeRecord,
    PendingRequests,
    RunRecord,
    RunSummary,
    decoded,
)
from muster.store.run_rows import (
    RUN_COLUMNS,
    SUMMARY_COLUMNS,
    append_events,
    column_value,
    corrupt,
    node_record,
    run_record,
    run_summary,
    write_nodes,
)
from muster.store.schema import LIVE

_WITH_PLAN = "SELECT runs.*, plans.plan FROM runs LEFT JOIN plans ON plans.run_id = runs.id"

#: Makes the records of a run from its Job, its number and its name.
Builder = Callable[[JobRecord, int, str], tuple[RunRecord, Sequence[NodeRecord]]]


# --- one run


def insert(db: Database, job: JobRecord, build: Builder) -> RunRecord:
    """Store a run, its nodes and, if it is new, its Job in one durable transaction.

    Runs are numbered within the name of their Job; the name of a run is `<job>-<number>`. The names
    of runs are unique: the number is what follows the last dash.
    """
    with db.transaction(durable=True) as connection:
        kept = jobs.insert_into(connection, job)
        (number,) = connection.execute(
            "SELECT coalesce(max(number), 0) + 1 FROM runs WHERE job_name = ?", (kept.name,)
        ).fetchone()
        run, nodes = build(kept, number, f"{kept.name}-{number}")
        marks = ", ".join("?" * len(RUN_COLUMNS))
        connection.execute(
            f"INSERT INTO runs ({', '.join(RUN_COLUMNS)}) VALUES ({marks})",
            [column_value(name, getattr(run, name)) for name in RUN_COLUMNS],
        )
        connection.execute("INSERT INTO plans VALUES (?, ?)", (run.id, json.dumps(run.plan)))
        write_nodes(connection, run.id, nodes)
        accepted = ("run", {"state": run.state, "details": run.details})
        entries = [accepted, *_scaled_down(nodes)]
        append_events(connection, run.id, entries, run.created_at)
    return run


def _scaled_down(nodes: Sequence[NodeRecord]) -> list[tuple[str, Mapping[str, Any]]]:
    """The log entry for nodes that are not desired at the start. Nodes without an entry are
    PENDING."""
    ranks = [node.rank for node in nodes if node.state == NodeState.SCALED_DOWN]
    if not ranks:
        return []
    from muster.lifecycle.ranks import format_ranks

    return [("nodes", {"ranks": format_ranks(ranks), "state": NodeState.SCALED_DOWN})]


def get(db: Database, run_id: str) -> RunRecord:
    """The run with this id, which must be complete. Raises NotFound, CorruptRecord."""
    rows = db.read(f"{_WITH_PLAN} WHERE id = ?", (run_id,))
    if not rows:
        raise NotFound(f"no run with the id {run_id!r}")
    return run_record(db, rows[0])


def summary(db: Database, run_id: str) -> RunSummary:
    """The summary of a run; its record may be corrupt. Raises NotFound."""
    rows = db.read(f"SELECT {SUMMARY_COLUMNS} FROM runs WHERE id = ?", (run_id,))
    if not rows:
        raise NotFound(f"no run with the id {run_id!r}")
    return run_summary(rows[0])


def nodes(db: Database, run_id: str) -> list[NodeRecord]:
    """The nodes of a run, in rank order. Raises CorruptRecord."""
    rows = db.read("SELECT * FROM nodes WHERE run_id = ? ORDER BY rank", (run_id,))
    return [node_record(db, row) for row in rows]


def save(
    db: Database,
    run_id: str,
    changes: Mapping[str, Any],
    changed: Iterable[NodeRecord],
    entries: Sequence[tuple[str, Mapping[str, Any]]],
    now: float,
) -> None:
    """Record one step of a run in one transaction.

    changes: columns of RunRecord by name. changed: nodes, as whole records. entries: (kind, data)
    of events, which get the next numbers and the time `now`. Raises NotFound.
    """
    outcome = RunState(changes.get("state", RunState.IN_PROGRESS)).terminal
    columns, nodes = dict(changes), list(changed)
    plan = json.dumps(columns.pop("plan")) if "plan" in columns else None

    def step(connection: sqlite3.Connection) -> None:
        if plan is not None:
            connection.execute("UPDATE plans SET plan = ? WHERE run_id = ?", (plan, run_id))
        if columns:
            assignments = ", ".join(f"{name} = ?" for name in columns)
            cursor = connection.execute(
                f"UPDATE runs SET {assignments} WHERE id = ?",
                [*(column_value(name, value) for name, value in columns.items()), run_id],
            )
            if not cursor.rowcount:
                raise NotFound(f"no run with the id {run_id!r}")
        write_nodes(connection, run_id, nodes)
        append_events(connection, run_id, entries, now)

    db.write(step, durable=outcome)


def end_corrupt(db: Database, run_id: str, why: str) -> None:
    """End a run that cannot be driven because its record is corrupt. Nothing if it has ended."""
    now = time.time()

    def step(connection: sqlite3.Connection) -> None:
        requested = f"SELECT cancel_requested_at FROM runs WHERE id = ? AND {LIVE}"
        for (canceled,) in connection.execute(requested, (run_id,)).fetchall():
            state = RunState.FAILED if canceled is None else RunState.CANCELED
            connection.execute(
                "UPDATE runs SET state = ?, details = ?, finished_at = ? WHERE id = ?",
                (state, why, now, run_id),
            )
            append_events(connection, run_id, [("run", {"state": state, "details": why})], now)

    db.write(step, durable=True)


def check_deletable(db: Database, run_id: str) -> None:
    """Raise StoreError if the run's record cannot be written, before its files are deleted."""
    with db.transaction() as connection:
        # an empty transaction succeeds on some read-only disks
        connection.execute("UPDATE runs SET id = id WHERE id = ?", (run_id,))


def delete(db: Database, run_id: str) -> None:
    """Delete a run, its nodes and its events."""

    def step(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))

    db.write(step, durable=True)


# --- requests


def request(db: Database, run_id: str, kind: Literal["cancel", "suspend"], why: str) -> bool:
    """Record a request to cancel or to suspend a run. False if the run has ended, or the request
    is pending already."""
    now = time.time()

    def step(connection: sqlite3.Connection) -> bool:
        cursor = connection.execute(
            f"UPDATE runs SET {kind}_requested_at = ?, {kind}_reason = ? WHERE id = ? "
            f"AND {kind}_requested_at IS NULL AND {LIVE}",
            (now, why, run_id),
        )
        if cursor.rowcount:
            append_events(connection, run_id, [(f"{kind}_requested", {"why": why})], now)
        return cursor.rowcount > 0

    return db.write(step, durable=True)


def request_scale(db: Database, run_id: str, group: str, replicas: int, why: str) -> bool:
    """Record a request to scale a group. It replaces an earlier one for that group. False if the
    run has ended, or the last request was for the same number."""
    now = time.time()
    with db.transaction(durable=True) as connection:
        sql = f"SELECT scale_requested FROM runs WHERE id = ? AND {LIVE}"
        row = connection.execute(sql, (run_id,)).fetchone()
        if row is None:
            return False
        requested = _parse_scale_requests(db, run_id, row[0])
        if requested.get(group, {}).get("replicas") == replicas:
            return False
        requested[group] = {"replicas": replicas, "why": why}
        connection.execute(
            "UPDATE runs SET scale_requested = ? WHERE id = ?", (json.dumps(requested), run_id)
        )
        data = {"group": group, "replicas": replicas, "why": why}
        append_events(connection, run_id, [("scale_requested", data)], now)
        return True


def pending_requests(db: Database, run_id: str) -> PendingRequests:
    """The pending requests of a run. Raises CorruptRecord."""
    sql = "SELECT cancel_reason, suspend_reason, scale_requested FROM runs WHERE id = ?"
    rows = db.read(sql, (run_id,))
    if not rows:
        return PendingRequests()
    cancel, suspend, scale = rows[0]
    return PendingRequests(cancel or "", suspend or "", _parse_scale_requests(db, run_id, scale))


def _parse_scale_requests(db: Database, run_id: str, text: Any) -> Any:
    try:
        return decoded(text)
    except ValueError as error:
        raise corrupt(db, run_id, run_id, f"scale_requested: {error}") from None


# --- finding runs


def find(db: Database, text: str) -> RunRecord:
    """A run by name, id, display name, id prefix, OCID that ends in the id, or `last` for
    the newest.

    Raises NotFound, InvalidInput if several runs match, CorruptRecord.
    """
    return get(db, find_id(db, text))


def find_id(db: Database, text: str) -> str:
    """The id of the run that `find` finds; its record may be corrupt."""
    if text == "last":
        newest = db.read("SELECT id FROM runs ORDER BY rowid DESC LIMIT 1")
        if not newest:
            raise NotFound("no runs yet (`muster run` starts one)")
        return str(newest[0]["id"])
    rows: list[Row] = []
    if lookup.is_valid_unicode(text):
        rows = db.read("SELECT id, name FROM runs WHERE name = ? OR id = ?", (text, text))
        rows = (
            rows
            or _by_display_name(db, text)
            or lookup.by_prefix(db, "runs", lookup.id_from_ocid(text))
        )
    if not rows:
        recent = "SELECT name, display_name FROM runs ORDER BY rowid DESC LIMIT 200"
        names = [name for row in db.read(recent) for name in row if name]
        raise lookup.not_found_error("run", text, names, "muster ps")
    if len(rows) > 1:
        raise lookup.ambiguous_id_error("runs", text, rows)
    return str(rows[0]["id"])


def _by_display_name(db: Database, text: str) -> list[Row]:
    """Raises InvalidInput if several runs have this display name."""
    sql = "SELECT id, name FROM runs WHERE display_name = ? ORDER BY rowid DESC"
    rows = db.read(sql, (text,))
    if len(rows) > 1:
        raise lookup.ambiguous_name_error("runs", text, [row["name"] for row in rows])
    return rows


def listing(db: Database, **filters: Any) -> list[RunSummary]:
    """Summaries of runs, newest first, in one query. filters: see `_filter_clauses`."""
    clauses, values = _filter_clauses(**filters)
    sql = f"SELECT {SUMMARY_COLUMNS} FROM runs{clauses}"
    return [run_summary(row) for row in db.read(sql, values)]


def records(db: Database, **filters: Any) -> list[RunRecord]:
    """Records of runs, newest first, in one query. filters: see `_filter_clauses`. Raises
    CorruptRecord."""
    clauses, values = _filter_clauses(**filters)
    return [run_record(db, row) for row in db.read(f"{_WITH_PLAN}{clauses}", values)]


def _filter_clauses(
    *,
    states: Collection[RunState] | None = None,
    job: str | None = None,
    since: float | None = None,
    tags: Mapping[str, str | None] | None = None,
    limit: int | None = None,
) -> tuple[str, list[Any]]:
    """The end of a query for runs, newest first, and its values.

    job: a name (all versions) or an id. since: epoch seconds. tags: required tags; None matches any
    value.
    """
    where, values = lookup.tag_conditions(tags or {})
    if states is not None:
        where.append(f"state IN ({', '.join('?' * len(states))})")
        values += [str(state) for state in states]
    if job is not None:
        where.append("(job_name = ? OR job_id = ?)")
        values += [job, job]
    if since is not None:
        where.append("created_at >= ?")
        values.append(since)
    clauses = f" WHERE {' AND '.join(where)}" if where else ""
    # not by time, since the clock may have been set back; with `+`, SQLite uses the index on time
    order = "runs.rowid" if since is None else "+runs.rowid"
    clauses += f" ORDER BY {order} DESC"
    if limit is not None:
        clauses += " LIMIT ?"
        values.append(limit)
    return clauses, values


def live(db: Database) -> list[RunSummary]:
    """Runs that have not ended, in no order."""
    sql = f"SELECT {SUMMARY_COLUMNS} FROM runs WHERE {LIVE}"
    return [run_summary(row) for row in db.read(sql)]


def needing_supervisor(db: Database) -> list[str]:
    """Ids of the runs that a supervisor should be driving, in no order: all that have not ended,
    except those that are suspended and not requested to be canceled."""
    canceled = "coalesce(cancel_reason, '') != ''"
    rows = db.read(f"SELECT id FROM runs WHERE {LIVE} AND (state != 'SUSPENDED' OR {canceled})")
    return [row["id"] for row in rows]


def expired(db: Database, now: float) -> list[str]:
    """Ids of the runs whose `ttl_after_finished` is over."""
    rows = db.read("SELECT id FROM runs WHERE expires_at IS NOT NULL AND expires_at <= ?", (now,))
    return [row["id"] for row in rows]
