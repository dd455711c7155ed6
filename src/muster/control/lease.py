"""The lease of a run and the lock on its folder, which the process that drives the run has.

The lease is in the store: what a process records of a run carries it, and is refused once another
process has taken it. The lock says on this machine whether the owner of the lease still lives. It
belongs to an open file: it passes from the process that submits the run to the supervisor that it
forks without being free in between, and the kernel releases it when the holder exits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from muster.errors import InvalidInput, Problem
from muster.identity import new_owner
from muster.node.files import open_or_replace, read_regular
from muster.storage.home import RunDir
from muster.storage.liveness import wait_for_process
from muster.store.records import Lease, LeaseHeld

if TYPE_CHECKING:
    from muster.store.base import Store

#: Seconds for a supervisor that was killed or has closed the liveness pipe to exit. After that, its
#: pid must belong to another process.
EXIT_TIMEOUT = 5.0


def acquire(path: Path) -> int | None:
    """A descriptor that holds the lease; None if another process holds it. Raises OSError."""
    descriptor = open_or_replace(path, os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def acquire_or_refuse(folder: RunDir, name: str) -> int:
    """Acquire the lease of a run without a supervisor. Raises InvalidInput if it is held."""
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = acquire(folder.lease)
    if descriptor is None:
        # a supervisor closes the liveness pipe, for which others wait, a moment before its lease
        wait_for_process(last_holder(folder.lease) or 0, EXIT_TIMEOUT)
        descriptor = acquire(folder.lease)
    if descriptor is None:
        by = f" (by process {pid})" if (pid := last_holder(folder.lease)) else ""
        raise InvalidInput(Problem("", f"{name} is already being resumed or canceled{by}"))
    return descriptor


def take(store: Store, run_id: str) -> Lease | None:
    """Take the lease of a run whose lock this process has, or whose folder is gone. None if a
    process has it that may live: one on another host."""
    try:
        return store.leases.take(run_id, new_owner(), time.time(), alone=True)
    except LeaseHeld:
        return None


def take_or_refuse(store: Store, run_id: str, name: str) -> Lease:
    """As `take`. Raises InvalidInput if a process has the lease that may live."""
    try:
        return store.leases.take(run_id, new_owner(), time.time(), alone=True)
    except LeaseHeld as error:
        host = error.lease.host
        hint = f"run the command on {host}"
        raise InvalidInput(Problem("", f"{name} is driven by a process on {host}", hint)) from None


@contextlib.contextmanager
def held(store: Store, folder: RunDir, run_id: str, name: str) -> Iterator[Lease]:
    """Have the lock and the lease of a run without a supervisor. Raises InvalidInput if another
    process has one of them."""
    lock = acquire_or_refuse(folder, name)
    try:
        lease = take_or_refuse(store, run_id, name)
        yield lease
        store.leases.release(lease)
    finally:
        os.close(lock)


def is_held(path: Path) -> bool:
    """Whether a process holds the lease."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # a shared lock, so that processes that check do not see each other
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder_pid(path: Path) -> int | None:
    """The pid, in this PID namespace, of the supervisor that holds the lease; None if there is none
    or it cannot be determined. Without /proc, the pid that was recorded last."""
    recorded = last_holder(path)
    if recorded is None or not is_held(path):
        return None
    if not os.path.isdir("/proc/self/fd"):
        return recorded
    # the recorded pid is valid here unless the processes are in different PID namespaces
    others = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return next((pid for pid in (recorded, *others) if _has_open(pid, recorded, path)), None)


def _has_open(pid: int, recorded: int, path: Path) -> bool:
    """Whether a process has the lease file open, and the pid `recorded` in one of its PID
    namespaces."""
    try:
        if pid != recorded and str(recorded) not in _namespace_pids(pid):
            return False
        lease, links = path.stat(), os.listdir(f"/proc/{pid}/fd")
    except OSError:  # it has exited, or belongs to another user
        return False
    for link in links:
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.path.samestat(lease, os.stat(f"/proc/{pid}/fd/{link}")):
                return True
    return False


def _namespace_pids(pid: int) -> list[str]:
    """The pids of a process in each PID namespace that it is in."""
    with open(f"/proc/{pid}/status") as file:
        lines = [line.split() for line in file]
    return next((words[1:] for words in lines if words and words[0] == "NSpid:"), [])


def record_holder(descriptor: int, pid: int) -> None:
    """Record the pid of the process that is given the lease. A concurrent reader finds this pid or
    the one before: the new pid is written at once over all bytes of the old one."""
    written = b"%-20d\n" % pid
    os.pwrite(descriptor, written, 0)
    os.ftruncate(descriptor, len(written))


def last_holder(path: Path) -> int | None:
    """The pid that was recorded last; None if there is none. The process may have exited."""
    try:
        text = read_regular(path, 32).strip()
    except OSError:
        return None
    return int(text) or None if text.isdigit() else None
