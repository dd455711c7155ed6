"""A Job's event log: when it was created, edited and deleted, and by whom (OCI: each stage of
a Job's lifecycle triggers events)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any, Literal

from muster.store.database import Database, Row
from muster.store.records import JobEventRecord, read_entry, readable_time

Kind = Literal["created", "edited", "deleted"]


def append(
    connection: sqlite3.Connection,
    job_id: str,
    kind: Kind,
    *,
    by: str,
    data: Mapping[str, Any],
    now: float,
) -> None:
    """Add an entry, within a transaction. by: the user who changed the Job."""
    newest = "SELECT seq, time FROM job_events WHERE job_id = ? ORDER BY seq DESC LIMIT 1"
    last, latest = connection.execute(newest, (job_id,)).fetchone() or (0, 0.0)
    # times never decrease, even if the clock was set back
    now = max(now, readable_time(latest) or 0.0)
    connection.execute(
        "INSERT INTO job_events VALUES (?, ?, ?, ?, ?, ?)",
        (job_id, last + 1, now, kind, by, json.dumps(data)),
    )


def since(db: Database, job_id: str, seq: int = 0) -> list[JobEventRecord]:
    """Entries after number `seq`, in order."""
    sql = "SELECT * FROM job_events WHERE job_id = ? AND seq > ? ORDER BY seq"
    return [_event(db, row) for row in db.read(sql, (job_id, seq))]


def _event(db: Database, row: Row) -> JobEventRecord:
    what = f"event {row['seq']} of the job {row['job_id']} in {db.path}"
    hint = f"`muster jobs events {row['job_id']} --after {row['seq']}` shows those after it"
    return read_entry(JobEventRecord, row, what, hint)
