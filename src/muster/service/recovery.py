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
    """Recover runs without a supervisor and delete expired ones, at the first call for a context.

    Does nothing where MUSTER_HOME is read-only. While another process keeps the database busy, or
    the disk is full, this is left to the next command.
    """
    with context.lock:
        if context.recovered:
            return
        db = context.db
        context.recovered = True
        if context.home.read_only():
            return
        with suppress(StoreBusy):
            recover(db, context.home, context.start_supervisor)
            expire(db, context.home)


def recover_now(context: Context) -> bool:
    """Recover runs without a supervisor. Whether there were any."""
    return bool(recover(context.db, context.home, context.start_supervisor))
