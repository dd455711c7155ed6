"""Rows of runs, nodes and events as records, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from msgspec import ValidationError, convert
from msgspec.structs import astuple

from muster.lifecycle.states import NodeState, RunState, stored_node_state
from muster.store.records import (
    SUMMARY_LIFECYCLE,
    CorruptRecord,
    NodeChange,
    NodeRecord,
    RunRecord,
    RunSummary,
    decoded,
    read_record,
    readable_time,
)
from muster.store.sql.database import Connection, Database, Dialect, Row
from muster.store.times import optional_micros, seconds
from muster.type_info import compile_type

#: Columns that hold JSON.
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
#: Columns that hold times. They are floats in the JSON of `lifecycle`.
_TIMES = (
    "created_at",
    "started_at",
    "finished_at",
    "cancel_requested_at",
    "suspend_requested_at",
    "expires_at",
)
#: The fields of `RunRecord` that are large, and that no step of a run in progress changes: a row of
#: `runs` is read and rewritten with each step.
_LARGE = {"run_specs": ("spec", "origins", "overrides"), "plans": ("plan",)}
_SMALL = tuple(
    name for name in RunRecord.__struct_fields__ if not any(name in of for of in _LARGE.values())
)
#: What `run_record` reads, of all runs. The tables share no other name of a column.
RUN_QUERY = "SELECT {} FROM runs {}".format(
    ", ".join(f"{t}.{name}" for t, of in {"runs": _SMALL, **_LARGE}.items() for name in of),
    " ".join(f"LEFT JOIN {table} ON {table}.run_id = runs.id" for table in _LARGE),
)
#: Columns of `nodes` that are not called like the field of `NodeRecord`, by field.
_RENAMED = {"group": "grp", "index": "idx"}
_NODE_COLUMNS = tuple(_RENAMED.get(name, name) for name in NodeRecord.__struct_fields__)

#: Columns of `nodes` that hold times. They are converted in SQL: an array may have a hundred
#: thousand nodes.
_NODE_TIMES = ("started_at", "finished_at")
#: The value that replaces the one in a row, if that is not the new value.
_KEPT = {
    "metrics": "CASE WHEN excluded.metrics = '' AND excluded.incarnation = nodes.incarnation "
    "THEN nodes.metrics ELSE excluded.metrics END"
}
_CHANGED_COLUMNS = NodeChange.__struct_fields__[1:-1]
_CHANGE_NODES = (
    f"UPDATE nodes SET {', '.join(f'{name} = ?' for name in _CHANGED_COLUMNS)}, "
    "metrics = CASE WHEN ? = '' AND incarnation = ? THEN metrics ELSE ? END "
    "WHERE run_id = ? AND rank BETWEEN ? AND ?"
)
_STATES = frozenset(map(str, RunState))
_NODE_STATES = frozenset(map(str, NodeState))
compile_type(NodeRecord)  # here, as there may be a hundred thousand of them


@cache
def summary_columns(dialect: Dialect) -> str:
    """What `run_summary` reads."""
    return ", ".join(
        f"{dialect.json_number.format('lifecycle', key=SUMMARY_LIFECYCLE[name])} AS {name}"
        if name in SUMMARY_LIFECYCLE
        else name
        for name in RunSummary.__struct_fields__
    )


@cache
def node_query(dialect: Dialect) -> str:
    """What `node_record` reads, of one run."""
    columns = ", ".join(
        f"{dialect.seconds.format(name)} AS {name}"
        if name in _NODE_TIMES
        else f'{_RENAMED.get(name, name)} AS "{name}"'
        for name in NodeRecord.__struct_fields__
    )
    return f"SELECT {columns} FROM nodes WHERE run_id = ?"


@cache
def _write_node(dialect: Dialect) -> str:
    values = dict.fromkeys(_NODE_TIMES, dialect.micros.format("?"))
    changes = (f"{name} = {_KEPT.get(name, f'excluded.{name}')}" for name in _NODE_COLUMNS[1:])
    return (
        f"INSERT INTO nodes (run_id, {', '.join(_NODE_COLUMNS)}) "
        f"VALUES (?, {', '.join(values.get(name, '?') for name in _NODE_COLUMNS)}) "
        f"ON CONFLICT (run_id, rank) DO UPDATE SET {', '.join(changes)}"
    )


def insert_run(connection: Connection, run: RunRecord) -> None:
    """Within a transaction: insert the rows of a run, but those of its nodes."""
    _insert(connection, "runs", {name: getattr(run, name) for name in _SMALL})
    for table, of in _LARGE.items():
        _insert(connection, table, {"run_id": run.id, **{name: getattr(run, name) for name in of}})


def _insert(connection: Connection, table: str, values: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(values))
    connection.execute(
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})",
        [_column_value(name, value) for name, value in values.items()],
    )


def change_run(connection: Connection, run_id: str, changes: Mapping[str, Any]) -> None:
    """Within a transaction: change fields of `RunRecord`, by name."""
    small = dict(changes)
    for table, of in _LARGE.items():
        large = {name: small.pop(name) for name in of if name in small}
        _update(connection, table, large, "run_id", run_id)
    _update(connection, "runs", small, "id", run_id)


def _update(
    connection: Connection, table: str, values: Mapping[str, Any], key: str, run_id: str
) -> None:
    if not values:
        return
    connection.execute(
        f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in values)} WHERE {key} = ?",
        [*(_column_value(name, value) for name, value in values.items()), run_id],
    )


def _column_value(name: str, value: Any) -> Any:
    """Encode a field for its column."""
    if name in _TIMES:
        return optional_micros(value)
    return json.dumps(value) if name in _JSON else value


def write_nodes(connection: Connection, run_id: str, records: Iterable[NodeRecord]) -> None:
    """Within a transaction: insert or replace rows of nodes."""
    sql = _write_node(connection.dialect)
    connection.executemany(sql, [(run_id, *astuple(node)) for node in records])


def change_nodes(connection: Connection, run_id: str, changes: Iterable[NodeChange]) -> None:
    """Within a transaction: change rows of nodes."""
    for change in changes:
        values = (
            change.state,
            change.exit_code,
            optional_micros(change.started_at),
            optional_micros(change.finished_at),
            change.signal,
            change.incarnation,
            change.intent,
            change.metrics,
            change.incarnation,
            change.metrics,
            run_id,
        )
        connection.executemany(
            _CHANGE_NODES, [(*values, ranks.start, ranks.stop - 1) for ranks in change.ranks]
        )


def corrupt(db: Database, run_id: str, name: str, why: str) -> CorruptRecord:
    """The error for a run whose record cannot be read."""
    what, hint = _what_and_hint(db, run_id, name)
    return CorruptRecord(f"{what} is corrupt: {why}; {hint}")


def _what_and_hint(db: Database, run_id: str, name: str | None = None) -> tuple[str, str]:
    run = run_id if name is None else f"{name} (id {run_id})"
    what = f"the record of run {run} in {db.place}"
    return what, f"`muster rm {run_id}` removes it, the other runs are not affected"


def run_record(db: Database, row: Row) -> RunRecord:
    """A row of `RUN_QUERY`. Raises CorruptRecord."""
    values = dict(row)
    state = values["state"]
    if state not in _STATES:
        raise corrupt(db, values["id"], values["name"], f"unknown state {state!r}")
    for column in _JSON:
        try:
            values[column] = decoded(values[column])
        except ValueError as error:
            raise corrupt(db, values["id"], values["name"], f"{column}: {error}") from None
    for column in _TIMES:
        values[column] = seconds(values[column])
    return read_record(RunRecord, values, *_what_and_hint(db, values["id"], values["name"]))


def run_summary(row: Row) -> RunSummary:
    """The columns `summary_columns` of a row. A corrupt row gives a placeholder summary, since it
    must not hide the other runs of a list."""
    # by position, since a list may have thousands
    values = dict(zip(RunSummary.__struct_fields__, row, strict=True))
    hint = f"`muster rm {values['id']}` removes it"
    try:
        values["tags"] = _tags(values["tags"], hint)
        for name in ("created_at", "started_at", "finished_at"):
            values[name] = seconds(values[name])
        return read_record(RunSummary, values, "its record", hint)
    except CorruptRecord as error:
        return RunSummary(
            id=str(row["id"]),
            name=str(row["name"]),
            job_id=str(row["job_id"]),
            job_name=str(row["job_name"]),
            state=str(row["state"]),
            details=str(error),
            engine=str(row["engine"]),
            created_at=readable_time(seconds(row["created_at"])) or 0.0,
            started_at=readable_time(seconds(row["started_at"])),
            finished_at=readable_time(seconds(row["finished_at"])),
            exit_code=None,
            node_count=row["node_count"] if isinstance(row["node_count"], int) else 0,
            position=row["position"],
        )


def _tags(text: Any, hint: str) -> Any:
    if text == "{}":  # the usual case
        return {}
    try:
        return decoded(text)
    except ValueError as error:
        raise CorruptRecord(f"its record is corrupt: tags: {error}; {hint}") from None


def node_record(db: Database, run_id: str, row: Row) -> NodeRecord:
    """A row of `node_query`. Raises CorruptRecord."""
    # by position, since there may be a hundred thousand
    values = dict(zip(NodeRecord.__struct_fields__, row, strict=True))
    state = values["state"]
    if state not in _NODE_STATES:
        values["state"] = stored_node_state(state)
        if values["state"] not in _NODE_STATES:
            what, hint = _what_and_hint(db, run_id)
            why = f"node {values['rank']} has no state {state!r}"
            raise CorruptRecord(f"{what} is corrupt: {why}; {hint}")
    try:
        return convert(values, NodeRecord)
    except ValidationError as error:
        what, hint = _what_and_hint(db, run_id)
        raise CorruptRecord(f"{what} is corrupt: {error}; {hint}") from None
