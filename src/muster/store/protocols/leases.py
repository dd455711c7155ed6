"""Who drives which run. A lease has an owner, a token that grows with each owner, and perhaps an
expiry.

Leases expire where processes of any host may drive a run: a process renews its leases well
within their term, and stops to drive a run whose lease it could not renew. Otherwise, a lease
lasts while its owner lives.

A process that drives a run passes its lease with everything that it records of it. Once another
process has taken the lease, the former owner can record nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from muster.identity import Owner
    from muster.store.records import Lease


class Leases(Protocol):
    """See the module."""

    @property
    def term(self) -> float | None:
        """Seconds that a lease lasts after it was taken or renewed; None: while its owner lives."""
        ...

    def now(self) -> float:
        """The time by which leases expire (epoch seconds): that of the server of the database, so
        that the clocks of hosts may differ, or that of this host if there is no server."""
        ...

    def take(
        self,
        run_id: str,
        owner: Owner,
        now: float,
        *,
        expires_at: float | None = None,
        alone: bool = False,
        force: bool = False,
    ) -> Lease:
        """Take the lease of a run that nobody has: it was never taken, was released, or has
        expired. Its owner may take it again, with the next token.

        expires_at: None for a lease that its owner keeps while it lives. alone: the caller holds
        the lock on the run's folder, so that an owner on the same host is gone. force: take it from
        any owner, which a user says is gone. Raises LeaseHeld if another process has the lease,
        NotFound.
        """
        ...

    def renew(self, leases: Collection[Lease], expires_at: float) -> None:
        """Extend those of these leases that their owners still have."""
        ...

    def lost(self, leases: Collection[Lease]) -> list[Lease]:
        """Those of these leases that their owners do not have any more, in no order: another
        process has taken them, or the run was deleted."""
        ...

    def release(self, lease: Lease) -> None:
        """Give a lease up, so that any process may take it. Nothing if another process has it."""
        ...

    def get(self, run_id: str) -> Lease | None:
        """The lease of a run; None if nobody has it."""
        ...
