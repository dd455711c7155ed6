"""Messages between a supervisor and an agent, over connections that may break.

A `Link` is one end of a conversation that goes over one connection after another
(`node.connection`). Messages are numbered from 1, and kept until the other end has received them.
When a new connection is up, both ends know what the other has received (`node.greeting`), and send
again what it lacks: so each message arrives exactly once, and in order. It has arrived when `take`
returns it: the owner must not drop it.

A link does no I/O.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from typing import Any, Callable, Deque, Dict, Tuple

from muster.node.messages import InvalidMessage, Message, decode, encode

_NUMBER = struct.Struct(">Q")
#: Bytes of an encoded message: a launch message has the environment of its node.
MAX_MESSAGE = 16 << 20


class LinkError(ValueError):
    """What the other end has sent, or says that it has received, is not possible."""


class Link:
    """One end of a conversation. session: its id, which the supervisor chooses. check: raises
    InvalidMessage for what this end does not take."""

    def __init__(self, session: str, check: Callable[[Message], None] | None = None) -> None:
        self.session = session
        self._check = check
        #: The number of the last message that was received.
        self.received = 0
        #: Bytes of messages of which it is not known that they have arrived.
        self.unacknowledged = 0
        self._sent = 0  # the number of the last message of this end
        self._kept: Deque[Tuple[int, bytes]] = deque()  # not acknowledged, the oldest first
        self._next = 1  # the number of the next message to write on the connection
        self._written = 0  # the highest number that was written on any connection
        self._acknowledged = 0  # the last `received` that was sent on the present connection
        self._carrier: object = None  # the connection; None if there is none

    @property
    def fresh(self) -> bool:
        """Whether nothing is known to have arrived, on either side."""
        return self.received == 0 and self._sent == len(self._kept)

    # --- connections

    def attach(self, carrier: object, received: int) -> None:
        """A connection carries the conversation from now on, and not another one any more.

        received: the number of messages that the other end has received. Raises LinkError if that
        cannot be, or it had received more before.
        """
        if received < self._sent - len(self._kept):
            raise LinkError("it has lost messages that it had received")
        self._forget(received)
        self._carrier, self._next, self._acknowledged = carrier, received + 1, 0

    def detach(self, carrier: object = None) -> None:
        """The connection is lost, if it is still the one that carries the conversation. None: the
        conversation has ended, and no connection carries it any more."""
        if carrier is None or self._carrier is carrier:
            self._carrier = None

    def carried_by(self, carrier: object) -> bool:
        """Whether this connection carries the conversation."""
        return self._carrier is carrier

    # --- sending

    def send(self, message: Message) -> None:
        """Send a message: now, or when there is a connection. Raises LinkError if it is too large;
        it is not sent then."""
        data = json.dumps(encode(message)).encode()
        if len(data) > MAX_MESSAGE - _NUMBER.size:
            raise LinkError("a message of %d bytes is too large" % len(data))
        self._sent += 1
        self._kept.append((self._sent, _NUMBER.pack(self._sent) + data))
        self.unacknowledged += len(data)

    def next_message(self) -> bytes | None:
        """The content of the next frame with a message to write; None if there is none."""
        if not self._kept or self._next > self._sent:
            return None
        number, data = self._kept[self._next - self._kept[0][0]]
        self._next, self._written = number + 1, max(self._written, number)
        return data

    def next_acknowledgment(self) -> bytes | None:
        """The content of a frame that says what was received; None if the other end knows it."""
        if self._acknowledged == self.received:
            return None
        self._acknowledged = self.received
        return _NUMBER.pack(self.received)

    # --- receiving

    def take(self, content: bytes) -> Message | None:
        """The message of a frame; None if it was received before. Raises LinkError."""
        number = _number(content)
        if number <= self.received:
            return None
        if number != self.received + 1:
            raise LinkError("message %d after message %d" % (number, self.received))
        try:
            message = decode(json.loads(content[_NUMBER.size :]))
            if self._check is not None:
                self._check(message)
        except (InvalidMessage, ValueError, RecursionError) as error:
            raise LinkError("message %d is invalid: %.200s" % (number, error)) from None
        self.received = number
        return message

    def take_acknowledgment(self, content: bytes) -> None:
        """The other end says what it has received. Raises LinkError."""
        self._forget(_number(content))

    def _forget(self, number: int) -> None:
        if not 0 <= number <= self._written:
            raise LinkError("%d messages are acknowledged, %d were sent" % (number, self._written))
        while self._kept and self._kept[0][0] <= number:
            _, data = self._kept.popleft()
            self.unacknowledged -= len(data) - _NUMBER.size
        self._next = max(self._next, number + 1)


def json_object(content: bytes, otherwise: str) -> Dict[str, Any]:
    """The JSON object that a frame holds. Raises LinkError, with the text `otherwise`, if it holds
    something else."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise LinkError(otherwise)
    return data


def _number(content: bytes) -> int:
    if len(content) < _NUMBER.size:
        raise LinkError("a frame without a number")
    (number,) = _NUMBER.unpack_from(content)
    return int(number)
