"""The secrets of projects."""

from __future__ import annotations

from collections.abc import Collection

from muster.errors import NotFound
from muster.store.account_records import SecretRecord
from muster.store.records import read_record
from muster.store.sql.database import Connection, Database
from muster.store.times import micros, seconds


class SqlSecrets:
    """See `store.protocols.secrets.Secrets`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def set(self, project: str, name: str, sealed: str, *, by: str, now: float) -> SecretRecord:
        """See `Secrets.set`."""
        sql = (
            "INSERT INTO secrets (project, name, version, value, set_by, set_at) "
            "SELECT name, ?, 1, ?, ?, ? FROM projects WHERE name = ? "
            "ON CONFLICT (project, name) DO UPDATE SET version = secrets.version + 1, "
            "value = excluded.value, set_by = excluded.set_by, set_at = excluded.set_at "
            "RETURNING version"
        )

        def step(connection: Connection) -> int:
            row = connection.execute(sql, (name, sealed, by, micros(now), project)).fetchone()
            if row is None:
                raise NotFound(f"no project named {project!r}")
            return int(row[0])

        return SecretRecord(name, self._db.write(step, durable=True), by, seconds(micros(now)))

    def delete(self, project: str, name: str) -> bool:
        """See `Secrets.delete`."""
        sql = "DELETE FROM secrets WHERE project = ? AND name = ? RETURNING 1"

        def step(connection: Connection) -> bool:
            return bool(connection.execute(sql, (project, name)).fetchall())

        return self._db.write(step, durable=True)

    def listing(self, project: str) -> list[SecretRecord]:
        """See `Secrets.listing`."""
        sql = "SELECT name, version, set_by, set_at FROM secrets WHERE project = ? ORDER BY name"
        return [
            read_record(
                SecretRecord,
                {**dict(row), "set_at": seconds(row["set_at"])},
                f"the record of secret {row['name']}",
                "set it again",
            )
            for row in self._db.read(sql, (project,))
        ]

    def values(self, project: str, names: Collection[str]) -> dict[str, str]:
        """See `Secrets.values`."""
        if not names:
            return {}
        marks = ", ".join("?" * len(names))
        sql = f"SELECT name, value FROM secrets WHERE project = ? AND name IN ({marks})"
        return {row["name"]: row["value"] for row in self._db.read(sql, (project, *names))}
