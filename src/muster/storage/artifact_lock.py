"""A lock on stored code that is not recorded with a Job yet.

A process that stores code holds a shared lock on a file until the Job is recorded or discarded.
Only a process that has the lock exclusively deletes code. A file, because NFS and others do not
show other hosts the locks of folders.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from muster.file_locks import flock, try_flock
from muster.node.files import open_or_replace, remove_entry
from muster.storage.home import Home
from muster.unix_account import as_root


class ArtifactLock:
    """The lock of this process, held for the Jobs whose code is stored and not recorded."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._mutex = Lock()
        self._job_ids: set[str] = set()
        self._descriptor = -1

    @as_root()
    def hold(self, job_id: str) -> None:
        """Hold the lock for a Job. Call it before its code is stored. Removes partial files of
        processes that were killed."""
        with self._mutex:
            if not self._job_ids:
                self._descriptor = _open(self._home)
                if _try_exclusive(self._descriptor, self._home):
                    sweep(self._home.artifacts)
                flock(self._descriptor, fcntl.LOCK_SH, self._home.artifacts_lock)
            self._job_ids.add(job_id)

    def release(self, job_id: str) -> None:
        """Stop holding the lock for a Job that is recorded or has no code to record. Does nothing
        if the lock is not held for it."""
        with self.released(job_id):
            pass

    @contextmanager
    def released(self, job_id: str) -> Iterator[bool]:
        """Stop holding the lock for a Job. Yields whether no process holds it for another Job; if
        so, code that is not recorded may be deleted inside the context."""
        with self._mutex:
            if job_id not in self._job_ids:
                yield False
                return
            self._job_ids.remove(job_id)
            if self._job_ids:
                yield False
                return
            try:
                yield _try_exclusive(self._descriptor, self._home)
            finally:
                # not unlocked: a forked child may share the lock
                os.close(self._descriptor)


@contextmanager
def try_exclusive(home: Home) -> Iterator[bool]:
    """Yields whether no process is storing code: then none can start to inside the context, and
    code that no Job has may be deleted. Yields False also where the lock's file cannot be
    created."""
    try:
        descriptor = _open(home)
    except OSError:
        yield False
        return
    try:
        yield _try_exclusive(descriptor, home)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove what killed processes left in the folder of all code; the caller has the lock
    exclusively."""
    for part in folder.glob(".part-*"):
        remove_entry(str(part))


def _open(home: Home) -> int:
    return open_or_replace(home.artifacts_lock, os.O_RDWR, 0o600)


def _try_exclusive(descriptor: int, home: Home) -> bool:
    """Whether the lock was acquired exclusively. Raises NoLocks."""
    return try_flock(descriptor, fcntl.LOCK_EX, home.artifacts_lock)
