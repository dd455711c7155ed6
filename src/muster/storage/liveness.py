"""The liveness pipe of a run, which wakes the processes that wait for the run's end.

It is a FIFO that the supervisor holds open for writing until the run's outcome is recorded, or
until the supervisor dies. Both wake the processes that have the FIFO open for reading.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable
from pathlib import Path

from muster.storage.fifos import make_fifo
from muster.storage.home import Home
from muster.unix_account import as_root

_DAY = 86400.0


@as_root()
def open_liveness_pipe(path: Path) -> int:
    """Create the FIFO if it is missing and open it for writing. Returns the descriptor that the
    supervisor inherits. Raises OSError; StoreError if the file system has no FIFOs."""
    make_fifo(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


@as_root()
def watch_liveness(home: Home, run_id: str) -> int | None:
    """A descriptor that hangs up when the run ends; None if it has no supervisor."""
    try:
        descriptor = os.open(
            home.run_dir(run_id).liveness_pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:  # it is missing, or a program has replaced it
        return None
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    try:
        os.read(descriptor, 1)
    except BlockingIOError:
        return descriptor  # the supervisor holds the other end
    os.close(descriptor)
    return None


def has_supervisor(home: Home, run_id: str) -> bool:
    """Whether a process holds the run's liveness pipe open."""
    descriptor = watch_liveness(home, run_id)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def wait_for_end(home: Home, run_id: str, timeout: float | None) -> None:
    """Return when the run has no supervisor. Raises TimeoutError after `timeout` seconds."""
    descriptor = watch_liveness(home, run_id)
    if descriptor is None:
        return
    try:
        if not _readable(descriptor, timeout):
            raise TimeoutError
    finally:
        os.close(descriptor)


def _readable(descriptor: int, timeout: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _DAY if deadline is None else min(deadline - time.monotonic(), _DAY)
        if poll.poll(max(left, 0) * 1000):  # 24 days at most
            return True
        if deadline is not None and time.monotonic() >= deadline:
            return False


def wait_for_process(pid: int, timeout: float) -> None:
    """Return when a process that is ending has exited, or after `timeout` seconds."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opener is None:
        return
    try:
        descriptor = opener(pid)
    except OSError:  # it has exited, or the kernel lacks pidfds
        return
    try:
        _readable(descriptor, timeout)
    finally:
        os.close(descriptor)
