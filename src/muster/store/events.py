"""A run's event log."""

from __future__ import annotations

from muster.store.database import Database, Row
from muster.store.records import EventRecord, read_entry


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
    # to SQLite, any text is more than any number
    sql = "SELECT max(time) FROM events WHERE run_id = ? AND typeof(time) IN ('real', 'integer')"
    return float(db.read(sql, (run_id,))[0][0] or 0.0)


def since(db: Database, run_id: str, seq: int = 0) -> list[EventRecord]:
    """Entries after number `seq`, in order."""
    rows = db.read(
        "SELECT run_id, seq, time, kind, data FROM events WHERE run_id = ? AND seq > ? "
        "ORDER BY seq",
        (run_id, seq),
    )
    return [_event(db, row) for row in rows]


def _event(db: Database, row: Row) -> EventRecord:
    what = f"event {row['seq']} of the run {row['run_id']} in {db.path}"
    way_out = f"`muster events {row['run_id']} --after {row['seq']}` shows those after it"
    return read_entry(EventRecord, row, what, way_out)
