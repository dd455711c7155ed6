"""Forward connections to a port of a node on another machine."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from threading import Event, Thread

from muster.engines.base import RunningNode
from muster.engines.remote.client import Client
from muster.errors import EngineError
from muster.escapes import visible_line
from muster.node.port_streams import Carrier
from muster.node.streams import Stream

#: Seconds for the thread to end.
_TIMEOUT = 10.0


def forward(
    node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
) -> RemoteForward:
    """See `Engine.forward`."""
    client = Client(node.folder)
    try:
        return RemoteForward(client, node.rank, hosts, port, listener)
    except BaseException:
        client.close()
        raise


class RemoteForward:
    """See `engines.base.PortForward`. client: its own. Raises EngineError."""

    def __init__(
        self,
        client: Client,
        rank: int,
        hosts: Sequence[str],
        port: int,
        listener: socket.socket,
    ) -> None:
        self._client = client
        self._rank, self._hosts, self._port = rank, list(hosts), port
        self._failure = ""
        self._closed = False
        self._ended = Event()
        self._connections: dict[Stream, _Connection] = {}
        self._node = client.open(rank, "node")
        client.until(lambda: bool(self._node.take() or self._node.canceled))
        if self._node.canceled:
            raise EngineError(f"cannot forward to node-{rank}: {self._node.canceled}")
        self._listener = listener.dup()
        self._listener.setblocking(False)
        self._participant = client.loop.add(self._accept)
        self._participant.watch(self._listener.fileno())
        client.on_change(lambda _: self._step())
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """See `PortForward.wait`."""
        self._ended.wait()
        if self._failure:
            raise EngineError(f"cannot forward to node-{self._rank}: {self._failure}")

    def close(self) -> None:
        """See `PortForward.close`."""
        self._client.loop.post(self._close)
        self._thread.join(_TIMEOUT)

    def _close(self) -> None:
        self._closed = True

    # --- in the thread of the loop

    def _run(self) -> None:
        try:
            while not self._closed and not self._failure and self._node.result is None:
                self._client.loop.run_once()
        except Exception as bug:
            self._failure = repr(bug)
            raise
        finally:
            self._participant.close()
            self._listener.close()
            for connection in self._connections.values():
                connection.close()
            self._client.close()
            self._ended.set()

    def _accept(self, _ready: Mapping[int, int]) -> None:
        with contextlib.suppress(OSError):  # it is gone already
            sock, _ = self._listener.accept()
            about = {"port": self._port, "hosts": self._hosts}
            stream = self._client.open(self._rank, "connect", **about)
            self._connections[stream] = _Connection(self._client, stream, sock)
            self._client.wake()

    def _step(self) -> None:
        self._node.take()
        if self._node.canceled:
            self._failure = self._client.lost or self._node.canceled
            return
        for stream, connection in [*self._connections.items()]:
            connection.step({})
            if connection.done:
                del self._connections[stream]
                if stream.canceled and not connection.broken:
                    why = visible_line(stream.canceled)
                    sys.stderr.write(f"muster: port {self._port} of the node: {why}\n")


class _Connection:
    """A connection, and its stream to the node."""

    def __init__(self, client: Client, stream: Stream, sock: socket.socket) -> None:
        self._client, self._stream = client, stream
        sock.setblocking(False)
        self._carrier = Carrier(sock, stream)
        #: Whether it is over; and whether the end here was the first one to break.
        self.done = self.broken = False
        self._participant = client.loop.add(self.step)
        self._participant.notify()

    def step(self, _ready: Mapping[int, int]) -> None:
        """Pass on what is possible."""
        if self.done:
            return
        try:
            self._carrier.read()
            self._carrier.write()
        except OSError:
            self.broken = True
            self._stream.cancel("the connection was lost")
        self._client.wake()
        if self._stream.canceled or self._carrier.done:
            self.close()
        else:
            self._wait()

    def close(self) -> None:
        """Close the connection. May be repeated."""
        self.done = True
        self._participant.close()
        self._carrier.sock.close()

    def _wait(self) -> None:
        carrier = self._carrier
        number = carrier.sock.fileno()
        if carrier.reads or carrier.writes:
            self._participant.watch(number, read=carrier.reads, write=carrier.writes)
        else:
            self._participant.unwatch(number)
