"""Who drives a run: whoever holds the lock on its lease file.

The lock belongs to the open file, so it passes from the process that accepts a run to the
supervisor it forks without ever being free, and the kernel drops it when the holder ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from muster.control.watch import wait_for_process
from muster.errors import InvalidInput, Problem
from muster.storage.home import RunDir

_LAST_MOMENT = 5.0  # seconds


def acquire(path: Path) -> int | None:
    """A descriptor that holds the lease; None if somebody else does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def take(folder: RunDir, name: str) -> int:
    """The lease of a run that nobody drives. Raises InvalidInput if somebody does."""
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = acquire(folder.lease)
    if descriptor is None:
        # a supervisor lets go of the run's life, for which others wait, a moment before its lease
        wait_for_process(holder(folder.lease) or 0, _LAST_MOMENT)
        descriptor = acquire(folder.lease)
    if descriptor is None:
        raise InvalidInput(Problem("", f"{name} is being resumed or canceled already"))
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
