"""Carries TCP connections between processes that do not reach each other, through a bucket of
objects that both reach.

The node opens connections, as it would to its supervisor, and the supervisor finds them. What is in
them is as if they were direct: encrypted, and both ends are proven by it (`node.tls`). So whoever
reads the bucket learns nothing, and whoever writes to it can only break connections.

A run has a folder in the bucket, which ends with a slash:

    supervisor                               the session: a name of the supervisor that is there
    SESSION/up/CONNECTION/0000000001         parts of a connection, from the node
    SESSION/down/CONNECTION/0000000001       and to it

A bucket does not notify anybody of new objects, so both ends poll: often while something happens on
the connection, and about once a second when nothing does. The supervisor removes parts that have
arrived. Each part says how many of the other direction have: so no end is far ahead of the other.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from typing import Callable, NamedTuple, Protocol

#: Open files of one end of a connection.
OPEN_FILES = 3
#: The most bytes of data of a part; and the most parts that were sent and have not arrived.
MAX_DATA, WINDOW = 1 << 20, 16
#: After how many parts an end acknowledges them, if it has no data to send.
_ACKNOWLEDGE_AFTER = WINDOW // 2
#: Seconds between two looks: at least, at most, and their share of the time since something has
#: happened.
_LEAST_PAUSE, _MOST_PAUSE, _SHARE = 0.02, 1.0, 0.5
#: Seconds until something is tried again that has failed: at first, and at most.
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 10.0
#: Seconds to try to send the last part of a connection.
_CLOSE_TIMEOUT = 30.0
#: Whether it is the last one, and how many of the other direction have arrived.
_HEADER = struct.Struct(">?Q")
#: The most bytes of an object. What is read of a larger one, which is of a stranger, is one more.
MAX_PART = _HEADER.size + MAX_DATA


class Unavailable(Exception):  # noqa: N818
    """The bucket cannot be used at the moment. The text says why."""


class BadPart(Exception):  # noqa: N818
    """An object is no part of a connection."""


class Part(NamedTuple):
    """The content of one object: a piece of one direction of a connection."""

    #: How many parts of the other direction have arrived.
    received: int
    data: bytes = b""
    #: Whether the connection ends after it.
    last: bool = False


def encode(part: Part) -> bytes:
    """The content of the object."""
    return _HEADER.pack(part.last, part.received) + part.data


def decode(content: bytes) -> Part:
    """The part in an object. Raises BadPart."""
    if not _HEADER.size <= len(content) <= MAX_PART:
        raise BadPart("it has %d bytes" % len(content))
    last, received = _HEADER.unpack_from(content)
    return Part(received, content[_HEADER.size :], last)


def supervisor_name(folder: str) -> str:
    """The object that says which session there is."""
    return "%ssupervisor" % folder


def up_folder(folder: str, session: str) -> str:
    """Where parts from nodes are."""
    return "%s%s/up/" % (folder, session)


def down_folder(folder: str, session: str) -> str:
    """Where parts to nodes are."""
    return "%s%s/down/" % (folder, session)


def part_name(folder: str, connection: str, number: int) -> str:
    """A part of a connection. Names of one connection sort as its parts do. folder: of one
    direction."""
    return "%s%s/%010d" % (folder, connection, number)


def pause_after(idle: float) -> float:
    """Seconds until the next look. idle: seconds since something has happened."""
    return min(max(idle * _SHARE, _LEAST_PAUSE), _MOST_PAUSE)


class Objects(Protocol):
    """The objects of a bucket, as one end of a connection uses them. Calls block, and raise
    Unavailable."""

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""

    def get(self, name: str) -> bytes | None:
        """The content of an object; None if it does not exist."""

    def discard(self, name: str) -> None:
        """Delete an object, now or later."""


class End:
    """One end of a connection: passes on what arrives at a socket, and at the bucket. It owns the
    socket. `run` returns when the connection has ended.

    sends, receives: the folders of both directions. is_served: whether the other end is
    there, as far as is known; it may raise Unavailable. report: gets why the bucket cannot be
    used, for people; "" when it can again.
    """

    def __init__(
        self,
        sock: socket.socket,
        objects: Objects,
        connection: str,
        sends: str,
        receives: str,
        is_served: Callable[[], bool],
        report: Callable[[str], object],
    ) -> None:
        sock.setblocking(False)
        self._socket, self._objects, self._connection = sock, objects, connection
        self._sends, self._receives = sends, receives
        self._is_served, self._report = is_served, report
        self._waking, self._wake = socket.socketpair()
        for one in (self._waking, self._wake):
            one.setblocking(False)
        #: Numbers of parts: sent and received; sent and acknowledged by the other end; received and
        #: acknowledged to it.
        self._sent = self._received = self._acknowledged = self._confirmed = 0
        self._sending: Part | None = None  # not yet written to the bucket
        self._arriving = b""  # not yet accepted by the socket
        self._closed_here = self._closed_there = self._sent_last = False
        self._give_up_at: float | None = None
        self._active_at = time.monotonic()
        self._retry = _FIRST_RETRY
        self._failed = False

    def wake(self) -> None:
        """Look now: there may be another part. From any thread."""
        with contextlib.suppress(BlockingIOError, OSError):  # it will look anyway, or has ended
            self._wake.send(b"x")

    def run(self) -> None:
        """Carry the connection until it ends. Raises BadPart if the bucket has something else."""
        try:
            while not self._has_ended():
                try:
                    if not self._is_served():
                        break
                    moved = self._send()
                    moved = self._receive() or moved
                except Unavailable as error:
                    self._failed = True
                    self._report(str(error))
                    self._wait(self._retry)
                    self._retry = min(2 * self._retry, _LONGEST_RETRY)
                    continue
                if self._failed:
                    self._failed, self._retry = False, _FIRST_RETRY
                    self._report("")
                if moved:
                    self._active_at = time.monotonic()
                else:
                    self._wait(pause_after(time.monotonic() - self._active_at))
        finally:
            for one in (self._socket, self._waking, self._wake):
                one.close()

    def _has_ended(self) -> bool:
        if self._give_up_at is not None and time.monotonic() >= self._give_up_at:
            return True
        return self._sent_last or (self._closed_there and not self._arriving)

    def _wait(self, seconds: float) -> None:
        """Until there is something to do; or for this long, after which there may be."""
        poll = select.poll()
        poll.register(self._waking, select.POLLIN)
        events = select.POLLIN if self._may_send() else 0
        events |= select.POLLOUT if self._arriving else 0
        if events and not self._failed:
            poll.register(self._socket, events)
        if self._waking.fileno() in [descriptor for descriptor, _ in poll.poll(1000 * seconds)]:
            self._waking.recv(4096)

    # --- from the socket to the bucket

    def _may_send(self) -> bool:
        return not self._closed_here and self._sent - self._acknowledged < WINDOW

    def _send(self) -> bool:
        """Returns whether something was sent."""
        if self._sending is None:
            self._sending = self._next_part()
        if self._sending is None:
            return False
        name = part_name(self._sends, self._connection, self._sent + 1)
        self._objects.put(name, encode(self._sending))
        self._sent += 1
        self._confirmed, self._sent_last = self._sending.received, self._sending.last
        self._sending = None
        return True

    def _next_part(self) -> Part | None:
        data = self._read() if self._may_send() else b""
        if self._closed_here:
            self._give_up_at = time.monotonic() + _CLOSE_TIMEOUT
            return Part(self._received, data, last=True)
        if data or self._received - self._confirmed >= _ACKNOWLEDGE_AFTER:
            return Part(self._received, data)
        return None

    def _read(self) -> bytes:
        """What has arrived at the socket."""
        found = bytearray()
        while len(found) < MAX_DATA:
            try:
                data = self._socket.recv(MAX_DATA - len(found))
            except BlockingIOError:
                break
            except OSError:  # it was reset
                data = b""
            if not data:
                self._closed_here = True
                break
            found += data
        return bytes(found)

    # --- from the bucket to the socket

    def _receive(self) -> bool:
        """Returns whether something has arrived, or was passed on."""
        if self._arriving:
            return self._pass_on()
        if self._closed_here or self._closed_there:
            return False
        name = part_name(self._receives, self._connection, self._received + 1)
        content = self._objects.get(name)
        if content is None:
            return False
        part = decode(content)
        self._received += 1
        self._objects.discard(name)
        for number in range(self._acknowledged + 1, min(part.received, self._sent) + 1):
            self._objects.discard(part_name(self._sends, self._connection, number))
            self._acknowledged = number
        self._arriving, self._closed_there = part.data, part.last
        self._pass_on()
        return True

    def _pass_on(self) -> bool:
        """Returns whether the socket has taken something."""
        before = len(self._arriving)
        try:
            while self._arriving:
                self._arriving = self._arriving[self._socket.send(self._arriving) :]
        except BlockingIOError:
            return len(self._arriving) < before  # `_wait` waits until it takes more
        except OSError:  # nobody reads it any more
            self._arriving, self._closed_here = b"", True
        return True
