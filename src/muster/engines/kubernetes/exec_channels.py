"""The channels of an exec stream, for a command whose standard streams are those of a process here:
several threads send and receive, and wait until they can.

`exec_pipes` has the protocol, and streams for the loop of a run.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Iterator

from muster.engines.kubernetes.exec_pipes import (
    BLOCKED,
    CHUNK,
    CLOSE,
    RESIZE,
    STDIN,
    Opened,
)

#: Seconds between two pings where nothing is received: proxies close connections on which nothing
#: is sent. None has to be answered, as nobody reads it behind input that the program does not read.
_PING_PAUSE = 10.0
#: A connection that is dead ends within minutes: seconds until the kernel asks the other side, and
#: between two tries, and how many there are.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel find out that the other side of a connection is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (number := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)


class ExecChannels:
    """Methods may be called from several threads, and raise OSError if the stream has ended."""

    def __init__(self, opened: Opened) -> None:
        self._sock, self._protocol, self._frames = opened.sock, opened.protocol, opened.frames
        self._lock = threading.Lock()  # of a connection with TLS, one thread may use at a time
        self._unsent = bytearray()

    def send(self, channel: int, data: bytes) -> None:
        """Send a message, and wait until there is room for all of it on the way."""
        from websockets.protocol import State

        with self._lock:
            if self._protocol.state is not State.OPEN:
                raise ConnectionError("the stream has ended")
            self._protocol.send_binary(bytes([channel]) + data)
        while not self._flush():
            self._wait(select.POLLOUT)

    def end_input(self) -> None:
        """The program has no more input."""
        self.send(CLOSE, bytes([STDIN]))

    def resize(self, rows: int, columns: int) -> None:
        """The terminal of the program has this size from now on."""
        self.send(RESIZE, json.dumps({"Width": columns, "Height": rows}).encode())

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Channel and content of what arrives, until the stream ends. Of one thread."""
        from websockets.frames import Frame, Opcode

        message, data, events = b"", b"x", list[object](self._frames)
        while True:
            for frame in events:
                if not isinstance(frame, Frame):
                    continue
                if frame.opcode is Opcode.CLOSE:
                    return
                if frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                    message += bytes(frame.data)
                    if frame.fin:
                        if message:
                            yield message[0], message[1:]
                        message = b""
            if not data:
                return
            data, events = self._receive()

    def interrupt(self) -> None:
        """End the stream: `messages` returns soon. May be repeated."""
        with contextlib.suppress(OSError):  # it has ended
            # that of TLS would also forget its keys, and another thread send in clear
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Free what it has. No other call may follow, or be in progress."""
        self._sock.close()

    def _receive(self) -> tuple[bytes, list[object]]:
        """Wait until something arrives. Meanwhile, answers to pings are sent, as far as there is
        room for them: a program that waits for its output to be read may not read its input."""
        from websockets.protocol import State

        while True:
            with contextlib.suppress(OSError):  # what has arrived before is read first
                self._flush()
            with self._lock:
                try:
                    data = self._sock.recv(CHUNK)
                except BLOCKED:
                    pass
                else:
                    if data:
                        self._protocol.receive_data(data)
                    else:
                        self._protocol.receive_eof()
                    return data, [*self._protocol.events_received()]
            if not self._wait(select.POLLIN, _PING_PAUSE):
                with self._lock:
                    if self._protocol.state is State.OPEN:
                        self._protocol.send_ping(b"")

    def _flush(self) -> bool:
        """Write what there is room for. Returns whether that is all."""
        with self._lock:
            for part in self._protocol.data_to_send():
                self._unsent += part
            try:
                while self._unsent:
                    del self._unsent[: self._sock.send(bytes(self._unsent[:CHUNK]))]
            except BLOCKED:
                return False
            return True

    def _wait(self, events: int, seconds: float | None = None) -> bool:
        """Returns whether one of the events has happened."""
        poll = select.poll()
        poll.register(self._sock, events)
        return bool(poll.poll(None if seconds is None else seconds * 1000))
