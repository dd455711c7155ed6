"""Objects in memory, and both ends of connections through them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from muster.node.tunnel import End, Unavailable


class MemoryObjects:
    """See `muster.node.tunnel.Objects`. For several threads."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        #: The most objects that there were at a time.
        self.most = 0
        #: How many calls are still to fail.
        self.failures = 0
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes) -> None:
        with self._lock:
            self._fail()
            self.objects[name] = content
            self.most = max(self.most, len(self.objects))

    def get(self, name: str) -> bytes | None:
        with self._lock:
            self._fail()
            return self.objects.get(name)

    def discard(self, name: str) -> None:
        with self._lock:
            self.objects.pop(name, None)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise Unavailable("not now")


class Tunneled:
    """A connection through objects: what is written to `near` arrives at `far`, and back."""

    def __init__(
        self,
        objects: MemoryObjects,
        is_served: Callable[[], bool] = lambda: True,
        report: Callable[[str], object] = lambda _why: None,
    ) -> None:
        self.objects = objects
        self.near, near = socket.socketpair()
        self.far, far = socket.socketpair()
        for one in (self.near, self.far):
            one.settimeout(120)
        ends = [
            End(near, objects, "c", "up/", "down/", is_served, report),
            End(far, objects, "c", "down/", "up/", lambda: True, report),
        ]
        self._threads = [threading.Thread(target=end.run) for end in ends]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Close both, and wait for the ends."""
        self.near.close()
        self.far.close()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()
