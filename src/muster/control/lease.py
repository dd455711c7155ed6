"""Who drives a run: whoever holds the lock on its lease file.

The lock belongs to the open file, so it passes from the process that accepts a run to the
supervisor it forks without ever being free, and the kernel drops it when the holder ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from muster.control.watch import wait_for_process
from muster.errors import InvalidInput, Problem
from muster.node.files import open_own, read_regular
from muster.storage.home import RunDir

_LAST_MOMENT = 5.0  # seconds


def acquire(path: Path) -> int | None:
    """A descriptor that holds the lease; None if somebody else does. Raises OSError."""
    descriptor = open_own(path, os.O_RDWR, 0o600)
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
        by = f" (by process {pid})" if (pid := holder(folder.lease)) else ""
        raise InvalidInput(Problem("", f"{name} is being resumed or canceled already{by}"))
    return descriptor


def held(path: Path) -> bool:
    """Whether somebody drives the run."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
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


def supervisor(path: Path) -> int | None:
    """The pid, as we see it, of the process that was given the lease and has it; None if there is
    none, or it cannot be told. Where there is no /proc, whoever was given the lease last."""
    given = holder(path)
    if given is None or not held(path):
        return None
    if not os.path.isdir("/proc/self/fd"):
        return given
    # what its starter calls it is what we call it, unless one of us is in a container
    others = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return next((pid for pid in (given, *others) if _has(pid, given, path)), None)


def _has(pid: int, given: int, path: Path) -> bool:
    """Whether this process has the lease open, and somebody calls it `given`."""
    try:
        if pid != given and str(given) not in _numbers(pid):
            return False
        lease, links = path.stat(), os.listdir(f"/proc/{pid}/fd")
    except OSError:  # it has gone, or is somebody else's
        return False
    for link in links:
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.path.samestat(lease, os.stat(f"/proc/{pid}/fd/{link}")):
                return True
    return False


def _numbers(pid: int) -> list[str]:
    """What a process is called in each PID namespace that it is in."""
    with open(f"/proc/{pid}/status") as file:
        lines = [line.split() for line in file]
    return next((words[1:] for words in lines if words and words[0] == "NSpid:"), [])


def note(descriptor: int, pid: int) -> None:
    """Write down who was given the lease. Whoever reads meanwhile finds this pid or the last one:
    it is written at once, over all that the last one took."""
    written = b"%-20d\n" % pid
    os.pwrite(descriptor, written, 0)
    os.ftruncate(descriptor, len(written))


def holder(path: Path) -> int | None:
    """The pid that was last given the lease; None if none was yet. It may have ended since."""
    try:
        text = read_regular(path, 32).strip()
    except OSError:
        return None
    return int(text) or None if text.isdigit() else None
