"""Who drives a run: whoever holds the lock on its lease file.

The lock belongs to the open file, so it passes from the process that accepts a run to the
supervisor it forks without ever being free, and the kernel drops it when the holder ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def acquire(path: Path) -> int | None:
    """A descriptor that holds the lease; None if somebody else does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def held(path: Path) -> bool:
    """Whether somebody drives the run."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # shared, so that those who look do not see each other
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder(path: Path) -> int | None:
    """The pid that was last given the lease; None if none was yet. It may have ended since."""
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    return int(text) or None if text.isdigit() else None
