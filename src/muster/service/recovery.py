"""Recover runs that have lost their supervisor, and delete expired runs.

Muster has no daemon: each command recovers the runs whose supervisor was killed, and deletes those
whose time to live is over, before it does its own work.
"""

from __future__ import annotations

from contextlib import suppress

from muster.control.expire import expire
from muster.control.recover import recover
from muster.errors import StoreBusy
from muster.service.context import Context


def recover_once(context: Context) -> None:
    """Recover runs without a supervisor and delete expired ones, at the first call for a backend.

    Does nothing where MUSTER_HOME is read-only. While another process keeps the database busy, or
    the disk is full, this is left to the next command.
    """
    backend = context.backend
    store = backend.store
    with backend.lock:
        if backend.recovered:
            return
        backend.recovered = True
    if backend.home.read_only():
        return
    with suppress(StoreBusy):
        recover(store, backend.home, backend.start_supervisor)
        expire(store, backend.home)


def adopt(context: Context, run_id: str) -> None:
    """See `control.recover.adopt`."""
    from muster.control import recover

    recover.adopt(context.store, context.home, run_id, context.backend.start_supervisor)


def recover_now(context: Context) -> bool:
    """Recover runs without a supervisor. Whether there were any."""
    return bool(recover(context.store, context.home, context.backend.start_supervisor))
