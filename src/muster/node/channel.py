"""Messages between a node and whoever drives the run: one JSON object a line, both ways."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any, Dict, List

Message = Dict[str, Any]


class Channel:
    """One end of a connected stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._partial = b""
        self._waiting: List[Message] = []
        self.closed = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, **message: Any) -> None:
        """Send one message; nothing if the other end is gone. That is seen on receive, once all
        it had to say before has been heard."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._sock.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> List[Message]:
        """What has arrived; call when readable. Sets `closed` at the end of the stream."""
        try:
            data = self._sock.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
        *lines, self._partial = (self._partial + data).split(b"\n")
        messages = self._waiting + [json.loads(line) for line in lines]
        self._waiting = []
        return messages

    def wait_for(self, op: str) -> Message:
        """Block for a message of this kind; others that came before or with it are kept.

        Raises EOFError if the other end goes away first.
        """
        kept: List[Message] = []
        while not self.closed:
            messages = self.receive()
            for place, message in enumerate(messages):
                if message["op"] == op:
                    self._waiting = kept + messages[:place] + messages[place + 1 :]
                    return message
            kept += messages
        raise EOFError(op)

    def take_waiting(self) -> List[Message]:
        """Messages `wait_for` has left."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def close(self) -> None:
        self._sock.close()
