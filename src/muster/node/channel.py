"""Messages between a node and whoever drives the run: one JSON object a line, both ways."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any, Dict, List

Message = Dict[str, Any]


class Channel:
    """One end of a connected stream socket.

    On a socket that does not block, no call waits but `wait_for`, which is for the other kind.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._partial = b""
        self._unsent = b""
        self._waiting: List[Message] = []
        self.closed = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, **message: Any) -> None:
        """Send one message; nothing if the other end is gone. That is seen on receive, once all
        it had to say before has been heard."""
        data = json.dumps(message).encode() + b"\n"
        if self._sock.gettimeout() == 0:
            self._unsent += data
            self.flush()
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._sock.sendall(data)

    @property
    def unsent(self) -> bool:
        """Whether there was no room for all that was sent: call `flush` when writable."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send what there was no room for."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._unsent = b""

    def receive(self) -> List[Message]:
        """What has arrived; call when readable. Sets `closed` at the end of the stream."""
        self._take()
        return self.take_waiting()

    def drain(self) -> List[Message]:
        """All that has arrived from a sender that is gone, on a socket that does not block. The
        stream need not end: others may hold the sender's end, as a child of its does that was
        stopped before it became another program."""
        while not self.closed and self._take():
            pass
        return self.take_waiting()

    def _take(self) -> bool:
        """Take in what has arrived, or the end. Whether there was either."""
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._waiting += [json.loads(line) for line in lines]
        return True

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
