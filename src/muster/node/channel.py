"""Messages over a connected stream socket: one JSON object a line, both ways."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any, List, Type, TypeVar, Union, overload

from muster.node.messages import InvalidMessage, Message, decode, encode

M = TypeVar("M")
N = TypeVar("N")


class Channel:
    """One end of a connected stream socket.

    On a non-blocking socket no method blocks. `wait_for` needs a blocking one. An invalid message
    ends the stream, because nothing after it can be trusted; messages before it are received.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._partial = b""
        self._unsent = b""
        self._pending: List[Message] = []
        #: Whether the end of the stream was reached.
        self.closed = False
        #: The error of the invalid message that ended the stream; None if there was none.
        self.invalid: InvalidMessage | None = None

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: Message) -> None:
        """Send a message; nothing if the other end has closed the connection.

        A closed connection is reported by `receive`, after the messages that arrived before.
        """
        data = json.dumps(encode(message)).encode() + b"\n"
        if self._sock.gettimeout() == 0:
            self._unsent += data
            self.flush()
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._sock.sendall(data)

    @property
    def unsent(self) -> bool:
        """Whether data is left that the socket did not accept: call `flush` when writable."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send data that the socket did not accept."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._unsent = b""

    def receive(self) -> List[Message]:
        """The messages that have arrived; call when readable. Sets `closed` at the end of the
        stream, and `invalid` if an invalid message ends it."""
        self._read()
        return self.pop_pending()

    def drain(self) -> List[Message]:
        """All messages of a sender that has ended; for a non-blocking socket.

        Do not wait for the end of the stream instead: another process may hold the sender's end
        open, such as a child of the sender that was stopped before its exec.
        """
        while not self.closed and self._read():
            pass
        return self.pop_pending()

    def _read(self) -> bool:
        """Read once. Returns whether there were data, or the end of the stream."""
        if self.invalid is not None:
            return False
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
        *lines, self._partial = (self._partial + data).split(b"\n")
        try:
            for line in lines:
                self._pending.append(_parse(line))
        except InvalidMessage as error:
            self.closed, self.invalid = True, error
        return True

    @overload
    def wait_for(self, kind: Type[M], /, *, keep_earlier: bool = True) -> M: ...

    @overload
    def wait_for(
        self, kind: Type[M], other: Type[N], /, *, keep_earlier: bool = True
    ) -> Union[M, N]: ...

    def wait_for(self, *kinds: Type[Any], keep_earlier: bool = True) -> Any:
        """Block until a message of one of these types arrives; other messages stay pending.
        keep_earlier: also those before it.

        Raises EOFError if the other end closes the connection first, InvalidMessage if an invalid
        message arrives first.
        """
        kept: List[Message] = []
        while self._pending or not self.closed:
            messages = self.pop_pending() or self.receive()
            for place, message in enumerate(messages):
                if isinstance(message, kinds):
                    earlier = kept + messages[:place] if keep_earlier else []
                    self._pending = earlier + messages[place + 1 :]
                    return message
            kept += messages
        if self.invalid is not None:
            raise self.invalid
        raise EOFError("no %s message" % " or ".join(kind.__name__ for kind in kinds))

    def pop_pending(self) -> List[Message]:
        """The messages that `wait_for` has skipped."""
        pending, self._pending = self._pending, []
        return pending

    def close(self) -> None:
        self._sock.close()


def _parse(line: bytes) -> Message:
    """The message of one line. Raises InvalidMessage."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("not JSON: %s: %.200r" % (error, line)) from None
    return decode(data)
