"""RSA keys that are made before they are needed: each takes some 50 ms of CPU time, for which a run
that starts would have to wait."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, get_native_id
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

#: OCI: the size of a session's key.
_BITS = 2048
#: The most keys that are ready, however many a run needs.
_MOST = 64
#: How much is left to others while keys are made (`nice`).
_NICENESS = 19


def new_key() -> RSAPrivateKey:
    """Make a key."""
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

    return generate_private_key(65537, _BITS)


def pem(key: RSAPrivateKey) -> bytes:
    """A key as clients read it (PKCS #8)."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class KeyPool:
    """Has keys ready, of which each is given out once. Threads may share it. It makes none before
    the first one is taken; from then on, it has as many ready as the largest run has taken."""

    def __init__(self, size: int = 4) -> None:
        """size: the number of keys to have ready, if no run needs more."""
        self._size = size
        self._lock = Lock()
        self._made: deque[Future[bytes]] = deque()
        self._maker = ThreadPoolExecutor(1, "keys", _yield_to_others)

    def take(self, count: int = 1) -> list[bytes]:
        """Keys, PEM: those that are ready, at most `count`; or else a new one."""
        with self._lock:
            ready = list[Future[bytes]]()
            while self._made and self._made[0].done() and len(ready) < count:
                ready.append(self._made.popleft())
            self._size = max(self._size, min(count, _MOST))
            while len(self._made) < self._size:
                self._made.append(self._maker.submit(_new_pem))
        return [one.result() for one in ready] or [_new_pem()]

    def close(self) -> None:
        """Make no more."""
        self._maker.shutdown(cancel_futures=True)


def take_new(_count: int) -> list[bytes]:
    """As `KeyPool.take`, where there is no pool."""
    return [_new_pem()]


def _new_pem() -> bytes:
    return pem(new_key())


def _yield_to_others() -> None:
    """Let this thread make keys while nothing else has to be done."""
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, get_native_id(), _NICENESS)  # Linux: of a thread
