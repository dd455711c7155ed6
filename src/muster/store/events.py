"""A run's event log."""

from __future__ import annotations

import json

from muster.store.database import Database
from muster.store.records import EventRecord


def count(db: Database, run_id: str, kind: str) -> int:
    """How many entries of a kind come after the last that tells of a node."""
    rows = db.read(
        "SELECT count(*) FROM events WHERE run_id = ? AND kind = ? AND seq > "
        "(SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ? AND kind = 'nodes')",
        (run_id, kind, run_id),
    )
    return int(rows[0][0])


def total(db: Database, run_id: str, kind: str) -> int:
    """How many entries of a kind there are."""
    sql = "SELECT count(*) FROM events WHERE run_id = ? AND kind = ?"
    return int(db.read(sql, (run_id, kind))[0][0])


def last_time(db: Database, run_id: str) -> float:
    """When the newest entry was made (epoch seconds); 0 where there is none."""
    rows = db.read("SELECT max(time) FROM events WHERE run_id = ?", (run_id,))
    return float(rows[0][0] or 0.0)


def since(db: Database, run_id: str, seq: int = 0) -> list[EventRecord]:
    """Entries after number `seq`, in order."""
    rows = db.read(
        "SELECT run_id, seq, time, kind, data FROM events WHERE run_id = ? AND seq > ? "
        "ORDER BY seq",
        (run_id, seq),
    )
    return [
        EventRecord(row["run_id"], row["seq"], row["time"], row["kind"], json.loads(row["data"]))
        for row in rows
    ]
