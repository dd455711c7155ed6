"""How to get a supervisor's attention: a FIFO in the run's folder.

What is wanted is in the database; the bell only says "look". A path may be longer than a socket's
may, and a FIFO works across network namespaces.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import termios
from array import array
from pathlib import Path

from muster.node.files import own_pipe


def install(path: Path) -> None:
    """Make the bell; once, when the run is accepted."""
    os.mkfifo(path, 0o600)


def attend(path: Path) -> int:
    """A descriptor that becomes readable when the bell rings. Both ends, so it never ends. Makes
    the bell if a program has done away with it. Raises OSError."""
    own_pipe(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def silence(descriptor: int) -> None:
    """Take the ringing in."""
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 4096)


def unheard(path: Path) -> bool:
    """Whether it rings and nobody has taken that in yet."""
    waiting = array("i", [0])
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with contextlib.suppress(OSError):  # it is no pipe: a program has done away with it
            fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    finally:
        os.close(descriptor)
    return waiting[0] > 0


def ring(path: Path) -> None:
    """Ring; nothing if nobody attends (it will look when it comes)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"!")
        finally:
            os.close(descriptor)
