"""The standard streams of a program in a pod, over an exec stream of the API server: a WebSocket
that is read and written where its connection is, in the thread of the run's loop.

There may be one for each of thousands of pods. With asyncio, one takes 325 KB, most of it buffers
for TLS, and each of its bytes goes through another thread; here it takes a tenth, and one
descriptor.

Kubernetes: in the protocol v5.channel.k8s.io, the first byte of each message is a channel, and a
message in channel 255 closes one. The standard error of the program and the status in channel 3 say
why a stream has ended.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.engines.kubernetes.access import Access
from muster.node.connection import Pipes

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.frames import Frame

_PROTOCOL = "v5.channel.k8s.io"
#: The channels.
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
#: Seconds until a stream has to be open.
_OPEN_TIMEOUT = 30.0
#: Bytes of a read, of what waits to be written before no more is taken, of what is kept of standard
#: error, and of a message of the API server.
CHUNK, _MOST_WAITING, _MOST_ERROR, _MOST_MESSAGE = 1 << 16, 1 << 18, 4096, 1 << 22
#: What says that a call would block.
BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Ending(Struct, frozen=True):
    """How a stream has ended."""

    #: What the API server says in the channel of the status; None: nothing.
    status: bytes | None = None
    #: The end of what the program has written to standard error.
    error: bytes = b""
    #: Why it could not be opened, or was cut off; None: neither.
    failure: Exception | None = None


class Opened(Struct, frozen=True):
    """A stream that is up."""

    sock: socket.socket
    protocol: ClientProtocol
    #: Those that have arrived already.
    frames: list[Frame]


class ExecPipes(Pipes):
    """A stream. Its end is an OSError.

    why: called with how it has ended, for the text of that.
    """

    def __init__(self, why: Callable[[Ending], str]) -> None:
        # until it is up, this is what is waited for; then both are closed
        self._up, self._set_up = os.pipe()
        self._watches_stream = False
        self.reading = self.writing = self._up
        self._why = why
        self._lock = threading.Lock()
        self._result: Opened | Exception | None = None  # of the thread that opens it
        self._stream: Opened | None = None
        self._incoming, self._unsent = bytearray(), bytearray()
        self._message = b""  # the first frames of one
        self._status: bytes | None = None
        self._error = b""
        self._has_ended = self._is_closed = False

    def set_result(self, result: Opened | Exception) -> None:
        """It is up, or cannot be opened. In any thread."""
        with self._lock:
            if not self._is_closed:
                self._result = result
                os.write(self._set_up, b"!")
            elif isinstance(result, Opened):
                result.sock.close()

    # --- as a transport, in one thread

    @property
    def waits_to_write(self) -> bool:
        """See `Pipes`. Also if there is more to read that no poll reports."""
        stream = self._stream
        if stream is None:
            return False
        self._watches_stream = True  # from now on
        more = isinstance(stream.sock, ssl.SSLSocket) and stream.sock.pending() > 0
        return bool(self._unsent or self._incoming or self._has_ended or more)

    def recv(self, size: int) -> bytes:
        """See `Pipes`."""
        stream = self._begin()
        self._flush(stream)
        while len(self._incoming) < size and not self._has_ended and self._fill(stream):
            pass
        if not self._incoming:
            if self._has_ended:
                raise OSError(self._why(Ending(self._status, self._error)))
            raise BlockingIOError
        data = bytes(self._incoming[:size])
        del self._incoming[:size]
        return data

    def send(self, data: bytes) -> int:
        """See `Pipes`."""
        stream = self._begin()
        self._flush(stream)
        if len(self._unsent) >= _MOST_WAITING:
            raise BlockingIOError
        stream.protocol.send_binary(bytes([STDIN]) + data)
        self._flush(stream)
        return len(data)

    def close(self) -> None:
        """See `Pipes`."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            result = self._result
        stream = self._stream or (result if isinstance(result, Opened) else None)
        if stream is not None:
            with contextlib.suppress(OSError):  # the other end need not hear it
                if not self._has_ended:
                    stream.protocol.send_binary(bytes([CLOSE, STDIN]))
                    stream.protocol.send_close(1000)
                    self._flush(stream)
            stream.sock.close()
        self._close_pipe()
        self.reading = self.writing = -1

    def _close_pipe(self) -> None:
        for descriptor in {self._up, self._set_up} - {-1}:
            os.close(descriptor)
        self._up = self._set_up = -1

    def _begin(self) -> Opened:
        """Raises BlockingIOError if it is not up; OSError."""
        if self._watches_stream:
            self._close_pipe()  # not earlier: nobody may wait for it then
        if self._stream is None:
            with self._lock:
                result = self._result
            if result is None:
                raise BlockingIOError
            if isinstance(result, Exception):
                raise OSError(self._why(Ending(failure=result)))
            self._stream = result
            self.reading = self.writing = result.sock.fileno()
            self._take(result.frames)
        return self._stream

    def _flush(self, stream: Opened) -> None:
        """Write what is possible now. Raises OSError."""
        for part in stream.protocol.data_to_send():
            self._unsent += part
        while self._unsent:
            try:
                sent = stream.sock.send(bytes(self._unsent[:CHUNK]))
            except BLOCKED:
                return
            except OSError as error:
                self._has_ended = True
                raise OSError(self._why(Ending(self._status, self._error, error))) from None
            del self._unsent[:sent]

    def _fill(self, stream: Opened) -> bool:
        """Read what has arrived. Returns whether there may be more. Raises OSError."""
        try:
            data = stream.sock.recv(CHUNK)
        except BLOCKED:
            return False
        except OSError as error:
            raise OSError(self._why(Ending(self._status, self._error, error))) from None
        if data:
            stream.protocol.receive_data(data)
        else:
            stream.protocol.receive_eof()
            self._has_ended = True
        self._take(stream.protocol.events_received())
        self._flush(stream)  # the answer to a ping
        return bool(data)

    def _take(self, events: Iterable[object]) -> None:
        from websockets.frames import Frame, Opcode

        for frame in events:
            if not isinstance(frame, Frame):
                continue
            if frame.opcode is Opcode.CLOSE:
                self._has_ended = True
            elif frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                self._message += bytes(frame.data)
                if frame.fin:
                    message, self._message = self._message, b""
                    self._take_message(message)

    def _take_message(self, message: bytes) -> None:
        channel, rest = message[:1], message[1:]
        if channel == bytes([STDOUT]):
            self._incoming += rest
        elif channel == bytes([STDERR]):
            self._error = (self._error + rest)[-_MOST_ERROR:]
        elif channel == bytes([STATUS]):
            self._status, self._has_ended = rest, True


# --- opening, in a thread


def open_stream(access: Access, path: str) -> Opened:
    """Open a stream, in time as a whole: the timeout of a socket starts again with each byte.
    Raises OSError, CannotCall, websockets' InvalidHandshake."""
    from websockets.client import ClientProtocol
    from websockets.typing import Subprotocol
    from websockets.uri import parse_uri

    uri = parse_uri(access.url.replace("http", "ws", 1) + path)
    deadline = time.monotonic() + _OPEN_TIMEOUT
    sock = _connect(access, uri.host, uri.port)
    try:
        if access.ssl is not None:
            sock.settimeout(_left(deadline))
            sock = access.ssl.wrap_socket(sock, server_hostname=access.server_name or uri.host)
        protocol = ClientProtocol(
            uri, subprotocols=[Subprotocol(_PROTOCOL)], max_size=_MOST_MESSAGE
        )
        frames = _upgrade(sock, protocol, access, deadline)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return Opened(sock, protocol, frames)


def _left(deadline: float) -> float:
    """Seconds until then. Raises TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _upgrade(
    sock: socket.socket, protocol: ClientProtocol, access: Access, deadline: float
) -> list[Frame]:
    """Have a connection become a WebSocket. Returns the frames that have arrived with that. Raises
    OSError, InvalidHandshake."""
    from websockets.frames import Frame

    request = protocol.connect()
    for name, value in access.headers:
        request.headers[name] = value  # adds one
    protocol.send_request(request)
    sock.settimeout(_left(deadline))
    sock.sendall(b"".join(protocol.data_to_send()))
    while True:
        sock.settimeout(_left(deadline))
        data = sock.recv(CHUNK)
        if data:
            protocol.receive_data(data)
        else:
            protocol.receive_eof()
        events = protocol.events_received()
        if protocol.handshake_exc is not None:
            raise protocol.handshake_exc
        if events:  # the first one is the answer
            return [one for one in events if isinstance(one, Frame)]
        if not data:
            raise ConnectionError("the connection was closed")


def _connect(access: Access, host: str, port: int) -> socket.socket:
    """Connect, through a proxy if there is one. Raises OSError, CannotCall."""
    if access.proxy is None:
        sock = socket.create_connection((host, port), _OPEN_TIMEOUT)
    else:
        from http.client import HTTPConnection

        from urllib3.util import parse_url

        from muster.engines.kubernetes.answer_deadlines import Response, complete_within

        proxy = parse_url(access.proxy)
        name = (proxy.host or "").strip("[]")
        way = HTTPConnection(name, proxy.port or 80, timeout=_OPEN_TIMEOUT)
        way.response_class = Response
        way.set_tunnel(host, port, access.proxy_headers)
        try:
            with complete_within(_OPEN_TIMEOUT, f"CONNECT at the proxy {name}", is_stream=False):
                way.connect()
        except BaseException:
            way.close()
            raise
        sock = way.sock
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
