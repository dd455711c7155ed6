"""How to get a supervisor's attention: a FIFO in the run's folder.

What is wanted is in the database; the bell only says "look". A path may be longer than a socket's
may, and a FIFO works across network namespaces.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def install(path: Path) -> None:
    """Make the bell; once, when the run is accepted."""
    os.mkfifo(path, 0o600)


def attend(path: Path) -> int:
    """A descriptor that becomes readable when the bell rings. Both ends, so it never ends."""
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def silence(descriptor: int) -> None:
    """Take the ringing in."""
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 4096)


def ring(path: Path) -> None:
    """Ring; nothing if nobody attends (it will look when it comes)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"!")
        finally:
            os.close(descriptor)
