"""Notifications, and the deliveries of events."""

from __future__ import annotations

import json
from typing import Any

from msgspec import to_builtins

from muster.errors import Conflict, InvalidInput, NotFound, Problem
from muster.identity import new_id
from muster.store.notification_records import (
    KEPT_DELIVERIES,
    ClaimedDelivery,
    DeliveryRecord,
    DeliveryState,
    NotificationRecord,
)
from muster.store.outbox_records import ListenerKind, matching_types
from muster.store.records import CorruptRecord, decoded, read_record
from muster.store.sql.database import Connection, Database, Row
from muster.store.sql.outbox import ENTRY_COLUMNS, read_outbox_entry, remove_listener, set_listener
from muster.store.sql.search import named_row
from muster.store.times import micros, optional_micros, seconds

_COLUMNS = NotificationRecord.__struct_fields__
#: Their columns have other names, as these are words of SQL.
_RENAMED = {"on": "types", "condition": "oci_condition"}
_JSON = ("on", "tags", "condition", "sealed")
_TIMES = ("created_at", "updated_at")
_FLAGS = ("local", "paused")
_SELECT = "SELECT {} FROM notifications".format(
    ", ".join(f'{_RENAMED.get(name, name)} AS "{name}"' for name in _COLUMNS)
)
_DELIVERY = (
    "SELECT notifications.name AS notification, outbox.id AS event_id, type, outbox.subject, "
    "time, state, attempts, due_at, answer, settled_at, outbox.seq FROM deliveries "
    "JOIN outbox ON outbox.seq = deliveries.seq "
    "JOIN notifications ON notifications.id = deliveries.listener"
)
#: Those that may be sent now: of one subject, an event waits for those before it.
_DUE = (
    "SELECT listener, seq, attempts, first_at FROM deliveries AS due "
    "WHERE kind = 'notification' AND state = 'pending' AND due_at <= ? AND claimed_until <= ? "
    "AND EXISTS (SELECT 1 FROM notifications WHERE id = due.listener AND paused = 0) "
    "AND NOT EXISTS (SELECT 1 FROM deliveries AS earlier WHERE earlier.listener = due.listener "
    "AND earlier.subject = due.subject AND earlier.state = 'pending' AND earlier.seq < due.seq) "
    "ORDER BY due_at, seq LIMIT ?"
)
_CLAIM = (
    "UPDATE deliveries SET claim = ?, claimed_until = ?, first_at = ? "
    "WHERE listener = ? AND seq = ?"
)
_END = (
    "UPDATE deliveries SET state = 'failed', answer = ?, settled_at = ? "
    "WHERE listener = ? AND seq = ? AND claim = ?"
)
#: Of a notification, what has arrived but the last ones.
_FORGET = (
    "DELETE FROM deliveries WHERE listener = ? AND state = 'delivered' AND seq <= ("
    "SELECT seq FROM deliveries WHERE listener = ? AND state = 'delivered' "
    "ORDER BY seq DESC LIMIT 1 OFFSET ?)"
)
_HINT = "delete the notification, and add it again"


class SqlNotifications:
    """See `store.protocols.notifications.Notifications`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def insert(self, notification: NotificationRecord) -> NotificationRecord:
        """See `Notifications.insert`."""
        values = _values(notification)
        sql = (
            f"INSERT INTO notifications ({', '.join(values)}) "
            f"VALUES ({', '.join('?' * len(values))}) "
            "ON CONFLICT (project, name) DO NOTHING RETURNING 1"
        )

        def step(connection: Connection) -> None:
            if connection.execute(sql, [*values.values()]).fetchone() is None:
                text = f"there is a notification named {notification.name!r} already"
                raise InvalidInput(Problem("name", text, "`muster notify edit` changes it"))
            _listen(connection, notification)

        def done(connection: Connection) -> bool:
            found = "SELECT 1 FROM notifications WHERE id = ?"
            return connection.execute(found, (notification.id,)).fetchone() is not None

        self._db.write(step, durable=True, done=done)
        return self.get(notification.id)

    def get(self, notification_id: str) -> NotificationRecord:
        """See `Notifications.get`."""
        rows = self._db.read(f"{_SELECT} WHERE id = ?", (notification_id,))
        if not rows:
            raise _missing(notification_id)
        return _notification(rows[0])

    def find(self, project: str, text: str) -> NotificationRecord:
        """See `Notifications.find`."""
        given = ("notifications", project, text, "muster notify list")
        return _notification(named_row(self._db, _SELECT, *given))

    def listing(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[NotificationRecord]:
        """See `Notifications.listing`."""
        sql, values = f"{_SELECT} WHERE project = ?", [project]
        if after is not None:
            sql, values = f"{sql} AND name > ?", [*values, after]
        sql += " ORDER BY name"
        if limit is not None:
            sql += f" LIMIT {int(limit)}"
        return [_notification(row) for row in self._db.read(sql, values)]

    def update(self, before: NotificationRecord, after: NotificationRecord) -> NotificationRecord:
        """See `Notifications.update`."""
        fixed = ("id", "name", "project", "created_by", "created_at", "local")
        values = _values(after) | {"version": before.version + 1}
        changed = {name: value for name, value in values.items() if name not in fixed}
        sql = (
            f"UPDATE notifications SET {', '.join(f'{name} = ?' for name in changed)} "
            "WHERE id = ? AND version = ? RETURNING 1"
        )

        def step(connection: Connection) -> bool:
            given = [*changed.values(), before.id, before.version]
            if connection.execute(sql, given).fetchone() is None:
                return False
            _listen(connection, after)
            return True

        if not self._db.write(step, durable=True):
            self.get(before.id)  # raises NotFound
            text = f"notification {before.name} was changed by another user meanwhile"
            raise Conflict(str(Problem("", text, "review the change, then try again")))
        return self.get(before.id)

    def delete(self, notification_id: str) -> bool:
        """See `Notifications.delete`."""

        def step(connection: Connection) -> bool:
            sql = "DELETE FROM notifications WHERE id = ? RETURNING 1"
            found = connection.execute(sql, (notification_id,)).fetchone() is not None
            remove_listener(connection, notification_id)
            return found

        return self._db.write(step, durable=True)

    # --- deliveries

    def claim(self, now: float, until: float, *, limit: int) -> list[ClaimedDelivery]:
        """See `Notifications.claim`."""
        due = (micros(now), micros(now), limit)
        if not self._db.read(_DUE, due):  # without a transaction, which others would wait for
            return []
        claim = new_id()

        def step(connection: Connection) -> list[Row]:
            lock = connection.dialect.lock
            rows = connection.execute(f"{_DUE}{lock and f'{lock} SKIP LOCKED'}", due).fetchall()
            connection.executemany(
                _CLAIM,
                [(claim, micros(until), row["first_at"] or micros(now), *_of(row)) for row in rows],
            )
            return rows

        claimed = []
        for row in self._db.write(step):
            try:
                claimed.append(self._claimed(row, claim, now))
            except NotFound:  # it was deleted meanwhile
                continue
            except CorruptRecord as error:  # it must not hold up the others
                self._end((str(error), micros(now), *_of(row), claim))
        return claimed

    def _end(self, values: tuple[Any, ...]) -> None:
        """Give up a claimed delivery. values: of `_END`."""
        self._db.write(lambda connection: connection.execute(_END, values))

    def _claimed(self, row: Row, claim: str, now: float) -> ClaimedDelivery:
        """Raises NotFound, CorruptRecord."""
        of = self.get(row["listener"])
        sql = f"SELECT {', '.join(ENTRY_COLUMNS)} FROM outbox WHERE seq = ?"
        if not (found := self._db.read(sql, (row["seq"],))):
            raise NotFound(f"no event with the number {row['seq']}")
        first_at = now if row["first_at"] is None else float(seconds(row["first_at"]))
        return ClaimedDelivery(of, read_outbox_entry(found[0]), row["attempts"], first_at, claim)

    def settle(
        self,
        delivery: ClaimedDelivery,
        state: DeliveryState,
        answer: str,
        now: float,
        due_at: float | None = None,
    ) -> bool:
        """See `Notifications.settle`."""
        listener = delivery.notification.id
        sql = (
            "UPDATE deliveries SET state = ?, answer = ?, attempts = attempts + 1, due_at = ?, "
            "claim = '', claimed_until = 0, settled_at = ? "
            "WHERE listener = ? AND seq = ? AND claim = ? RETURNING 1"
        )
        settled = None if state == DeliveryState.PENDING else micros(now)
        values = (str(state), answer, micros(due_at or now), settled)

        def step(connection: Connection) -> bool:
            which = (listener, delivery.entry.seq, delivery.claim)
            found = connection.execute(sql, (*values, *which)).fetchone() is not None
            if state == DeliveryState.DELIVERED:
                connection.execute(_FORGET, (listener, listener, KEPT_DELIVERIES))
            return found

        return self._db.write(step)

    def drop(self, delivery: ClaimedDelivery) -> None:
        """See `Notifications.drop`."""
        sql = "DELETE FROM deliveries WHERE listener = ? AND seq = ? AND claim = ?"
        which = (delivery.notification.id, delivery.entry.seq, delivery.claim)
        self._db.write(lambda connection: connection.execute(sql, which))

    def deliveries(
        self,
        project: str,
        *,
        notification_id: str | None = None,
        state: DeliveryState | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[DeliveryRecord]:
        """See `Notifications.deliveries`."""
        where, values = _chosen(project, notification_id, state)
        if before is not None:
            where, values = f"{where} AND outbox.seq < ?", [*values, before]
        sql = f"{_DELIVERY} WHERE {where} ORDER BY outbox.seq DESC, notifications.name"
        if limit is not None:
            sql += f" LIMIT {int(limit)}"
        return [_delivery(row) for row in self._db.read(sql, values)]

    def retry(self, project: str, now: float, *, notification_id: str | None = None) -> int:
        """See `Notifications.retry`."""
        of = "project = ?" if notification_id is None else "project = ? AND id = ?"
        sql = (
            "UPDATE deliveries SET state = 'pending', attempts = 0, first_at = NULL, due_at = ?, "
            "settled_at = NULL WHERE state = 'failed' AND listener IN "
            f"(SELECT id FROM notifications WHERE {of}) RETURNING 1"
        )
        values = [micros(now), project, *filter(None, (notification_id,))]

        def step(connection: Connection) -> int:
            return len(connection.execute(sql, values).fetchall())

        return self._db.write(step, durable=True)


def _of(row: Row) -> tuple[str, int]:
    """What identifies a delivery."""
    return row["listener"], row["seq"]


def _listen(connection: Connection, notification: NotificationRecord) -> None:
    types = () if notification.paused else matching_types(notification.on)
    kind = ListenerKind.NOTIFICATION
    set_listener(connection, notification.id, kind, notification.project, types)


def _chosen(
    project: str, notification_id: str | None, state: DeliveryState | None
) -> tuple[str, list[Any]]:
    """Conditions for deliveries, and their values."""
    given = {
        "notifications.project": project,
        "notifications.id": notification_id,
        "deliveries.state": None if state is None else str(state),
    }
    found = {name: value for name, value in given.items() if value is not None}
    return " AND ".join(f"{name} = ?" for name in found), [*found.values()]


def _values(notification: NotificationRecord) -> dict[str, Any]:
    """Column -> its value."""
    given = {name: getattr(notification, name) for name in _COLUMNS}
    given |= {name: json.dumps(to_builtins(given[name])) for name in _JSON}
    given |= {name: optional_micros(given[name]) for name in _TIMES}
    given |= {name: int(given[name]) for name in _FLAGS}
    return {_RENAMED.get(name, name): value for name, value in given.items()}


def _notification(row: Row) -> NotificationRecord:
    data: dict[str, Any] = dict(row)
    what = f"the record of notification {row['name']}"
    for name in _JSON:
        try:
            data[name] = decoded(data[name])
        except ValueError as error:
            raise CorruptRecord(f"{what} is corrupt: {name}: {error}; {_HINT}") from None
    data |= {name: seconds(data[name]) for name in _TIMES}
    data |= {name: bool(data[name]) for name in _FLAGS}
    return read_record(NotificationRecord, data, what, _HINT)


def _delivery(row: Row) -> DeliveryRecord:
    data: dict[str, Any] = dict(row)
    data |= {name: seconds(data[name]) for name in ("time", "due_at", "settled_at")}
    what = f"the delivery of event {data['event_id']} to {data['notification']}"
    return read_record(DeliveryRecord, data, what, _HINT)


def _missing(notification_id: str) -> NotFound:
    hint = "`muster notify list` lists them"
    return NotFound(Problem("", f"no notification with the id {notification_id!r}", hint))
