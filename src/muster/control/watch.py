"""Waiting for a run to end, told by the kernel.

A run's `life` is a FIFO that its supervisor holds open until the run's outcome is recorded, or
until it dies. Whoever has it open for reading is woken by either.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path

from muster.control import lease
from muster.lifecycle.states import RunState
from muster.storage.home import Home
from muster.store import runs
from muster.store.database import Database


def begin_life(path: Path) -> int:
    """Make a run's life; returns the descriptor that is to pass to its supervisor."""
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def end_of_life(db: Database, home: Home, run_id: str) -> int | None:
    """A descriptor that hangs up when the run has ended; None if it has, or nobody drives it."""
    folder = home.run_dir(run_id)
    try:
        descriptor = os.open(folder.life, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    # looked at only now: the outcome is recorded first and the FIFO let go of then, so while it
    # is not, the hanging up is still to come
    if not RunState(runs.get(db, run_id).state).terminal and lease.held(folder.lease):
        return descriptor
    os.close(descriptor)
    return None


def wait_for_end(db: Database, home: Home, run_id: str, timeout: float | None) -> None:
    """Return when nobody drives the run any more. Raises TimeoutError after `timeout` seconds."""
    descriptor = end_of_life(db, home, run_id)
    if descriptor is None:
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(None if timeout is None else timeout * 1000):
            name = runs.get(db, run_id).name
            raise TimeoutError(f"run {name} has not ended within {timeout:g} s")
    finally:
        os.close(descriptor)


def wait_for_process(pid: int, timeout: float) -> None:
    """Return when a process that is dying has gone, or after `timeout` seconds."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opener is None:
        return
    try:
        descriptor = opener(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(timeout * 1000)
    finally:
        os.close(descriptor)
