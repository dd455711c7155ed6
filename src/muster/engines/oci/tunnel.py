"""The supervisor's end of connections through a bucket (`node.tunnel`): finds those that nodes have
opened, and connects them with the port where it listens for nodes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

from muster.engines.oci.bucket import Bucket
from muster.engines.oci.refusals import CannotRun
from muster.node import tunnel
from muster.node.tunnel import BadPart, End, Unavailable

#: Seconds until the next attempt after the bucket could not be used.
_RETRY_PAUSE = 5.0
#: The most connections at a time, each of which has a thread: nodes have one each.
_MOST = 1024


class Tunnel:
    """Carries the connections of a run's nodes: `run` does, until another thread closes it.

    port: where nodes are listened for on this machine. report: gets why the bucket cannot be used,
    for people; "" when it can again. Called in threads.
    """

    def __init__(
        self, bucket: Bucket, run_id: str, port: int, report: Callable[[str], object]
    ) -> None:
        self._bucket, self._port, self._report = bucket, port, report
        self._folder = bucket.place.folder(run_id)
        self._session = os.urandom(8).hex()
        self._up = tunnel.up_folder(self._folder, self._session)
        self._down = tunnel.down_folder(self._folder, self._session)
        self._connections: dict[str, _Connection] = {}
        self._ended: set[str] = set()  # connections of which parts may still arrive
        self._reported = ""  # what was reported last
        self._active_at = time.monotonic()
        self._closed, self._woken = False, threading.Event()

    def close(self) -> None:
        """Make `run` return. Nodes that keep running find the next supervisor. May be repeated."""
        self._closed = True
        self._woken.set()

    def run(self) -> None:
        """Carry connections. When it returns, they have ended, and nothing is in the bucket, unless
        that was reported."""
        while not self._closed and not self._attempt(self._announce):
            self._wait(_RETRY_PAUSE)
        while not self._closed:
            done = self._attempt(self._look)
            idle = time.monotonic() - self._active_at
            self._wait(tunnel.pause_after(idle) if done else _RETRY_PAUSE)
        for one in self._connections.values():
            one.join()
        self._attempt(self._clear)

    def _attempt(self, act: Callable[[], object]) -> bool:
        """Returns whether it was possible."""
        try:
            act()
        except (CannotRun, OSError) as error:
            self._report_change(str(error))
            return False
        self._report_change("")
        return True

    def _report_change(self, why: str) -> None:
        if why != self._reported:
            self._reported = why
            self._report(why)

    def _announce(self) -> None:
        """Announce this session to nodes, after removing what earlier ones have left."""
        self._bucket.clear(self._folder)
        self._bucket.put(tunnel.supervisor_name(self._folder), self._session.encode())

    def _clear(self) -> None:
        self._bucket.delete(tunnel.supervisor_name(self._folder))  # nothing is written after that
        self._bucket.clear(self._folder)

    def _wait(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()

    def _moved(self) -> None:
        """Something was sent to a node, which may answer soon."""
        self._active_at = time.monotonic()
        self._woken.set()

    def _look(self) -> None:
        """Find new parts."""
        found: dict[str, list[str]] = {}
        for name in self._bucket.names(self._up):
            connection, _, _ = name.removeprefix(self._up).partition("/")
            found.setdefault(connection, []).append(name)
        for name in [name for name, one in self._connections.items() if not one.is_alive()]:
            del self._connections[name]
            self._ended.add(name)
        for name, parts in found.items():
            if name in self._ended or self._begins_late(name, parts):
                for part in parts:
                    self._bucket.delete(part)
                continue
            if name not in self._connections:
                if len(self._connections) >= _MOST:
                    continue  # it waits in the bucket
                self._connections[name] = self._connect(name)
            if self._connections[name].found(parts[-1]):
                self._active_at = time.monotonic()

    def _begins_late(self, name: str, parts: list[str]) -> bool:
        """Whether a connection is not known, and its first part is gone."""
        first = tunnel.part_name(self._up, name, 1)
        return name not in self._connections and parts[0] != first

    def _connect(self, name: str) -> _Connection:
        """A node has opened a connection. Raises OSError."""
        sock = socket.create_connection(("127.0.0.1", self._port))
        objects = _Parts(self._bucket, self._moved)
        end = End(
            *(sock, objects, name, self._down, self._up),
            is_served=lambda: not self._closed,
            report=self._report_change,
        )
        return _Connection(objects, end)


class _Parts:
    """The parts of a connection, see `node.tunnel.Objects`.

    moved: called when something was sent.
    """

    def __init__(self, bucket: Bucket, moved: Callable[[], object]) -> None:
        self._bucket, self._moved = bucket, moved
        #: The last part that was found: names sort as parts do.
        self.newest = ""

    def put(self, name: str, content: bytes) -> None:
        """See `Objects`, as of the others."""
        with _unavailable():
            self._bucket.put(name, content)
        self._moved()

    def get(self, name: str) -> bytes | None:
        """Does not ask for what was not found."""
        if name > self.newest:
            return None
        with _unavailable():
            return self._bucket.get(name)

    def discard(self, name: str) -> None:
        """Delete it now. What cannot be deleted is with the folder, later."""
        with contextlib.suppress(CannotRun):
            self._bucket.delete(name)


class _Connection:
    """A connection that a thread carries."""

    def __init__(self, parts: _Parts, end: End) -> None:
        self._parts, self._end = parts, end
        self._thread = threading.Thread(target=self._carry, name="tunnel connection", daemon=True)
        self._thread.start()

    def found(self, newest: str) -> bool:
        """There are parts up to this one. Returns whether that is new."""
        if newest <= self._parts.newest:
            return False
        self._parts.newest = newest
        self._end.wake()
        return True

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait for its end."""
        self._end.wake()
        self._thread.join()

    def _carry(self) -> None:
        with contextlib.suppress(BadPart):  # a stranger has written it: the node dials again
            self._end.run()


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    """Turn a CannotRun in the block into Unavailable."""
    try:
        yield
    except CannotRun as error:
        raise Unavailable(str(error)) from None
