"""The event logs of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec.structs import replace

from muster.lifecycle.states import stored_node_state
from muster.store.records import EventRecord, NewEntry, event_and_hint, read_entry
from muster.store.sql.database import Connection, Database, Row
from muster.store.times import micros, seconds


class SqlEvents:
    """See `store.protocols.events.Events`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def since(self, run_id: str, seq: int = 0, limit: int | None = None) -> list[EventRecord]:
        """See `Events.since`."""
        sql = (
            "SELECT run_id, seq, time, kind, data FROM events WHERE run_id = ? AND seq > ? "
            "ORDER BY seq"
        )
        given = (run_id, seq) if limit is None else (run_id, seq, limit)
        rows = self._db.read(sql if limit is None else f"{sql} LIMIT ?", given)
        return [self._event(row) for row in rows]

    def count(self, run_id: str, kind: str) -> int:
        """See `Events.count`."""
        sql = "SELECT count(*) FROM events WHERE run_id = ? AND kind = ?"
        return int(self._db.read(sql, (run_id, kind))[0][0])

    def count_since_last_node_entry(self, run_id: str, kind: str, after: float = 0.0) -> int:
        """See `Events.count_since_last_node_entry`."""
        rows = self._db.read(
            "SELECT count(*) FROM events WHERE run_id = ? AND kind = ? AND time > ? AND seq > "
            "(SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ? AND kind = 'nodes')",
            (run_id, kind, micros(after), run_id),
        )
        return int(rows[0][0])

    def last(self, run_id: str) -> int:
        """See `Events.last`."""
        sql = "SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ?"
        return int(self._db.read(sql, (run_id,))[0][0])

    def last_time(self, run_id: str, kind: str | None = None) -> float:
        """See `Events.last_time`."""
        # in SQLite, any text is greater than any number
        valid = self._db.dialect.is_micros.format("time")
        sql = f"SELECT max(time) FROM events WHERE run_id = ? AND {valid}"
        values = [run_id]
        if kind is not None:
            sql += " AND kind = ?"
            values.append(kind)
        return float(seconds(self._db.read(sql, values)[0][0] or 0))

    def _event(self, row: Row) -> EventRecord:
        what, hint = event_and_hint(row["run_id"], row["seq"])
        values = {**dict(row), "time": seconds(row["time"])}
        entry = read_entry(EventRecord, values, f"{what} in {self._db.place}", hint)
        state = entry.data.get("state")
        if entry.kind == "nodes" and state != (present := stored_node_state(state)):
            return replace(entry, data={**entry.data, "state": present})
        return entry


def append_events(
    connection: Connection, run_id: str, entries: Sequence[NewEntry], now: float
) -> int:
    """Within a transaction that has locked the run: add entries to its event log. Returns the
    number of the first."""
    newest = "SELECT seq, time FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
    last, latest = connection.execute(newest, (run_id,)).fetchone() or (0, 0)
    time = micros(now)
    if type(latest) is int:  # a corrupt one must not keep the run from being recorded
        time = max(time, latest)  # the clock of the previous writer may have been ahead
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
        [
            (run_id, seq, time, kind, json.dumps(data))
            for seq, (kind, data) in enumerate(entries, last + 1)
        ],
    )
    return int(last) + 1


def has_events(
    connection: Connection, run_id: str, entries: Sequence[NewEntry], first: int
) -> bool:
    """Within a transaction: whether a run's event log has these entries from a number on."""
    sql = "SELECT kind, data FROM events WHERE run_id = ? AND seq >= ? ORDER BY seq LIMIT ?"
    rows = connection.execute(sql, (run_id, first, len(entries))).fetchall()
    return [tuple(row) for row in rows] == [(kind, json.dumps(data)) for kind, data in entries]
