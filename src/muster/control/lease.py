"""The lease of a run, which the process that drives the run has.

The lease is in the store: what a process records of a run carries it, and is refused once another
process has taken it. On this machine, the lock on the run's folder (`control.run_lock`) says
whether the owner of the lease still lives. On others, that it has expired, if the store has leases
that expire (`control.keeper`); otherwise only a user knows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.control import run_lock
from muster.errors import InvalidInput, Problem
from muster.identity import is_this_host, new_owner
from muster.storage.home import RunDir
from muster.store.records import Lease, LeaseHeld

if TYPE_CHECKING:
    from muster.store.base import Store


def expiry(store: Store) -> float | None:
    """When a lease expires that is taken now (see `Leases.now`); None: never."""
    term = store.leases.term
    return None if term is None else store.leases.now() + term


def take_alone(store: Store, run_id: str, *, force: bool = False) -> Lease:
    """Take the lease of a run whose lock this process has, or whose folder is gone. force: from any
    owner. Raises LeaseHeld if a process has it that may live: one on another host."""
    leases = store.leases
    return leases.take(
        run_id, new_owner(), leases.now(), expires_at=expiry(store), alone=True, force=force
    )


def take(store: Store, run_id: str) -> Lease | None:
    """As `take_alone`. None if a process has the lease that may live."""
    try:
        return take_alone(store, run_id)
    except LeaseHeld:
        return None


def take_or_refuse(store: Store, run_id: str, name: str) -> Lease:
    """As `take_alone`. Raises InvalidInput if a process has the lease that may live."""
    try:
        return take_alone(store, run_id)
    except LeaseHeld as error:
        raise _on_another_host(name, error.lease) from None


@contextlib.contextmanager
def held(store: Store, folder: RunDir, run_id: str, name: str) -> Iterator[Lease]:
    """Have the lock and the lease of a run without a supervisor. Raises InvalidInput if another
    process has one of them."""
    check_host(store, run_id, name)
    lock = run_lock.acquire_or_refuse(folder, name)
    try:
        lease = take_or_refuse(store, run_id, name)
        try:
            yield lease
        finally:
            store.leases.release(lease)
    finally:
        os.close(lock)


def other_host(store: Store, run_id: str) -> str:
    """The host of the process that drives a run, if it is not this one; else empty."""
    lease = of_other_host(store, run_id)
    return "" if lease is None else lease.host


def of_other_host(store: Store, run_id: str) -> Lease | None:
    """The lease of a run that a process of another host drives; else None, also if the lease has
    expired: any process may take it then."""
    lease = store.leases.get(run_id)
    if lease is None or is_this_host(lease.host, lease.boot):
        return None
    expired = lease.expires_at is not None and lease.expires_at <= store.leases.now()
    return None if expired else lease


def check_host(store: Store, run_id: str, name: str) -> None:
    """Raise InvalidInput if a process of another host drives the run: its processes cannot be
    reached from here. name: of the run."""
    if (lease := of_other_host(store, run_id)) is not None:
        raise _on_another_host(name, lease)


def _on_another_host(name: str, lease: Lease) -> InvalidInput:
    gone = f"if that host is gone for good, `muster runs adopt {name}` continues the run here"
    if lease.expires_at is not None:
        gone = "if that host is gone, the run continues on another one in a moment"
    hint = f"run the command on {lease.host}; {gone}"
    return InvalidInput(Problem("", f"{name} runs on the host {lease.host}, not on this one", hint))


def abandoned(name: str, lease: Lease) -> str:
    """What to say of a run of another host whose lock no process holds."""
    text = f"{name} runs on the host {lease.host}, but no process there holds its lock"
    if lease.expires_at is not None:
        return f"{text}: any host continues it when its lease has expired"
    return (
        f"{text}: the next muster command on {lease.host} continues it; if that host is gone, "
        f"`muster runs adopt {name}` does"
    )
