"""Wake a run's supervisor through a FIFO in the run's folder.

Requests are in the database; the FIFO only says that there are some. A FIFO and not a socket: it
works across network namespaces, and its path may be longer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import termios
from array import array
from pathlib import Path

from muster.storage.fifos import make_fifo
from muster.unix_account import as_root


@as_root()
def create(path: Path) -> None:
    """Create the FIFO, when the run is accepted. Raises OSError; StoreError if the file system has
    no FIFOs."""
    make_fifo(path)


@as_root()
def open(path: Path) -> int:
    """Open the FIFO for the supervisor: a descriptor that is readable after a `notify`. It is open
    for writing too, so that it never reaches its end. Creates the FIFO again if a program has
    deleted or replaced it. Raises OSError."""
    make_fifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def drain(descriptor: int) -> None:
    """Read all notifications, so that the descriptor is no longer readable."""
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 4096)


@as_root()
def pending(path: Path) -> bool:
    """Whether there are notifications that the supervisor has not drained."""
    waiting = array("i", [0])
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with contextlib.suppress(OSError):  # a program has put another file in its place
            fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    finally:
        os.close(descriptor)
    return waiting[0] > 0


@as_root()
def notify(path: Path) -> None:
    """Wake the supervisor; nothing if there is none (a new one reads the requests when it
    starts)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"!")
        finally:
            os.close(descriptor)
