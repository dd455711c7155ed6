"""Code that is stored and not recorded with a Job yet: nobody else may delete it.

Whoever stores code shares a lock on the folder of all code until the Job is recorded or discarded.
Only a process that has this lock alone deletes anything there.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from muster.storage.home import Home


class Claims:
    """What this process has stored and not recorded, by the id of the Job that it is for."""

    def __init__(self, home: Home) -> None:
        self._folder = home.artifacts
        self._mutex = Lock()
        self._job_ids: set[str] = set()
        self._descriptor = -1

    def add(self, job_id: str) -> None:
        """To be called before code is stored. Removes what was left by a process that was killed
        while it stored code."""
        with self._mutex:
            if not self._job_ids:
                self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
                if _lock(self._descriptor, fcntl.LOCK_EX):
                    for part in self._folder.glob(".part-*"):
                        part.unlink(missing_ok=True)
                _lock(self._descriptor, fcntl.LOCK_SH, wait=True)
            self._job_ids.add(job_id)

    def drop(self, job_id: str) -> None:
        """To be called when the Job is recorded, or if there is no code to record. Nothing if it is
        not claimed."""
        with self.alone(job_id):
            pass

    @contextmanager
    def alone(self, job_id: str) -> Iterator[bool]:
        """Drop a claim. Whether it was the last one of all processes: until this is left, code that
        is not recorded may be deleted."""
        with self._mutex:
            if job_id not in self._job_ids:
                yield False
                return
            self._job_ids.remove(job_id)
            if self._job_ids:
                yield False
                return
            try:
                yield _lock(self._descriptor, fcntl.LOCK_EX)
            finally:
                # not unlocked: a forked child may share the lock
                os.close(self._descriptor)


def _lock(descriptor: int, kind: int, *, wait: bool = False) -> bool:
    """Whether we have it. Where the file system cannot lock a folder, nobody deletes anything."""
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
