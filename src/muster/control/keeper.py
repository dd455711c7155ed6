"""Keeps the leases of the runs that one process drives, and looks for requests from other hosts.

Processes of this host wake a supervisor through a FIFO, and learn from a lock that it has ended.
Those of other hosts only share the store with it. Where there may be others, a supervisor looks at
the store every second: for leases that another process has taken, and for runs with requests.

Leases that expire are renewed well within their term. A process that could not renew one for a
whole term drives the run no more, since another one may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from muster.engines.loop import EventLoop
from muster.errors import StoreBusy
from muster.store.records import Lease, LeaseLost

if TYPE_CHECKING:
    from muster.store.base import Store

#: Seconds between looks at the store.
_INTERVAL = 1.0
#: A lease is renewed this many times within its term.
_RENEWALS = 3


class _Kept:
    """A lease that is kept."""

    def __init__(self, lease: Lease, attend: Callable[[], None], renewed_at: float) -> None:
        self.lease = lease
        self.attend = attend
        #: When it was taken, or the last renewal began: see `EventLoop.now`.
        self.renewed_at = renewed_at
        self.lost: LeaseLost | None = None


class Keeper:
    """The leases of one process. shared: whether processes of other hosts use its MUSTER_HOME."""

    def __init__(self, store: Store, loop: EventLoop, *, shared: bool) -> None:
        self._store = store
        self._loop = loop
        self._term = store.leases.term
        self._needed = shared or self._term is not None
        self._interval = _INTERVAL if self._term is None else min(_INTERVAL, self._term / _RENEWALS)
        self._kept: dict[str, _Kept] = {}
        self._participant = loop.add(self._look)

    def keep(self, lease: Lease, attend: Callable[[], None]) -> None:
        """Keep the lease of a run. Calls `attend` when the run may have requests, and when `check`
        raises."""
        if self._needed:
            self._kept[lease.run_id] = _Kept(lease, attend, self._loop.now())
            if len(self._kept) == 1:
                self._participant.notify()

    def drop(self, run_id: str) -> None:
        """Keep the lease no more; nothing if it is not kept."""
        self._kept.pop(run_id, None)
        if not self._kept:
            self._participant.wake_at(None)

    def check(self, run_id: str) -> None:
        """Raises LeaseLost if the lease is lost."""
        if (kept := self._kept.get(run_id)) is not None and kept.lost is not None:
            raise kept.lost

    def _look(self, _ready: Mapping[int, int]) -> None:
        held = {run_id: kept for run_id, kept in self._kept.items() if kept.lost is None}
        if not held:
            return
        now = self._loop.now()
        try:
            self._renew(held, now)
            for lease in self._store.leases.lost([kept.lease for kept in held.values()]):
                owner = self._store.leases.get(lease.run_id)
                self._lose(held.pop(lease.run_id), LeaseLost(lease, owner))
            for run_id in self._store.runs.with_requests(held):
                held[run_id].attend()
        except StoreBusy as error:
            self._lose_expired(held, str(error))
        self._participant.wake_at(self._loop.now() + self._interval)

    def _renew(self, held: Mapping[str, _Kept], now: float) -> None:
        if self._term is None:
            return
        # those that are due by the next look, in one transaction
        before = now + self._interval - self._term / _RENEWALS
        due = [kept for kept in held.values() if kept.renewed_at <= before]
        if due:
            expires_at = self._store.leases.now() + self._term
            self._store.leases.renew([kept.lease for kept in due], expires_at)
        for kept in due:
            kept.renewed_at = now

    def _lose_expired(self, held: Mapping[str, _Kept], why: str) -> None:
        if self._term is None:
            return
        for kept in held.values():
            if self._loop.now() >= kept.renewed_at + self._term:
                self._lose(kept, LeaseLost(kept.lease, None, f"it has expired: {why}"))

    def _lose(self, kept: _Kept, error: LeaseLost) -> None:
        kept.lost = error
        kept.attend()
