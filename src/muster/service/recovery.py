"""Recover runs that have lost their supervisor, and delete expired runs.

Muster has no daemon: each command recovers the runs whose supervisor was killed, and deletes those
whose time to live is over, before it does its own work.
"""

from __future__ import annotations

import time
from contextlib import suppress

from muster.control.expire import expire
from muster.control.recover import recover
from muster.errors import StoreBusy
from muster.service.backend import Backend

#: Seconds after which a process that stays, such as a notebook, looks for such runs again.
_INTERVAL = 2.0


def recover_at_times(backend: Backend) -> None:
    """Recover runs without a supervisor and delete expired ones, unless this was done a moment ago
    for this backend.

    Does nothing where MUSTER_HOME is read-only. While another process keeps the database busy, or
    the disk is full, this is left to the next command.
    """
    if backend.recovers_apart:
        return
    with backend.lock:
        now = time.monotonic()
        if backend.recovered_at is not None and now < backend.recovered_at + _INTERVAL:
            return
        backend.recovered_at = now
    if backend.home.read_only():
        return
    with suppress(StoreBusy):
        recover_and_expire(backend)


def recover_and_expire(backend: Backend) -> None:
    """Recover runs without a supervisor, and delete expired ones. Raises StoreError."""
    recover(backend.store, backend.home, backend.start_supervisor)
    expire(backend.store, backend.home)


def adopt(backend: Backend, run_id: str) -> None:
    """See `control.recover.adopt`."""
    from muster.control import recover

    recover.adopt(backend.store, backend.home, run_id, backend.start_supervisor)


def recover_now(backend: Backend) -> bool:
    """Recover runs without a supervisor. Whether there were any."""
    return bool(recover(backend.store, backend.home, backend.start_supervisor))
