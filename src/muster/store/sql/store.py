"""The store in a database that speaks SQL."""

from __future__ import annotations

from typing import Generic, TypeVar

from muster.store.sql.database import Database
from muster.store.sql.events import SqlEvents
from muster.store.sql.jobs import SqlJobs
from muster.store.sql.leases import SqlLeases
from muster.store.sql.runs import SqlRuns

D = TypeVar("D", bound=Database)


class SqlStore(Generic[D]):
    """See `store.base.Store`."""

    def __init__(self, database: D) -> None:
        self.database = database
        self.jobs = SqlJobs(database)
        self.runs = SqlRuns(database)
        self.events = SqlEvents(database)
        self.leases = SqlLeases(database)

    @property
    def replaced(self) -> bool:
        """See `Store.replaced`."""
        return self.database.replaced

    def close(self) -> None:
        """See `Store.close`."""
        self.database.close()
