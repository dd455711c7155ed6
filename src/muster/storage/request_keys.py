"""Requests with an idempotency key: each is carried out once, whichever server gets it how often.

Nobody waits here: threads that did would be missing for all other requests.

requests/ID     locked while the request with this key is carried out; has its content's digest
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.errors import Conflict, MusterError, StoreBusy
from muster.file_locks import try_flock
from muster.storage.disk_use import entries_of
from muster.storage.home import Home

#: Seconds for which the content of a request is remembered.
KEPT = 86400.0


class InProgress(StoreBusy):
    """Another process or thread carries the request out."""


@contextmanager
def held(home: Home, key: str, digest: str) -> Iterator[None]:
    """Carry out a request, while no other one with its key is. key: a name of a file. digest: of
    the request's content. Raises InProgress if one is; Conflict if the key was used for another
    content. One that was refused is forgotten, so that it may be sent again, corrected."""
    path = home.requests / key
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = _locked(path)
    try:
        known = os.read(descriptor, 200).decode()
        if known not in ("", digest):
            raise Conflict("another request, with other content, had this idempotency key")
        if not known:
            os.write(descriptor, digest.encode())
        try:
            yield
        except MusterError:
            if not known:
                os.unlink(path)
            raise
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            locked = try_flock(descriptor, fcntl.LOCK_EX, path)
            if locked:
                with suppress(FileNotFoundError):  # who had the lock before has deleted it
                    if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                        return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not locked:
            raise InProgress(f"{path} is locked: another server carries the request out")


def remove_old(home: Home, now: float) -> None:
    """Forget requests of long ago. now: epoch seconds."""
    for path in entries_of(home.requests):
        with suppress(FileNotFoundError):
            if now - path.stat().st_mtime >= KEPT:
                path.unlink()
