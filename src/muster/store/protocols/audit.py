"""The audit log. Entries are never changed; the database refuses that, and their deletion
outside of `delete_before`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster.store.account_records import AuditEntry, AuditFilter


class Audit(Protocol):
    """See the module."""

    def append(self, *entries: AuditEntry) -> None:
        """Record entries; their `seq` is given here. They are durable when anything that is
        recorded after them is: what a caller does is recorded before it is done."""
        ...

    def listing(self, chosen: AuditFilter) -> list[AuditEntry]:
        """Entries, newest first; with `after`, oldest first."""
        ...

    def delete_before(self, time: float) -> int:
        """Delete entries that were recorded before a time. Returns their number."""
        ...
