"""The lease of a run, which the process that drives the run has.

The lease is in the store: what a process records of a run carries it, and is refused once another
process has taken it. On this machine, the lock on the run's folder (`control.run_lock`) says
whether the owner of the lease still lives.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.control import run_lock
from muster.errors import InvalidInput, Problem
from muster.identity import is_this_host, new_owner
from muster.storage.home import RunDir
from muster.store.records import Lease, LeaseHeld

if TYPE_CHECKING:
    from muster.store.base import Store


def take(store: Store, run_id: str) -> Lease | None:
    """Take the lease of a run whose lock this process has, or whose folder is gone. None if a
    process has it that may live: one on another host."""
    try:
        return store.leases.take(run_id, new_owner(), time.time(), alone=True)
    except LeaseHeld:
        return None


def take_or_refuse(store: Store, run_id: str, name: str) -> Lease:
    """As `take`. Raises InvalidInput if a process has the lease that may live."""
    try:
        return store.leases.take(run_id, new_owner(), time.time(), alone=True)
    except LeaseHeld as error:
        raise _on_another_host(name, error.lease.host) from None


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
    lease = store.leases.get(run_id)
    if lease is None or is_this_host(lease.host, lease.boot):
        return ""
    return lease.host


def check_host(store: Store, run_id: str, name: str) -> None:
    """Raise InvalidInput if a process of another host drives the run: its processes cannot be
    reached from here. name: of the run."""
    if host := other_host(store, run_id):
        raise _on_another_host(name, host)


def _on_another_host(name: str, host: str) -> InvalidInput:
    hint = (
        f"run the command on {host}; if that host is gone for good, `muster runs adopt {name}` "
        "continues the run here"
    )
    return InvalidInput(Problem("", f"{name} runs on the host {host}, not on this one", hint))
