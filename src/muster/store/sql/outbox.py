"""Listeners, and the events that wait for them; `sql.reports` records them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from muster.store.outbox_records import ListenerKind, OutboxEntry, Pending
from muster.store.records import CorruptRecord, read_entry
from muster.store.sql.database import Connection, Database, Row
from muster.store.times import micros, optional_micros, seconds

ENTRY_COLUMNS = OutboxEntry.__struct_fields__
_PENDING = (
    "SELECT listener, attempts, first_at, "
    f"{', '.join(f'outbox.{name} AS {name}' for name in ENTRY_COLUMNS)} "
    "FROM deliveries JOIN outbox ON outbox.seq = deliveries.seq "
    "WHERE kind = ? AND state = 'pending'"
)
#: What fails again and again is behind all that has happened meanwhile.
_IN_ORDER = " ORDER BY attempts, deliveries.seq, listener LIMIT ?"
_POSTPONE = (
    "UPDATE deliveries SET state = ?, attempts = attempts + 1, answer = ?, due_at = ?, "
    "first_at = coalesce(first_at, ?), settled_at = ? "
    "WHERE listener = ? AND seq = ? AND state = 'pending' AND attempts = ? RETURNING 1"
)


class SqlOutbox:
    """See `store.protocols.outbox.Outbox`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def pending(self, kind: ListenerKind, *, limit: int, now: float | None = None) -> list[Pending]:
        """See `Outbox.pending`."""
        values: list[Any]
        sql, values = _PENDING, [str(kind)]
        if now is not None:
            # the clock of who has reported an event may be ahead
            sql, values = f"{sql} AND (attempts = 0 OR due_at <= ?)", [*values, micros(now)]
        found = []
        for row in self._db.read(sql + _IN_ORDER, [*values, limit]):
            try:
                entry = read_outbox_entry(row)
            except CorruptRecord as error:  # it must not hold up the others
                self._postpone(row, str(error), self._db.now(), None)
                continue
            attempts, first_at = row["attempts"], seconds(row["first_at"])
            found.append(Pending(row["listener"], entry, attempts, first_at))
        return found

    def postpone(self, pending: Pending, why: str, now: float, until: float | None) -> bool:
        """See `Outbox.postpone`."""
        place = {"listener": pending.listener, "seq": pending.entry.seq}
        return self._postpone({**place, "attempts": pending.attempts}, why, now, until)

    def _postpone(self, row: Row, why: str, now: float, until: float | None) -> bool:
        state, settled_at = ("failed", now) if until is None else ("pending", None)
        times = (micros(now if until is None else until), micros(now), optional_micros(settled_at))
        values = (state, why, *times, row["listener"], row["seq"], row["attempts"])

        def step(connection: Connection) -> bool:
            return connection.execute(_POSTPONE, values).fetchone() is not None

        return self._db.write(step)

    def forget(self, until: float) -> None:
        """See `Outbox.forget`."""
        given_up = "DELETE FROM deliveries WHERE state = 'failed' AND settled_at <= ?"
        # a paused notification listens to nothing, and keeps what it has
        unheard = (
            "DELETE FROM deliveries WHERE "
            "NOT EXISTS (SELECT 1 FROM listeners WHERE listeners.id = deliveries.listener) "
            "AND NOT EXISTS (SELECT 1 FROM notifications WHERE id = deliveries.listener)"
        )
        handled = (
            "DELETE FROM outbox WHERE "
            "NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.seq = outbox.seq)"
        )

        def step(connection: Connection) -> None:
            connection.execute(given_up, (micros(until),))
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


def read_outbox_entry(row: Row) -> OutboxEntry:
    """The columns of an entry, as a record. Raises CorruptRecord."""
    values = {name: row[name] for name in ENTRY_COLUMNS}
    what, hint = f"event {values['id']}", "delete its row in the table outbox"
    return read_entry(OutboxEntry, {**values, "time": seconds(values["time"])}, what, hint)
