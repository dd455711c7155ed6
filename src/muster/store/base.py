"""The store contract: what Muster records of jobs and runs, whatever database keeps it.

A `Store` is sets of use cases, each with a protocol in `store.protocols`: Jobs, runs, their event
logs, and the leases of the processes that drive runs; schedules; events for listeners; accounts
(users, projects, tokens), policies, secrets, and the audit log. Each method is one transaction: it
happens completely or not at all, and other processes see it at once. Any thread may call it. Every
implementation passes the contract tests in `tests/store/`.

Times are epoch seconds in UTC; a store rounds them to whole microseconds. Jobs and runs belong to a
project: names, their numbers, `last` and the reuse of a Job with the same content never cross
projects. Ids are unique everywhere.

Besides the errors that a method names, each may raise StoreError: StoreBusy and StoreFull are
temporary, the others are not. Values that cannot be stored, such as an unknown field or data that
are no JSON, are bugs of the caller: they raise some other error, and change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster.store.protocols.accounts import Accounts
    from muster.store.protocols.audit import Audit
    from muster.store.protocols.buckets import Buckets
    from muster.store.protocols.events import Events
    from muster.store.protocols.jobs import Jobs
    from muster.store.protocols.keys import Keys
    from muster.store.protocols.leases import Leases
    from muster.store.protocols.notifications import Notifications
    from muster.store.protocols.objects import Objects
    from muster.store.protocols.outbox import Outbox
    from muster.store.protocols.policies import Policies
    from muster.store.protocols.resources import Resources
    from muster.store.protocols.runs import Runs
    from muster.store.protocols.schedules import Schedules
    from muster.store.protocols.secrets import Secrets


class Store(Protocol):
    """See the module."""

    @property
    def jobs(self) -> Jobs: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def events(self) -> Events: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def accounts(self) -> Accounts: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def resources(self) -> Resources: ...
    @property
    def buckets(self) -> Buckets: ...
    @property
    def objects(self) -> Objects: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def schedules(self) -> Schedules: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def notifications(self) -> Notifications: ...

    @property
    def replaced(self) -> bool:
        """Whether the open database was deleted or replaced: nothing can be recorded in it any
        more."""
        ...

    @property
    def reads_at_once(self) -> bool:
        """Whether to read a few rows waits neither for another process nor for a network, so that
        an event loop may do it."""
        ...

    def close(self) -> None:
        """Close what is open. The store opens it again when it is used."""
        ...
