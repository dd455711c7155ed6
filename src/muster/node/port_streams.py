"""Connects streams with ports of the node, such as those of `muster open`.

What a stream is about:

    kind    "connect"
    port
    hosts   addresses to try, in order, before that of the node; they may be left out

Either end closes its direction by being done.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from typing import Any, Dict, List, Tuple

from muster.node.command_streams import NO_PROGRAM, Program
from muster.node.streams import Stream

_CHUNK = 1 << 16
_IN_PROGRESS = (errno.EINPROGRESS, errno.EALREADY, errno.EINTR)
_CONNECTED = (0, errno.EISCONN)


class PortStreams:
    """The connections to ports."""

    def __init__(self) -> None:
        self._connections: Dict[Stream, _Forwarded] = {}

    def add(self, stream: Stream, program: Program | None) -> None:
        """Connect to a port. program: that of the node; None if none runs."""
        port, hosts = stream.about.get("port"), stream.about.get("hosts", [])
        if type(port) is not int or not 0 < port < 1 << 16:
            stream.cancel("a port is a number from 1 to 65535")
            return
        if program is None:
            stream.cancel(NO_PROGRAM)
            return
        try:
            addresses = [_address(host, port) for host in (*hosts, program.address)]
        except (TypeError, ValueError, OSError):  # a name would have to be looked up
            stream.cancel("the hosts of a port are IP addresses")
            return
        try:
            self._connections[stream] = _Forwarded(stream, addresses)
        except OSError as error:
            stream.cancel(error.strerror or str(error))

    def interest(self) -> Dict[int, int]:
        """What to wait for: descriptor -> events of `select.poll`."""
        found: Dict[int, int] = {}
        for connection in self._connections.values():
            found.update(connection.interest())
        return found

    def step(self) -> None:
        """Do what is possible now."""
        for stream, connection in list(self._connections.items()):
            try:
                done = connection.step()
            except OSError as error:
                stream.cancel(error.strerror or str(error))
                done = True
            if done or stream.canceled:
                connection.close()
                del self._connections[stream]

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


#: The family of a socket, and what it connects to.
_Address = Tuple[int, Tuple[str, int]]


def _address(host: Any, port: int) -> _Address:
    """Raises TypeError, ValueError, OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    socket.inet_pton(family, host)
    return family, (host, port)


class _Forwarded:
    """A connection to a port. addresses: to try, in order. Raises OSError."""

    def __init__(self, stream: Stream, addresses: List[_Address]) -> None:
        self._stream = stream
        self._addresses = addresses
        self._carrier = Carrier(self._open(), stream)
        self._connected = False

    def _open(self) -> socket.socket:
        sock = socket.socket(self._addresses[0][0])
        sock.setblocking(False)
        return sock

    def interest(self) -> Dict[int, int]:
        carrier = self._carrier
        events = select.POLLOUT if not self._connected or carrier.writes else 0
        if self._connected and carrier.reads:
            events |= select.POLLIN
        return {carrier.sock.fileno(): events} if events else {}

    def step(self) -> bool:
        """Returns whether both directions are closed. Raises OSError."""
        while not self._connected:
            error = self._carrier.sock.connect_ex(self._addresses[0][1])
            if error in _IN_PROGRESS:
                return False
            self._connected = error in _CONNECTED
            if not self._connected:
                self._try_next(error)
        self._carrier.write()
        self._carrier.read()
        return self._carrier.done

    def _try_next(self, error: int) -> None:
        """Raises OSError if this was the last address. error: why it is not connected."""
        del self._addresses[0]
        if not self._addresses:
            raise OSError(error, os.strerror(error))
        self._carrier.sock.close()
        self._carrier = Carrier(self._open(), self._stream)

    def close(self) -> None:
        self._carrier.sock.close()


class Carrier:
    """Carries bytes both ways between a connected socket, which is non-blocking, and a stream."""

    def __init__(self, sock: socket.socket, stream: Stream) -> None:
        self.sock = sock
        self._stream = stream
        self._data = b""  # to be written
        self._written_all = self._read_all = False

    @property
    def reads(self) -> bool:
        """Whether to wait until the socket is readable."""
        return not self._read_all and self._stream.room > 0

    @property
    def writes(self) -> bool:
        """Whether to wait until the socket is writable."""
        return bool(self._data)

    @property
    def done(self) -> bool:
        """Whether both directions are closed."""
        return self._written_all and self._read_all

    def write(self) -> None:
        """Write what has arrived on the stream, as far as possible now. Raises OSError."""
        while not self._written_all:
            self._data = self._data or self._stream.take()
            if not self._data:
                if self._stream.result is not None:
                    self._written_all = True
                    self.sock.shutdown(socket.SHUT_WR)
                return
            try:
                self._data = self._data[self.sock.send(self._data) :]
            except BlockingIOError:
                return

    def read(self) -> None:
        """Read what there is room for on the stream, as far as possible now. Raises OSError."""
        while not self._read_all and self._stream.room:
            try:
                data = self.sock.recv(min(_CHUNK, self._stream.room))
            except BlockingIOError:
                return
            self._stream.send(data)
            if not data:
                self._read_all = True
                self._stream.finish({})
