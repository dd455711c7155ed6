"""Queries of a run's event log."""

from __future__ import annotations

from msgspec.structs import replace

from muster.lifecycle.states import stored_node_state
from muster.store.database import Database, Row
from muster.store.records import CorruptRecord, EventRecord, read_entry


def count_since_last_node_entry(db: Database, run_id: str, kind: str) -> int:
    """The number of entries of a kind after the last entry about nodes."""
    rows = db.read(
        "SELECT count(*) FROM events WHERE run_id = ? AND kind = ? AND seq > "
        "(SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ? AND kind = 'nodes')",
        (run_id, kind, run_id),
    )
    return int(rows[0][0])


def count(db: Database, run_id: str, kind: str) -> int:
    """The number of entries of a kind."""
    sql = "SELECT count(*) FROM events WHERE run_id = ? AND kind = ?"
    return int(db.read(sql, (run_id, kind))[0][0])


def last_time(db: Database, run_id: str) -> float:
    """When the newest entry was recorded (epoch seconds); 0 if there is none."""
    # in SQLite, any text is greater than any number
    sql = "SELECT max(time) FROM events WHERE run_id = ? AND typeof(time) IN ('real', 'integer')"
    return float(db.read(sql, (run_id,))[0][0] or 0.0)


def last_time_of(db: Database, run_id: str, kind: str) -> float:
    """When the newest entry of a kind was recorded (epoch seconds); 0 if there is none."""
    sql = (
        "SELECT max(time) FROM events WHERE run_id = ? AND kind = ? "
        "AND typeof(time) IN ('real', 'integer')"
    )
    return float(db.read(sql, (run_id, kind))[0][0] or 0.0)


def since(db: Database, run_id: str, seq: int = 0) -> list[EventRecord]:
    """Entries after number `seq`, in order. Raises CorruptRecord."""
    rows = db.read(
        "SELECT run_id, seq, time, kind, data FROM events WHERE run_id = ? AND seq > ? "
        "ORDER BY seq",
        (run_id, seq),
    )
    return [_event(db, row) for row in rows]


def attempt_started(entry: EventRecord) -> int | None:
    """The number of the attempt that starts with an entry; None if none does. Raises
    CorruptRecord."""
    if entry.kind not in ("attempt", "resumed"):
        return None
    number = entry.data.get("attempt")
    if not isinstance(number, int):
        what, hint = _what_and_hint(entry.run_id, entry.seq)
        raise CorruptRecord(f"{what} is corrupt: its attempt is {number!r}; {hint}")
    return number


def _what_and_hint(run_id: str, seq: int) -> tuple[str, str]:
    hint = f"`muster events {run_id} --after {seq}` shows those after it"
    return f"event {seq} of the run {run_id}", hint


def _event(db: Database, row: Row) -> EventRecord:
    what, hint = _what_and_hint(row["run_id"], row["seq"])
    entry = read_entry(EventRecord, row, f"{what} in {db.path}", hint)
    state = entry.data.get("state")
    if entry.kind == "nodes" and state != (present := stored_node_state(state)):
        return replace(entry, data={**entry.data, "state": present})
    return entry
