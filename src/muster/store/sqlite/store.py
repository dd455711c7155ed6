"""The store in a SQLite file."""

from __future__ import annotations

from pathlib import Path

from muster.store.sqlite.database import Database
from muster.store.sqlite.events import SqliteEvents
from muster.store.sqlite.jobs import SqliteJobs
from muster.store.sqlite.leases import SqliteLeases
from muster.store.sqlite.runs import SqliteRuns


class SqliteStore:
    """See `store.base.Store`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.jobs = SqliteJobs(database)
        self.runs = SqliteRuns(database)
        self.events = SqliteEvents(database)
        self.leases = SqliteLeases(database)

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> SqliteStore:
        """Open the file and migrate it if needed; see `Database.open`."""
        return cls(Database.open(path, create=create))

    @property
    def replaced(self) -> bool:
        """See `Store.replaced`."""
        return self.database.replaced

    def close(self) -> None:
        """See `Store.close`."""
        self.database.close()
