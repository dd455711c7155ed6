"""A run's event log."""

from __future__ import annotations

import json

from muster.store.database import Database
from muster.store.records import EventRecord


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
