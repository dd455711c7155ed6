"""Waiting for a run to end, told by the kernel."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable

from muster.control import lease
from muster.lifecycle.states import RunState
from muster.storage.home import Home
from muster.store import runs
from muster.store.database import Database


def supervisor_end(home: Home, run_id: str) -> int | None:
    """A descriptor that becomes readable when the run's supervisor ends; None if it cannot be
    had, because it has ended already or the system has no such thing."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    pid = lease.holder(home.run_dir(run_id).lease)
    if pid is None or opener is None:
        return None
    try:
        descriptor = opener(pid)
    except OSError:
        return None
    # the number may be another process's by now: then nobody holds the lease
    if lease.held(home.run_dir(run_id).lease):
        return descriptor
    os.close(descriptor)
    return None


def wait_for_end(db: Database, home: Home, run_id: str, timeout: float | None) -> None:
    """Return when nobody drives the run any more. Raises TimeoutError after `timeout` seconds."""
    record = runs.get(db, run_id)
    if RunState(record.state).terminal:
        return
    descriptor = supervisor_end(home, run_id)
    if descriptor is not None:
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise TimeoutError(f"run {record.name} has not ended within {timeout:g} s")
        finally:
            os.close(descriptor)
        return
    if timeout is None:
        with contextlib.suppress(InterruptedError):
            lease.wait_until_free(home.run_dir(run_id).lease)
        return
    _wait_in_steps(db, home, run_id, time.monotonic() + timeout, timeout)


def _wait_in_steps(db: Database, home: Home, run_id: str, deadline: float, timeout: float) -> None:
    """Where the kernel cannot tell (no pidfd): look, at growing intervals of 5 to 100 ms."""
    pause = 0.005
    while True:
        if not lease.held(home.run_dir(run_id).lease):
            return
        if time.monotonic() >= deadline:
            raise TimeoutError(f"run {run_id} has not ended within {timeout:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
        if RunState(runs.get(db, run_id).state).terminal:
            return
