"""The store in a PostgreSQL database, which several servers share."""

from __future__ import annotations

from muster.store.postgres.database import Database
from muster.store.sql.store import SqlStore


class PostgresStore(SqlStore[Database]):
    """See `store.base.Store`."""

    @classmethod
    def open(cls, url: str) -> PostgresStore:
        """Connect, and create or migrate the tables if needed; see `Database.open`."""
        return cls(Database.open(url))
