"""The audit log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from muster.store.account_records import AuditEntry, AuditFilter
from muster.store.records import CorruptRecord, decoded, read_record
from muster.store.sql.database import Connection, Database, Row
from muster.store.times import micros, seconds

#: Columns that are not called like the field of `AuditEntry`, since `user` is a word of SQL.
_RENAMED = {"user": "user_name"}
#: The fields that are recorded: the database numbers entries.
_FIELDS = tuple(name for name in AuditEntry.__struct_fields__ if name != "seq")
_COLUMNS = ", ".join(_RENAMED.get(name, name) for name in _FIELDS)
_NAMED = ", ".join(f'{_RENAMED.get(name, name)} AS "{name}"' for name in (*_FIELDS, "seq"))
_INSERT = f"INSERT INTO audit ({_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))})"
_FIND = "SELECT 1 FROM audit WHERE " + " AND ".join(
    f"{_RENAMED.get(name, name)} = ?" for name in _FIELDS
)


def insert_entries(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    """Add entries in a transaction that does what they are about."""
    if entries:
        connection.executemany(_INSERT, _rows(entries))


def _rows(entries: Sequence[AuditEntry]) -> list[list[Any]]:
    return [[_column_value(entry, name) for name in _FIELDS] for entry in entries]


class SqlAudit:
    """See `store.protocols.audit.Audit`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def append(self, *entries: AuditEntry) -> None:
        """See `Audit.append`."""
        rows = _rows(entries)

        def done(connection: Connection) -> bool:
            return not rows or connection.execute(_FIND, rows[-1]).fetchone() is not None

        # a durable transaction after it makes it durable as well
        self._db.write(lambda connection: connection.executemany(_INSERT, rows), done=done)

    def listing(self, chosen: AuditFilter) -> list[AuditEntry]:
        """See `Audit.listing`."""
        tests, values = _conditions(chosen)
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        order = "seq DESC" if chosen.after is None else "seq"
        sql = f"SELECT {_NAMED} FROM audit{where} ORDER BY {order}"
        if chosen.limit is not None:
            sql, values = f"{sql} LIMIT ?", [*values, chosen.limit]
        return [_entry(row) for row in self._db.read(sql, values)]

    def delete_before(self, time: float) -> int:
        """See `Audit.delete_before`."""

        def step(connection: Connection) -> int:
            # what the trigger that refuses deletions lets through, until the transaction ends
            connection.execute("UPDATE audit_retention SET before = ?", (micros(time),))
            sql = "DELETE FROM audit WHERE time < ? RETURNING 1"
            deleted = len(connection.execute(sql, (micros(time),)).fetchall())
            connection.execute("UPDATE audit_retention SET before = 0")
            return deleted

        return self._db.write(step, durable=True)


def _column_value(entry: AuditEntry, name: str) -> Any:
    value = getattr(entry, name)
    if name == "time":
        return micros(value)
    if name == "attributes":
        return json.dumps(dict(value))
    return int(value) if name == "allowed" else value


def _entry(row: Row) -> AuditEntry:
    what = f"entry {row['seq']} of the audit log"
    hint = f"`muster audit list --before {row['seq']}` shows those before it"
    values = dict(row)
    try:
        values["attributes"] = decoded(values["attributes"])
    except ValueError as error:
        raise CorruptRecord(f"{what} is corrupt: {error}; {hint}") from None
    times = {"time": seconds(values["time"]), "allowed": bool(values["allowed"])}
    return read_record(AuditEntry, {**values, **times}, what, hint)


def _conditions(chosen: AuditFilter) -> tuple[list[str], list[Any]]:
    """Conditions, and their values."""
    tests: list[str] = []
    values: list[Any] = []

    def add(test: str, *given: Any) -> None:
        tests.append(test)
        values.extend(given)

    for column, text in (
        ("user_name", chosen.user),
        ("object", chosen.object),
        ("project", chosen.project),
        ("permission", chosen.permission),
    ):
        if text is not None:
            add(f"{column} = ?", text)
    if chosen.action is not None and "." in chosen.action:
        add("action = ?", chosen.action)
    elif chosen.action is not None:
        prefix = f"{chosen.action}."  # all actions on a kind of object
        add("substr(action, 1, ?) = ?", len(prefix), prefix)
    if chosen.allowed is not None:
        add("allowed = ?", int(chosen.allowed))
    if chosen.since is not None:
        add("time >= ?", micros(chosen.since))
    if chosen.until is not None:
        add("time < ?", micros(chosen.until))
    if chosen.before is not None:
        add("seq < ?", chosen.before)
    if chosen.after is not None:
        add("seq > ?", chosen.after)
    return tests, values
