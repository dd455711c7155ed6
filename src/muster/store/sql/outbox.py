"""Events for listeners, recorded with what they report.

An entry is written only if somebody listens to its type in its project, with a row in `deliveries`
for each listener. A row is there as soon as its transaction is committed: readers need no cursor,
which would pass over entries of transactions that began earlier and ended later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from muster.identity import new_id
from muster.store.outbox_records import ListenerKind, NewEvent, OutboxEntry, Pending
from muster.store.records import LIFECYCLE_KEYS, JobRecord, decoded, read_entry
from muster.store.sql.database import Connection, Database, Row
from muster.store.times import micros, seconds

_ENTRY = OutboxEntry.__struct_fields__
_PENDING = (
    f"SELECT listener, {', '.join(f'outbox.{name} AS {name}' for name in _ENTRY)} "
    "FROM deliveries JOIN outbox ON outbox.seq = deliveries.seq "
    "WHERE kind = ? AND state = 'pending' ORDER BY deliveries.seq, listener"
)
#: What an event tells of a run: columns of `runs`.
_RUN = (
    *("id", "name", "display_name", "job_id", "job_name", "state", "details", "engine", "attempt"),
    *("node_count", "exit_code", "created_by", "created_at", "started_at", "finished_at"),
)
_TIMES = ("created_at", "started_at", "finished_at")
#: What it tells of the first failure: fields of `lifecycle.status.Failure`.
_CAUSE = ("rank", "group", "reason", "exit_code", "signal", "message")
_JOB = ("id", "name", "version", "display_name", "description", "created_by", "state", "tags")


class SqlOutbox:
    """See `store.base.Outbox`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def pending(self, kind: ListenerKind, *, limit: int) -> list[Pending]:
        """See `Outbox.pending`."""
        return [
            Pending(row["listener"], read_outbox_entry(row))
            for row in self._db.read(f"{_PENDING} LIMIT ?", (str(kind), limit))
        ]

    def forget(self) -> None:
        """See `Outbox.forget`."""
        unheard = (
            "DELETE FROM deliveries WHERE "
            "NOT EXISTS (SELECT 1 FROM listeners WHERE listeners.id = deliveries.listener)"
        )
        handled = (
            "DELETE FROM outbox WHERE "
            "NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.seq = outbox.seq)"
        )

        def step(connection: Connection) -> None:
            connection.execute(unheard)
            connection.execute(handled)

        self._db.write(step)


def set_listener(
    connection: Connection, listener: str, kind: ListenerKind, project: str, types: Iterable[str]
) -> None:
    """Within a transaction: a listener hears of these types of a project from now on, and of no
    others. What it has not handled yet stays."""
    connection.execute("DELETE FROM listeners WHERE id = ?", (listener,))
    connection.executemany(
        "INSERT INTO listeners (project, type, id, kind) VALUES (?, ?, ?, ?)",
        [(project, one, listener, str(kind)) for one in sorted(types)],
    )


def remove_listener(connection: Connection, listener: str) -> None:
    """Within a transaction: a listener hears of nothing more, and what it has not handled is
    forgotten."""
    connection.execute("DELETE FROM listeners WHERE id = ?", (listener,))
    connection.execute("DELETE FROM deliveries WHERE listener = ?", (listener,))


def consume(connection: Connection, listener: str, seq: int) -> bool:
    """Within a transaction: a listener has handled an entry. False if it had already; of several
    servers that try, one succeeds."""
    sql = "DELETE FROM deliveries WHERE listener = ? AND seq = ? RETURNING 1"
    if connection.execute(sql, (listener, seq)).fetchone() is None:
        return False
    unused = "NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.seq = outbox.seq)"
    connection.execute(f"DELETE FROM outbox WHERE seq = ? AND {unused}", (seq,))
    return True


def report(connection: Connection, event: NewEvent) -> None:
    """Within the transaction of what it reports: record an event, if somebody listens to it."""
    listening = connection.execute(
        "SELECT id, kind FROM listeners WHERE project = ? AND type = ?", (event.project, event.type)
    ).fetchall()
    if not listening:
        return
    (seq,) = connection.execute(
        "INSERT INTO outbox (id, time, project, type, subject, data) VALUES (?, ?, ?, ?, ?, ?) "
        "RETURNING seq",
        (
            new_id() + new_id(),
            micros(event.time),
            event.project,
            event.type,
            event.subject,
            json.dumps(event.data),
        ),
    ).fetchone()
    connection.executemany(
        "INSERT INTO deliveries (listener, seq, kind, subject, due_at) VALUES (?, ?, ?, ?, ?)",
        [(listener, seq, kind, event.subject, micros(event.time)) for listener, kind in listening],
    )


def heard_state(connection: Connection, run_id: str) -> str | None:
    """Within a transaction: the state of a run; None if nobody listens to events of its project, or
    it does not exist."""
    row = connection.execute(
        "SELECT state FROM runs WHERE id = ? AND EXISTS "
        "(SELECT 1 FROM listeners WHERE listeners.project = runs.project)",
        (run_id,),
    ).fetchone()
    return None if row is None else str(row[0])


def report_run(connection: Connection, run_id: str, time: float, state: str | None = None) -> None:
    """Within a transaction that has changed the run: record its state as an event. state: another
    one than that of its row."""
    row = connection.execute(
        f"SELECT {', '.join(_RUN)}, project, tags, lifecycle FROM runs WHERE id = ?", (run_id,)
    ).fetchone()
    facts = {name: row[name] for name in _RUN}
    facts |= {name: seconds(row[name]) for name in _TIMES}
    facts |= {"state": state or row["state"], "tags": _json(row["tags"])}
    if isinstance(cause := _json(row["lifecycle"]).get(LIFECYCLE_KEYS["cause"]), Mapping):
        facts["first_cause"] = {name: cause.get(name) for name in _CAUSE}
    kind = f"run.{facts['state'].lower()}"
    report(connection, NewEvent(row["project"], kind, f"runs/{run_id}", time, facts))


def report_job(
    connection: Connection,
    job: JobRecord,
    kind: str,
    time: float,
    *,
    by: str,
    changes: Iterable[str] = (),
) -> None:
    """Within the transaction that has changed a Job: record that as an event. kind: created,
    updated or deleted. changes: the names of the settings that were changed."""
    data = {name: getattr(job, name) for name in _JOB}
    data |= {"created_at": job.created_at, "by": by, "changes": sorted(changes)}
    report(connection, NewEvent(job.project, f"job.{kind}", f"jobs/{job.id}", time, data))


def read_outbox_entry(row: Row) -> OutboxEntry:
    """The columns of an entry, as a record. Raises CorruptRecord."""
    values = {name: row[name] for name in _ENTRY}
    what, hint = f"event {values['id']}", "delete its row in the table outbox"
    return read_entry(OutboxEntry, {**values, "time": seconds(values["time"])}, what, hint)


def _json(text: Any) -> Mapping[str, Any]:
    """The value of a column; empty if it is damaged, which the run's own reader reports."""
    try:
        value = decoded(text)
    except ValueError:
        return {}
    return value if isinstance(value, Mapping) else {}
