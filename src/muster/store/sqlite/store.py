"""The store in a SQLite file."""

from __future__ import annotations

from pathlib import Path

from muster.store.sql.store import SqlStore
from muster.store.sqlite.database import Database


class SqliteStore(SqlStore[Database]):
    """See `store.base.Store`."""

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> SqliteStore:
        """Open the file and migrate it if needed; see `Database.open`."""
        return cls(Database.open(path, create=create))
