"""Locks on files, and the proof that a file system has locks.

A network file system may refuse locks, or grant one to several processes. Nothing is written there.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from muster.errors import StoreError
from muster.file_system import FileSystem, file_system_by_device

#: What a file system without locks answers.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EIO)
_WAY_OUT = "set MUSTER_HOME to a folder on a local disk of this host"


class NoLocks(StoreError):  # noqa: N818
    """The file system has no locks that keep several processes, or hosts, from writing at once."""


def flock(descriptor: int, operation: int, path: str | os.PathLike[str]) -> None:
    """Lock an open file, as fcntl.flock does. path: for messages.

    Raises BlockingIOError if it is held and LOCK_NB is set, and NoLocks if the file system cannot
    lock.
    """
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        where = file_system_by_device(os.fstat(descriptor).st_dev)
        raise NoLocks(
            f"cannot lock {os.fspath(path)} on {where}: {error.strerror}; {_WAY_OUT}"
        ) from None


def try_flock(descriptor: int, operation: int, path: str | os.PathLike[str]) -> bool:
    """As `flock`, without waiting: False if another process holds it."""
    try:
        flock(descriptor, operation | fcntl.LOCK_NB, path)
    except BlockingIOError:
        return False
    return True


def check_locks(folder: str | os.PathLike[str]) -> None:
    """Raise NoLocks if locks on files of a folder are not to be relied on.

    Local file systems are not examined. Elsewhere one process locks a file and another one tries
    to, once for each file system in the life of this process. No verdict where no file can be
    created.
    """
    try:
        device = os.stat(folder).st_dev
    except OSError:
        return
    where = file_system_by_device(device)
    if where.shared and (why := _objection(os.fspath(folder), where)):
        raise NoLocks(f"cannot write to {os.fspath(folder)}: it is on {where}, {why}; {_WAY_OUT}")


def _objection(folder: str, where: FileSystem) -> str:
    """Why the locks are not to be relied on; empty if they are."""
    if where.host_locks:
        return f"{where.host_locks}, so that two hosts that write at once would destroy the data"
    try:
        return _refused_lock(folder, where)
    except OSError:
        return ""  # read-only or full: whoever writes meets that error


@cache
def _refused_lock(folder: str, where: FileSystem) -> str:
    """What is wrong with the locks of a file system; empty if they work. Raises OSError if no file
    can be created to try them."""
    kinds = ((_lockf, "byte-range locks (fcntl)"), (fcntl.flock, "locks of files (flock)"))
    for take, name in kinds:
        path = os.path.join(folder, f".lock-{os.getpid()}-{os.urandom(4).hex()}")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            take(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_granted_to_child(path, take):
                return f"which ignores {name}: two processes held the same one"
        except OSError as error:
            return f"which has no {name}: {error.strerror}"
        finally:
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(path)
    return ""


def _lockf(descriptor: int, operation: int) -> None:
    fcntl.lockf(descriptor, operation, 1)


def _is_granted_to_child(path: str, take: Callable[[int, int], None]) -> bool:
    """Whether another process is granted the lock that this one holds. A child is that process: a
    byte-range lock belongs to a process, so that this one would be granted its own again."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"refused"
        try:
            take(os.open(path, os.O_RDWR | os.O_CLOEXEC), fcntl.LOCK_EX | fcntl.LOCK_NB)
            answer = b"granted"
        finally:
            os.write(writing, answer)
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        answer = file.read()
    with suppress(ChildProcessError):  # a supervisor may reap all its children
        os.waitpid(pid, 0)
    return answer == b"granted"
