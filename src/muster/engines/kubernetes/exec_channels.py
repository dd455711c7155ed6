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

#: Seconds between two pings where nothing is received, and how many may have no answer: proxies
#: close connections on which nothing is sent, and one that is dead would never end.
_PING_PAUSE, _MOST_PINGS = 10.0, 6


class ExecChannels:
    """Methods may be called from several threads, and raise OSError if the stream has ended."""

    def __init__(self, opened: Opened) -> None:
        self._sock, self._protocol, self._frames = opened.sock, opened.protocol, opened.frames
        self._lock = threading.Lock()  # of a connection with TLS, one thread may use at a time
        self._unsent = bytearray()
        self._pings = 0  # without an answer

    def send(self, channel: int, data: bytes) -> None:
        """Send a message, and wait until it is on its way."""
        from websockets.protocol import State

        with self._lock:
            if self._protocol.state is not State.OPEN:
                raise ConnectionError("the stream has ended")
            self._protocol.send_binary(bytes([channel]) + data)
        self._flush()

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
            self._flush()  # the answer to a ping

    def interrupt(self) -> None:
        """End the stream: `messages` returns soon. May be repeated."""
        with contextlib.suppress(OSError):  # it has ended
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free what it has. No other call may follow, or be in progress."""
        self._sock.close()

    def _receive(self) -> tuple[bytes, list[object]]:
        while True:
            with self._lock:
                try:
                    data = self._sock.recv(CHUNK)
                except BLOCKED:
                    pass
                else:
                    self._pings = 0
                    if data:
                        self._protocol.receive_data(data)
                    else:
                        self._protocol.receive_eof()
                    return data, [*self._protocol.events_received()]
            if not self._wait(select.POLLIN, _PING_PAUSE):
                self._ping()

    def _ping(self) -> None:
        if self._pings >= _MOST_PINGS:
            raise TimeoutError(f"nothing was heard of it for {_PING_PAUSE * _MOST_PINGS:g} s")
        self._pings += 1
        with self._lock:
            self._protocol.send_ping(b"")
        self._flush()

    def _flush(self) -> None:
        while True:
            with self._lock:
                for part in self._protocol.data_to_send():
                    self._unsent += part
                if not self._unsent:
                    return
                try:
                    del self._unsent[: self._sock.send(bytes(self._unsent[:CHUNK]))]
                    continue
                except BLOCKED:
                    pass
            self._wait(select.POLLOUT)

    def _wait(self, events: int, seconds: float | None = None) -> bool:
        """Returns whether one of the events has happened."""
        poll = select.poll()
        poll.register(self._sock, events)
        return bool(poll.poll(None if seconds is None else seconds * 1000))
