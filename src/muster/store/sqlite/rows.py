"""Rows of runs, nodes and events as records, and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from msgspec.structs import astuple

from muster.lifecycle.states import NodeState, RunState, stored_node_state
from muster.store.records import (
    SUMMARY_LIFECYCLE,
    CorruptRecord,
    NodeRecord,
    RunRecord,
    RunSummary,
    decoded,
    read_record,
    readable_time,
)
from muster.store.sqlite.database import Database, Row
from muster.store.times import optional_micros, seconds

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
SUMMARY_COLUMNS = ", ".join(
    # a corrupt column must not hide the run
    f"CASE WHEN json_valid(lifecycle) THEN json_extract(lifecycle, '$.{SUMMARY_LIFECYCLE[name]}') "
    f"END AS {name}"
    if name in SUMMARY_LIFECYCLE
    else name
    for name in RunSummary.__struct_fields__
)
RUN_COLUMNS = tuple(name for name in RunRecord.__struct_fields__ if name != "plan")
#: Columns of `nodes` that are not called like the field of `NodeRecord`, by field.
_RENAMED = {"group": "grp", "index": "idx"}
_NODE_COLUMNS = tuple(_RENAMED.get(name, name) for name in NodeRecord.__struct_fields__)
#: Its times are converted as by `micros`, in SQL: there may be thousands of nodes.
_NODE_VALUES = dict.fromkeys(("started_at", "finished_at"), "CAST(round(? * 1000000) AS INTEGER)")
_WRITE_NODE = (
    f"INSERT INTO nodes (run_id, {', '.join(_NODE_COLUMNS)}) "
    f"VALUES (?, {', '.join(_NODE_VALUES.get(name, '?') for name in _NODE_COLUMNS)}) "
    "ON CONFLICT (run_id, rank) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _NODE_COLUMNS[1:])
)
_STATES = frozenset(map(str, RunState))
_NODE_STATES = frozenset(map(str, NodeState))


def write_nodes(connection: sqlite3.Connection, run_id: str, records: Iterable[NodeRecord]) -> None:
    """Within a transaction: insert or replace rows of nodes."""
    connection.executemany(_WRITE_NODE, [(run_id, *astuple(node)) for node in records])


def column_value(name: str, value: Any) -> Any:
    """Encode a field for its column."""
    if name in _TIMES:
        return optional_micros(value)
    return json.dumps(value) if name in _JSON else value


def corrupt(db: Database, run_id: str, name: str, why: str) -> CorruptRecord:
    """The error for a run whose record cannot be read."""
    what, hint = _what_and_hint(db, run_id, name)
    return CorruptRecord(f"{what} is corrupt: {why}; {hint}")


def _what_and_hint(db: Database, run_id: str, name: str | None = None) -> tuple[str, str]:
    run = run_id if name is None else f"{name} (id {run_id})"
    what = f"the record of run {run} in {db.path}"
    return what, f"`muster rm {run_id}` removes it, the other runs are not affected"


def run_record(db: Database, row: Row) -> RunRecord:
    """A row of `runs`, joined with its plan. Raises CorruptRecord."""
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
    """The columns `SUMMARY_COLUMNS` of a row. A corrupt row gives a placeholder summary, since it
    must not hide the other runs of a list."""
    hint = f"`muster rm {row['id']}` removes it"
    try:
        values = {**dict(row), "tags": _tags(row, hint)}
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


def _tags(row: Row, hint: str) -> Any:
    if row["tags"] == "{}":  # the usual case, in lists of thousands
        return {}
    try:
        return decoded(row["tags"])
    except ValueError as error:
        raise CorruptRecord(f"its record is corrupt: tags: {error}; {hint}") from None


def node_record(db: Database, row: Row) -> NodeRecord:
    """A row of `nodes`. Raises CorruptRecord."""
    what, hint = _what_and_hint(db, row["run_id"])
    state = stored_node_state(row["state"])
    if state not in _NODE_STATES:
        why = f"node {row['rank']} has no state {row['state']!r}"
        raise CorruptRecord(f"{what} is corrupt: {why}; {hint}")
    values = {**dict(row), "state": state}
    for name, column in _RENAMED.items():
        values[name] = values.pop(column)
    for name in ("started_at", "finished_at"):
        values[name] = seconds(values[name])
    return read_record(NodeRecord, values, what, hint)
