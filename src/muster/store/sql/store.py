"""The store in a database that speaks SQL."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from muster.store.sql.database import Database
from muster.store.sql.events import SqlEvents
from muster.store.sql.jobs import SqlJobs
from muster.store.sql.leases import SqlLeases
from muster.store.sql.runs import SqlRuns

if TYPE_CHECKING:  # imported when used, which most commands do not
    from muster.store.sql.accounts import SqlAccounts
    from muster.store.sql.audit import SqlAudit
    from muster.store.sql.buckets import SqlBuckets
    from muster.store.sql.keys import SqlKeys
    from muster.store.sql.notifications import SqlNotifications
    from muster.store.sql.objects import SqlObjects
    from muster.store.sql.outbox import SqlOutbox
    from muster.store.sql.policies import SqlPolicies
    from muster.store.sql.resources import SqlResources
    from muster.store.sql.schedules import SqlSchedules
    from muster.store.sql.secrets import SqlSecrets

D = TypeVar("D", bound=Database)


class SqlStore(Generic[D]):
    """See `store.base.Store`."""

    def __init__(self, database: D) -> None:
        self.database = database
        self.jobs = SqlJobs(database)
        self.runs = SqlRuns(database)
        self.events = SqlEvents(database)
        self.leases = SqlLeases(database)

    @cached_property
    def accounts(self) -> SqlAccounts:
        """See `Store.accounts`."""
        from muster.store.sql.accounts import SqlAccounts

        return SqlAccounts(self.database)

    @cached_property
    def policies(self) -> SqlPolicies:
        """See `Store.policies`."""
        from muster.store.sql.policies import SqlPolicies

        return SqlPolicies(self.database)

    @cached_property
    def keys(self) -> SqlKeys:
        """See `Store.keys`."""
        from muster.store.sql.keys import SqlKeys

        return SqlKeys(self.database)

    @cached_property
    def resources(self) -> SqlResources:
        """See `Store.resources`."""
        from muster.store.sql.resources import SqlResources

        return SqlResources(self.database)

    @cached_property
    def buckets(self) -> SqlBuckets:
        """See `Store.buckets`."""
        from muster.store.sql.buckets import SqlBuckets

        return SqlBuckets(self.database)

    @cached_property
    def objects(self) -> SqlObjects:
        """See `Store.objects`."""
        from muster.store.sql.objects import SqlObjects
        from muster.store.sql.reports import report_object

        return SqlObjects(self.database, report_object)

    @cached_property
    def secrets(self) -> SqlSecrets:
        """See `Store.secrets`."""
        from muster.store.sql.secrets import SqlSecrets

        return SqlSecrets(self.database)

    @cached_property
    def audit(self) -> SqlAudit:
        """See `Store.audit`."""
        from muster.store.sql.audit import SqlAudit

        return SqlAudit(self.database)

    @cached_property
    def schedules(self) -> SqlSchedules:
        """See `Store.schedules`."""
        from muster.store.sql.schedules import SqlSchedules

        return SqlSchedules(self.database)

    @cached_property
    def outbox(self) -> SqlOutbox:
        """See `Store.outbox`."""
        from muster.store.sql.outbox import SqlOutbox

        return SqlOutbox(self.database)

    @cached_property
    def notifications(self) -> SqlNotifications:
        """See `Store.notifications`."""
        from muster.store.sql.notifications import SqlNotifications

        return SqlNotifications(self.database)

    @property
    def replaced(self) -> bool:
        """See `Store.replaced`."""
        return self.database.replaced

    @property
    def reads_at_once(self) -> bool:
        """See `Store.reads_at_once`."""
        return self.database.reads_at_once

    def close(self) -> None:
        """See `Store.close`."""
        self.database.close()
