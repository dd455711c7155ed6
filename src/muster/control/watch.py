"""Waiting for a run to end, told by the kernel.

A run's `life` is a FIFO that its supervisor holds open until the run's outcome is recorded, or
until it dies. Whoever has it open for reading is woken by either.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable
from pathlib import Path

from muster.node.files import own_pipe
from muster.storage.home import Home

_DAY = 86400.0


def begin_life(path: Path) -> int:
    """Begin a run's life, or another one; returns what is to pass to its supervisor. Raises
    OSError."""
    own_pipe(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def end_of_life(home: Home, run_id: str) -> int | None:
    """A descriptor that hangs up when the run has ended; None if it has, or nobody drives it."""
    try:
        descriptor = os.open(home.run_dir(run_id).life, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # it is not there, or a program has put something else there
        return None
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    try:
        os.read(descriptor, 1)
    except BlockingIOError:
        return descriptor  # somebody holds the other end: the hanging up is still to come
    os.close(descriptor)
    return None


def wait_for_end(home: Home, run_id: str, timeout: float | None) -> None:
    """Return when nobody drives the run any more. Raises TimeoutError after `timeout` seconds."""
    descriptor = end_of_life(home, run_id)
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
    """Return when a process that is dying has gone, or after `timeout` seconds."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opener is None:
        return
    try:
        descriptor = opener(pid)
    except OSError:  # it has gone, or the kernel does not do this
        return
    try:
        _readable(descriptor, timeout)
    finally:
        os.close(descriptor)
