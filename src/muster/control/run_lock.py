"""The lock on a run's folder, which the process that drives the run holds.

It says on this machine whether the owner of the run's lease (`control.lease`) still lives. It
belongs to an open file: it passes from the process that submits the run to the supervisor that it
forks without being free in between, and the kernel releases it when the holder exits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from muster.errors import InvalidInput, Problem
from muster.file_locks import try_flock
from muster.node.files import open_or_replace, read_regular
from muster.storage.home import RunDir
from muster.unix_account import as_root

#: Seconds for a supervisor that was killed or has closed the liveness pipe to exit. After that, its
#: pid must belong to another process.
EXIT_TIMEOUT = 5.0
#: Seconds between attempts to lock: the kernel does not notify others when a lock is released.
_INTERVAL = 0.005


@as_root()
def acquire(path: Path) -> int | None:
    """A descriptor that holds the lock; None if another process holds it. Raises OSError,
    NoLocks."""
    descriptor = open_or_replace(path, os.O_RDWR, 0o600)
    acquired = False
    try:
        acquired = try_flock(descriptor, fcntl.LOCK_EX, path)
    finally:
        if not acquired:
            os.close(descriptor)
    return descriptor if acquired else None


@as_root()
def acquire_or_refuse(folder: RunDir, name: str) -> int:
    """Lock a run without a supervisor. Raises InvalidInput if it is locked."""
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    # a supervisor closes the liveness pipe, for which others wait, a moment before it exits
    deadline = time.monotonic() + EXIT_TIMEOUT
    while (descriptor := acquire(folder.lock)) is None:
        if time.monotonic() > deadline:
            by = f" (by process {pid})" if (pid := last_holder(folder.lock)) else ""
            raise InvalidInput(Problem("", f"{name} is already being resumed or canceled{by}"))
        time.sleep(_INTERVAL)
    return descriptor


@as_root()
def is_held(path: Path) -> bool:
    """Whether a process holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # a shared lock, so that processes that check do not see each other
        return not try_flock(descriptor, fcntl.LOCK_SH, path)
    finally:
        os.close(descriptor)


@as_root()
def holder_pid(path: Path) -> int | None:
    """The pid, in this PID namespace, of the supervisor that holds the lock; None if there is none
    or it cannot be determined. Without /proc, the pid that was recorded last."""
    recorded = last_holder(path)
    if recorded is None or not is_held(path):
        return None
    if not os.path.isdir("/proc/self/fd"):
        return recorded
    # the recorded pid is valid here unless the processes are in different PID namespaces
    others = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return next((pid for pid in (recorded, *others) if _has_open(pid, recorded, path)), None)


@as_root()
def is_supervisor(pid: int, folder: RunDir) -> bool | None:
    """Whether a process is the supervisor of a run, perhaps in another copy of MUSTER_HOME. None if
    that is not known: it is exiting, or belongs to another user."""
    if pid == os.getpid():
        return False
    try:
        files = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return None
    locked = os.path.join(os.sep, *folder.lock.parts[-3:])  # runs/ID/lease
    return any(file.endswith(locked) for file in files) if files else None


def _has_open(pid: int, recorded: int, path: Path) -> bool:
    """Whether a process has the locked file open, and the pid `recorded` in one of its PID
    namespaces."""
    try:
        if pid != recorded and str(recorded) not in _namespace_pids(pid):
            return False
        locked, links = path.stat(), os.listdir(f"/proc/{pid}/fd")
    except OSError:  # it has exited, or belongs to another user
        return False
    for link in links:
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.path.samestat(locked, os.stat(f"/proc/{pid}/fd/{link}")):
                return True
    return False


def _namespace_pids(pid: int) -> list[str]:
    """The pids of a process in each PID namespace that it is in."""
    with open(f"/proc/{pid}/status") as file:
        lines = [line.split() for line in file]
    return next((words[1:] for words in lines if words and words[0] == "NSpid:"), [])


def record_holder(descriptor: int, pid: int) -> None:
    """Record the pid of the process that is given the lock. A concurrent reader finds this pid or
    the one before: the new pid is written at once over all bytes of the old one."""
    written = b"%-20d\n" % pid
    os.pwrite(descriptor, written, 0)
    os.ftruncate(descriptor, len(written))


@as_root()
def last_holder(path: Path) -> int | None:
    """The pid that was recorded last, on whatever host; None if there is none. The process may have
    exited."""
    try:
        text = read_regular(path, 512).partition(b"\n")[0].strip()
    except OSError:
        return None
    return int(text) or None if text.isdigit() else None
