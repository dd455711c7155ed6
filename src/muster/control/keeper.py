"""Keeps the leases of the runs that one process drives, and takes those of processes that ended.

For processes that drive many runs, on engines whose nodes outlive the process. Each lease lasts for
a term after its last renewal: if its owner dies or hangs, any other keeper of the store takes it
when the term is over. An owner that wakes up later finds its leases lost, and its records refused.

Hosts may disagree about the time by less than a term. If they disagree by more, leases change hands
too early, which costs time and harms nothing: the store tells owners apart by the token.
"""

from __future__ import annotations

from msgspec import Struct

from muster.identity import Owner
from muster.store.base import Store
from muster.store.records import Lease

#: Seconds for which a lease lasts after its last renewal.
TERM = 15.0
#: A lease is renewed this many times within its term.
_RENEWALS = 3


class Round(Struct, frozen=True):
    """What one `Keeper.step` has changed."""

    #: Leases of other processes that had expired and are this one's now.
    taken: tuple[Lease, ...]
    #: Leases of this process that another one has taken: it drives their runs no more.
    lost: tuple[Lease, ...]
    #: Seconds until the next step.
    wait: float


class Keeper:
    """The leases of one process. term: seconds."""

    def __init__(self, store: Store, owner: Owner, *, term: float = TERM) -> None:
        self._store = store
        self._owner = owner
        self._term = term
        self._held: dict[str, Lease] = {}
        #: Lost leases that no `Round` has reported yet.
        self._lost: list[Lease] = []

    def take(self, run_id: str, now: float) -> Lease:
        """Take the lease of a run that nobody has, and keep it. now: epoch seconds. Raises
        LeaseHeld, NotFound, StoreError."""
        expires_at = now + self._term
        lease = self._store.leases.take(run_id, self._owner, now, expires_at=expires_at)
        self._held[run_id] = lease
        return lease

    def release(self, run_id: str) -> None:
        """Give up the lease of a run, for instance because the run has ended. Nothing if it is not
        this process's. Raises StoreError."""
        if (lease := self._held.get(run_id)) is not None:
            self._store.leases.release(lease)
            del self._held[run_id]

    def step(self, now: float) -> Round:
        """Renew the leases of this process, and take those that have expired.

        now: epoch seconds. Raises StoreError if the store cannot be used now; the leases last for
        the rest of their term.
        """
        if self._held:
            self._renew(now)
        wait = self._term / _RENEWALS
        expiries = [lease.expires_at or now for lease in self._store.leases.expiring(now + wait)]
        taken: list[Lease] = []
        if expiries and expiries[0] <= now:  # the earliest
            taken = self._store.leases.take_expired(self._owner, now, now + self._term)
            self._held.update((lease.run_id, lease) for lease in taken)
        lost, self._lost = tuple(self._lost), []
        return Round(tuple(taken), lost, min([wait, *(at - now for at in expiries if at > now)]))

    def _renew(self, now: float) -> None:
        renewed = self._store.leases.renew(self._owner, now + self._term)
        tokens = {lease.run_id: lease.token for lease in renewed}
        for run_id, lease in [*self._held.items()]:
            if tokens.get(run_id) != lease.token:
                del self._held[run_id]
                self._lost.append(lease)
