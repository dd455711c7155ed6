"""Runs and their nodes in the store."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import astuple

from muster.errors import NotFound
from muster.lifecycle.states import NodeState, RunState
from muster.store import jobs, lookup
from muster.store.database import Database, Row
from muster.store.records import (
    Asked,
    CorruptRecord,
    JobRecord,
    NodeRecord,
    RunRecord,
    RunSummary,
    decoded,
    read_record,
    readable_time,
)
from muster.store.schema import LIVE

_JSON = (
    "spec",
    "origins",
    "overrides",
    "plan",
    "lifecycle",
    "notes",
    "scale_requested",
    "tags",
)
_SUMMARY = ", ".join(RunSummary.__struct_fields__)
_COLUMNS = tuple(name for name in RunRecord.__struct_fields__ if name != "plan")
_WHOLE = "SELECT runs.*, plans.plan FROM runs LEFT JOIN plans ON plans.run_id = runs.id"
_NODE_COLUMNS = ("rank", "grp", "replica", "idx", *NodeRecord.__struct_fields__[4:])
_WRITE_NODE = (
    f"INSERT INTO nodes (run_id, {', '.join(_NODE_COLUMNS)}) "
    f"VALUES (?{', ?' * len(_NODE_COLUMNS)}) ON CONFLICT (run_id, rank) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _NODE_COLUMNS[1:])
)

_STATES = frozenset(map(str, RunState))
_NODE_STATES = frozenset(map(str, NodeState))

#: Makes the records of a run from its Job, its number and its name.
Builder = Callable[[JobRecord, int, str], tuple[RunRecord, Sequence[NodeRecord]]]


def insert(db: Database, job: JobRecord, build: Builder) -> RunRecord:
    """Accept a run: it, its nodes and, if it is not there yet, its Job, in one durable step.

    Runs are numbered within their Job's name; the run's own name is `<job>-<number>`. No two runs
    share one, whatever their Jobs are called: what follows the last dash is the number.
    """
    with db.transaction(durable=True) as connection:
        kept = jobs.insert_into(connection, job)
        (number,) = connection.execute(
            "SELECT coalesce(max(number), 0) + 1 FROM runs WHERE job_name = ?", (kept.name,)
        ).fetchone()
        run, nodes = build(kept, number, f"{kept.name}-{number}")
        marks = ", ".join("?" * len(_COLUMNS))
        connection.execute(
            f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({marks})",
            [_column(name, getattr(run, name)) for name in _COLUMNS],
        )
        connection.execute("INSERT INTO plans VALUES (?, ?)", (run.id, json.dumps(run.plan)))
        _write_nodes(connection, run.id, nodes)
        _append_events(
            connection,
            run.id,
            [("run", {"state": run.state, "details": run.details}), *_parked(nodes)],
            run.created_at,
        )
    return run


def _parked(nodes: Sequence[NodeRecord]) -> list[tuple[str, Mapping[str, Any]]]:
    """Which nodes are not wanted at first: all else that a log does not tell of is PENDING."""
    ranks = [node.rank for node in nodes if node.state == NodeState.PARKED]
    if not ranks:
        return []
    from muster.lifecycle.census import ranges

    return [("nodes", {"ranks": ranges(ranks), "state": NodeState.PARKED})]


def get(db: Database, run_id: str) -> RunRecord:
    """By its whole id. Raises NotFound."""
    rows = db.read(f"{_WHOLE} WHERE id = ?", (run_id,))
    if not rows:
        raise NotFound(f"no run with the id {run_id!r}")
    return _run(db, rows[0])


def nodes(db: Database, run_id: str) -> list[NodeRecord]:
    """In rank order."""
    rows = db.read("SELECT * FROM nodes WHERE run_id = ? ORDER BY rank", (run_id,))
    return [_node(db, row) for row in rows]


def find(db: Database, text: str) -> RunRecord:
    """By name, id, display name, beginning of an id, OCID that ends in the id, or `last`, the
    newest.

    Raises NotFound, InvalidInput if several runs are meant, CorruptRecord.
    """
    return get(db, find_id(db, text))


def find_id(db: Database, text: str) -> str:
    """The same, of a run whose record need not be readable."""
    if text == "last":
        newest = db.read("SELECT id FROM runs ORDER BY rowid DESC LIMIT 1")
        if not newest:
            raise NotFound("there are no runs yet (`muster run` starts one)")
        return str(newest[0]["id"])
    rows: list[Row] = []
    if lookup.typed(text):
        rows = db.read("SELECT id, name FROM runs WHERE name = ? OR id = ?", (text, text))
        rows = (
            rows or _by_display_name(db, text) or lookup.by_prefix(db, "runs", lookup.id_in(text))
        )
    if not rows:
        recent = "SELECT name, display_name FROM runs ORDER BY rowid DESC LIMIT 200"
        names = [name for row in db.read(recent) for name in row if name]
        raise lookup.missing("run", text, names, "muster runs list")
    if len(rows) > 1:
        raise lookup.ambiguous("runs", text, rows)
    return str(rows[0]["id"])


def _by_display_name(db: Database, text: str) -> list[Row]:
    """Raises InvalidInput if several runs are called so."""
    sql = "SELECT id, name FROM runs WHERE display_name = ? ORDER BY rowid DESC"
    rows = db.read(sql, (text,))
    if len(rows) > 1:
        raise lookup.same_name("runs", text, [row["name"] for row in rows])
    return rows


def summary(db: Database, run_id: str) -> RunSummary:
    """What can be read of a run. Raises NotFound."""
    rows = db.read(f"SELECT {_SUMMARY} FROM runs WHERE id = ?", (run_id,))
    if not rows:
        raise NotFound(f"no run with the id {run_id!r}")
    return _summary(rows[0])


def listing(
    db: Database,
    *,
    states: Collection[RunState] | None = None,
    job: str | None = None,
    since: float | None = None,
    tags: Mapping[str, str | None] | None = None,
    limit: int | None = None,
) -> list[RunSummary]:
    """Newest first. job: a name (all its versions) or an id; since: epoch seconds; tags: those that
    it must have, None for any value."""
    where, values = lookup.having_tags(tags or {})
    if states is not None:
        if not states:
            return []
        where.append(f"state IN ({', '.join('?' * len(states))})")
        values += [str(state) for state in states]
    if job is not None:
        where.append("(job_name = ? OR job_id = ?)")
        values += [job, job]
    if since is not None:
        where.append("created_at >= ?")
        values.append(since)
    sql = f"SELECT {_SUMMARY} FROM runs"
    if where:
        sql += f" WHERE {' AND '.join(where)}"
    # not by time, as the clock may have been set back; `+` has SQLite look for the time first
    sql += " ORDER BY rowid DESC" if since is None else " ORDER BY +rowid DESC"
    if limit is not None:
        sql += " LIMIT ?"
        values.append(limit)
    return [_summary(row) for row in db.read(sql, values)]


def live(db: Database) -> list[RunSummary]:
    """Those that have not ended, in no order."""
    sql = f"SELECT {_SUMMARY} FROM runs WHERE {LIVE}"
    return [_summary(row) for row in db.read(sql)]


def save(
    db: Database,
    run_id: str,
    changes: Mapping[str, Any],
    changed: Iterable[NodeRecord],
    entries: Sequence[tuple[str, Mapping[str, Any]]],
    now: float,
) -> None:
    """Record a step of a run: its columns, its nodes, what happened. All or nothing.

    changes: columns of RunRecord by name. changed: nodes, whole. entries: (kind, data) of events,
    which get the next numbers and the time `now`. Raises NotFound.
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
                [*(_column(name, value) for name, value in columns.items()), run_id],
            )
            if not cursor.rowcount:
                raise NotFound(f"no run with the id {run_id!r}")
        _write_nodes(connection, run_id, nodes)
        _append_events(connection, run_id, entries, now)

    db.write(step, durable=outcome)


def request(db: Database, run_id: str, kind: Literal["cancel", "suspend"], why: str) -> bool:
    """Record that somebody wants the run to end, or to pause. False if it has ended, or that was
    asked already."""
    now = time.time()

    def step(connection: sqlite3.Connection) -> bool:
        cursor = connection.execute(
            f"UPDATE runs SET {kind}_requested_at = ?, {kind}_reason = ? WHERE id = ? "
            f"AND {kind}_requested_at IS NULL AND {LIVE}",
            (now, why, run_id),
        )
        if cursor.rowcount:
            _append_events(connection, run_id, [(f"{kind}_requested", {"why": why})], now)
        return cursor.rowcount > 0

    return db.write(step, durable=True)


def request_scale(db: Database, run_id: str, group: str, replicas: int, why: str) -> bool:
    """Record that so many replicas of a group are wanted; what was asked of it before is
    forgotten. False if the run has ended, or that was what was asked last."""
    now = time.time()
    with db.transaction(durable=True) as connection:
        sql = f"SELECT scale_requested FROM runs WHERE id = ? AND {LIVE}"
        row = connection.execute(sql, (run_id,)).fetchone()
        if row is None:
            return False
        asked = _scale_requested(db, run_id, row[0])
        if asked.get(group, {}).get("replicas") == replicas:
            return False
        asked[group] = {"replicas": replicas, "why": why}
        connection.execute(
            "UPDATE runs SET scale_requested = ? WHERE id = ?", (json.dumps(asked), run_id)
        )
        told = {"group": group, "replicas": replicas, "why": why}
        _append_events(connection, run_id, [("scale_requested", told)], now)
        return True


def requests(db: Database, run_id: str) -> Asked:
    """What people want of the run."""
    sql = "SELECT cancel_reason, suspend_reason, scale_requested FROM runs WHERE id = ?"
    rows = db.read(sql, (run_id,))
    if not rows:
        return Asked()
    cancel, suspend, scale = rows[0]
    return Asked(cancel or "", suspend or "", _scale_requested(db, run_id, scale))


def _scale_requested(db: Database, run_id: str, text: Any) -> Any:
    try:
        return decoded(text)
    except ValueError as error:
        raise corrupt(db, run_id, run_id, f"scale_requested: {error}") from None


def end_corrupt(db: Database, run_id: str, why: str) -> None:
    """Record that a run has ended that nobody can drive, as its record cannot be read. Nothing if
    it has ended."""
    now = time.time()

    def step(connection: sqlite3.Connection) -> None:
        asked = f"SELECT cancel_requested_at FROM runs WHERE id = ? AND {LIVE}"
        for (canceled,) in connection.execute(asked, (run_id,)).fetchall():
            state = RunState.FAILED if canceled is None else RunState.CANCELED
            connection.execute(
                "UPDATE runs SET state = ?, details = ?, finished_at = ? WHERE id = ?",
                (state, why, now, run_id),
            )
            _append_events(connection, run_id, [("run", {"state": state, "details": why})], now)

    db.write(step, durable=True)


def delete(db: Database, run_id: str) -> None:
    """Forget a run, its nodes and its events."""

    def step(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))

    db.write(step, durable=True)


def expired(db: Database, now: float) -> list[str]:
    """Ids of the runs whose time after their end is over."""
    rows = db.read("SELECT id FROM runs WHERE expires_at IS NOT NULL AND expires_at <= ?", (now,))
    return [row["id"] for row in rows]


def _write_nodes(
    connection: sqlite3.Connection, run_id: str, records: Iterable[NodeRecord]
) -> None:
    connection.executemany(_WRITE_NODE, [(run_id, *astuple(node)) for node in records])


def _append_events(
    connection: sqlite3.Connection,
    run_id: str,
    entries: Sequence[tuple[str, Mapping[str, Any]]],
    now: float,
) -> None:
    newest = "SELECT seq, time FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
    last, latest = connection.execute(newest, (run_id,)).fetchone() or (0, 0.0)
    # whoever writes here may have another clock than who wrote before
    now = max(now, readable_time(latest) or 0.0)
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
        [
            (run_id, seq, now, kind, json.dumps(data))
            for seq, (kind, data) in enumerate(entries, last + 1)
        ],
    )


def _column(name: str, value: Any) -> Any:
    return json.dumps(value) if name in _JSON else value


def corrupt(db: Database, run_id: str, name: str, why: str) -> CorruptRecord:
    """What to say of a run whose record cannot be read."""
    what, way_out = _place(db, run_id, name)
    return CorruptRecord(f"{what} is corrupt: {why}; {way_out}")


def _place(db: Database, run_id: str, name: str) -> tuple[str, str]:
    what = f"the record of run {name} (id {run_id}) in {db.path}"
    return what, f"`muster runs delete {run_id}` removes it, the other runs are not affected"


def _run(db: Database, row: Row) -> RunRecord:
    values = dict(row)
    state = values["state"]
    if state not in _STATES:
        raise corrupt(db, values["id"], values["name"], f"there is no state {state!r}")
    for column in _JSON:
        try:
            values[column] = decoded(values[column])
        except ValueError as error:
            raise corrupt(db, values["id"], values["name"], f"{column}: {error}") from None
    return read_record(RunRecord, values, *_place(db, values["id"], values["name"]))


def _summary(row: Row) -> RunSummary:
    """Also of a corrupt row: it must not be in the way of the others."""
    try:
        values = {**dict(row), "tags": _decoded_tags(row)}
        return read_record(RunSummary, values, "its record", "")
    except CorruptRecord as error:
        return RunSummary(
            id=str(row["id"]),
            name=str(row["name"]),
            job_id=str(row["job_id"]),
            job_name=str(row["job_name"]),
            state=str(row["state"]),
            details=f"{error}`muster runs delete {row['id']}` removes it",
            engine=str(row["engine"]),
            created_at=readable_time(row["created_at"]) or 0.0,
            started_at=readable_time(row["started_at"]),
            finished_at=readable_time(row["finished_at"]),
            exit_code=None,
            node_count=row["node_count"] if isinstance(row["node_count"], int) else 0,
        )


def _decoded_tags(row: Row) -> Any:
    if row["tags"] == "{}":  # as most runs have it, in lists of thousands
        return {}
    try:
        return decoded(row["tags"])
    except ValueError as error:
        raise CorruptRecord(f"its record is corrupt: tags: {error}; ") from None


def _node(db: Database, row: Row) -> NodeRecord:
    run_id, *fields = row
    what, way_out = _place(db, run_id, run_id)
    if row["state"] not in _NODE_STATES:
        why = f"node {row['rank']} has no state {row['state']!r}"
        raise CorruptRecord(f"{what} is corrupt: {why}; {way_out}")
    values = dict(zip(NodeRecord.__struct_fields__, fields, strict=True))
    return read_record(NodeRecord, values, what, way_out)
