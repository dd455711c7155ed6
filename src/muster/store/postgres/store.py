"""The store in a PostgreSQL database, which several servers share."""

from __future__ import annotations

from pathlib import Path

from muster.errors import StoreError
from muster.store.postgres.database import Database
from muster.store.sql.store import SqlStore


class PostgresStore(SqlStore[Database]):
    """See `store.base.Store`."""

    @classmethod
    def open(cls, url: str, *, timeout: float = 0.0) -> PostgresStore:
        """Connect, and create or migrate the tables if needed; see `Database.open`."""
        return cls(Database.open(url, timeout=timeout))

    def check_home(self, home_id: str, file: Path) -> None:
        """Raises StoreError if the database has the records of another MUSTER_HOME. One without
        records becomes this one's. file: with the id."""
        known = self.database.read("SELECT id FROM home")
        if not known:
            claim = "INSERT INTO home (id) VALUES (?) ON CONFLICT DO NOTHING"
            self.database.write(lambda connection: connection.execute(claim, (home_id,)))
            known = self.database.read("SELECT id FROM home")
        if (found := known[0]["id"]) != home_id:
            self.close()
            raise StoreError(
                f"{self.database.place} has the records of another MUSTER_HOME: use that one, or "
                f"another database; if its files are here now, write {found} to {file}"
            )
