"""Carries a conversation over a transport: a connected socket, with or without TLS, or two pipes.

A frame is its kind (1 byte), the size of its content (4 bytes), and the content:

    HELLO     who the sender is (`node.greeting`): a JSON object. The agent's first frame, and the
              supervisor's answer
    REFUSED   why the sender does not talk to the other end: text. It then closes the connection
    MESSAGE   the message's number (8 bytes), and the message (`node.link`)
    RECEIVED  the number of the last message that was received (8 bytes)
    PING      to be answered with PONG: without an answer, the connection is dead
    PONG      the answer to PING
    from 16   streams of bytes (`node.streams`)

Every version of Muster understands HELLO and REFUSED.

Nothing blocks: wait with poll or epoll for what `interest` says, then call `step`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
from typing import Any, Dict, List, Mapping, Tuple, Union

from muster.node.link import MAX_MESSAGE, Link, LinkError, json_object
from muster.node.messages import Message
from muster.node.streams import KINDS, MAX_FRAME, Streams

_HEADER = struct.Struct(">BI")
_HELLO, _REFUSED, _MESSAGE, _RECEIVED, _PING, _PONG = range(1, 7)
#: The most bytes of the content of frames other than messages.
_MAX_CONTROL = 8192
#: Bytes that are read or written at once.
_CHUNK = 1 << 16
#: Bytes of a read after which another one is tried only when a poll says that there is more.
_SHORT = 1024
#: Bytes after which a step reads or writes no more, since other connections of the process wait.
_MOST_IN_STEP = 1 << 20
#: Characters of a text of the other end that are shown to people.
_SHOWN = 500


class Pipes:
    """The standard streams of a program that carries the connection, such as ssh."""

    def __init__(self, reading: int, writing: int) -> None:
        """Two descriptors, which it owns. Both become non-blocking."""
        self.reading, self.writing = reading, writing
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)

    @property
    def waits_to_write(self) -> bool:
        """Whether it has something of its own to write, which `recv` does."""
        return False

    def recv(self, size: int) -> bytes:
        """Up to this many bytes; none at the end. Raises OSError."""
        return os.read(self.reading, size)

    def send(self, data: bytes) -> int:
        """Send a part of the data. Returns the number of bytes. Raises OSError."""
        return os.write(self.writing, data)

    def close(self) -> None:
        """Close both. May be repeated."""
        descriptors = {self.reading, self.writing} - {-1}
        self.reading = self.writing = -1
        for descriptor in descriptors:
            os.close(descriptor)


#: An `ssl.SSLSocket` is a socket.
Transport = Union[socket.socket, Pipes]


class _Refused(LinkError):  # noqa: N818
    """The other end does not talk to this one. The text says why."""


class Connection:
    """A transport, which it owns.

    At first it only greets: `say` says this end's hello, and `hello` is what the other end has
    said. Then `talk` has it carry a link, or `refuse` ends it. Nothing that follows a hello is
    looked at before.
    """

    def __init__(self, transport: Transport) -> None:
        """transport: for TLS, an `ssl.SSLSocket` made with `do_handshake_on_connect=False`."""
        if not isinstance(transport, Pipes):
            transport.setblocking(False)
        self._transport = transport
        #: What the other end has said; None if nothing yet.
        self.hello: Mapping[str, Any] | None = None
        #: Whether anything has arrived since the last `ping`; at first, whether it has said hello.
        self.answered = False
        #: Why the connection has ended, for people; "" while it is open. It is to be closed then.
        self.ended = ""
        #: Why this end does not talk to the other one, or not any more, as after an invalid frame;
        #: "" if it does, or may. Nothing arrives then, and streams have ended.
        self.refusal = ""
        self._link: Link | None = None
        self._streams: Streams | None = None
        self._incoming = bytearray()
        self._unsent = bytearray()
        self._pong_due = False
        self._handshaking = _is_encrypted(transport)
        self._handshake_waits = select.POLLIN | select.POLLOUT

    @property
    def peer(self) -> str:
        """The address of the other end; "" if it is not known."""
        if isinstance(self._transport, Pipes):
            return ""
        with contextlib.suppress(OSError):  # it is gone
            found = self._transport.getpeername()
            return str(found[0]) if isinstance(found, tuple) else ""
        return ""

    # --- greeting

    def say(self, hello: Mapping[str, Any]) -> None:
        """Say hello. hello: JSON-ready, of a few hundred bytes."""
        self._add_frame(_HELLO, json.dumps(hello).encode())

    def talk(self, link: Link, streams: Streams | None = None) -> None:
        """Carry the conversation of a link, to which this connection is attached. After `say`.

        streams: new ones, which end with the connection; None if there are to be none.
        """
        self._link, self._streams = link, streams

    def refuse(self, why: str) -> None:
        """Tell the other end why this one does not talk to it, or not any more. `ended` is set when
        it has closed the connection; close it yourself after a while."""
        self.refusal = _shown(why)
        self._drop_link()
        self._add_frame(_REFUSED, self.refusal.encode(errors="backslashreplace"))

    def ping(self) -> None:
        """Have the other end send something, which shows that the connection is alive; see
        `answered`. A large message that is arriving shows it, too."""
        if self._link is not None:
            self.answered = False
            self._add_frame(_PING, b"")

    def _drop_link(self) -> None:
        if self._link is not None:
            self._link.detach(self)
            self._link = None
        if self._streams is not None:
            self._streams.close(self.ended or "the connection is closed")
            self._streams = None

    # --- waiting and working

    def interest(self) -> Dict[int, int]:
        """What to wait for: descriptor -> events of `select.poll`. Call it before each wait."""
        if self.ended:
            return {}
        if self._handshaking:
            assert not isinstance(self._transport, Pipes)
            return {self._transport.fileno(): self._handshake_waits}
        self._fill()
        # a full buffer must not keep this end from reading: the other one may wait for that
        reads = select.POLLIN if self._wants_more() else 0
        # what is here already is taken at once
        writes = select.POLLOUT if self._unsent or self._has_work() else 0
        if isinstance(self._transport, Pipes):
            reading, writing = self._transport.reading, self._transport.writing
            writes = writes or (select.POLLOUT if self._transport.waits_to_write else 0)
        else:
            reading = writing = self._transport.fileno()
        waits = {reading: reads}
        waits[writing] = waits.get(writing, 0) | writes
        return {descriptor: events for descriptor, events in waits.items() if events}

    def step(self) -> List[Message]:
        """Read and write what is possible now. Returns the messages that have arrived, also if the
        connection has ended. Sets `hello`, `answered` and `ended`."""
        found: List[Message] = []
        if self.ended:
            return found
        try:
            if self._handshaking:
                self._handshake()
            self._read(found)
            self._write()
        except (BlockingIOError, InterruptedError, *_of_ssl("SSLWantReadError")):
            self._handshake_waits = select.POLLIN
        except _of_ssl("SSLWantWriteError"):
            self._handshake_waits = select.POLLOUT
        except _Refused as error:
            self._end(str(error))
        except LinkError as error:
            self.refuse(str(error))
        except OSError as error:
            self._end_after(error, found)
        if self._link is not None and not self._link.carried_by(self):
            self._end("another connection has taken its place")
        return found

    def close(self) -> None:
        """Close the transport; the link waits for another connection. May be repeated."""
        self._end("closed")
        self._drop_link()
        self._transport.close()

    def _end(self, why: str) -> None:
        self.ended = self.ended or self.refusal or _shown(why) or "no reason was given"

    def _end_after(self, error: OSError, found: List[Message]) -> None:
        """After an error, what the other end has said before it is still to be read."""
        try:
            with contextlib.suppress(OSError):  # it is over, for the first reason
                self._read(found, to_end=True)
        except LinkError as said:
            self._end(str(said))
        self._end(_text_of(error))

    def _handshake(self) -> None:
        transport: Any = self._transport
        transport.do_handshake()
        self._handshaking = False

    # --- reading

    def _read(self, found: List[Message], *, to_end: bool = False) -> None:
        """Add the messages that have arrived. to_end: all of them. Raises OSError, LinkError."""
        size = 0
        self._take_frames(found)  # which may have waited for `talk`
        while self._wants_more() and (size < _MOST_IN_STEP or self._has_pending()):
            try:
                data = self._transport.recv(_CHUNK)
            except (BlockingIOError, *_of_ssl("SSLWantReadError")):
                return  # there may be something to write
            if not data:
                raise OSError("the other end has closed the connection")
            size += len(data)
            self.answered = self.answered or self._link is not None
            self._incoming += data
            self._take_frames(found)
            if len(data) < _SHORT and not to_end and not self._has_pending():
                return  # that was all, most likely; if not, the next poll tells

    def _wants_more(self) -> bool:
        """Whether to read: not much that follows a hello, before this end has decided to talk."""
        return self._link is not None or bool(self.refusal) or len(self._incoming) < _CHUNK

    def _has_work(self) -> bool:
        """Whether a step can do something though nothing more arrives: when `talk` was called, or
        for data that TLS has read already."""
        if self._has_pending() and self._wants_more():
            return True
        if self._link is None or len(self._incoming) < _HEADER.size:
            return False
        _, size = _HEADER.unpack_from(self._incoming)
        return len(self._incoming) >= _HEADER.size + int(size)

    def _has_pending(self) -> bool:
        """Whether TLS has data that no poll would report."""
        transport: Any = self._transport
        return _is_encrypted(transport) and transport.pending() > 0

    def _take_frames(self, found: List[Message]) -> None:
        """Take the whole frames of what has arrived. Raises LinkError."""
        if self.refusal:  # only the end is of interest
            self._incoming.clear()
        while len(self._incoming) >= _HEADER.size:
            kind, size = _HEADER.unpack_from(self._incoming)
            if self.hello is None and kind not in (_HELLO, _REFUSED):
                raise LinkError("it does not say hello")
            if self.hello is not None and self._link is None and kind != _REFUSED:
                return
            if size > _max_size(kind):
                raise LinkError("a frame of kind %d with %d bytes" % (kind, size))
            end = _HEADER.size + size
            if len(self._incoming) < end:
                return
            content = bytes(self._incoming[_HEADER.size : end])
            del self._incoming[:end]
            self._take_frame(kind, content, found)

    def _take_frame(self, kind: int, content: bytes, found: List[Message]) -> None:
        """Raises LinkError."""
        if kind == _REFUSED:
            raise _Refused(content.decode(errors="replace"))
        if self.hello is None:
            self.hello, self.answered = json_object(content, "it does not say hello"), True
            return
        link = self._link
        assert link is not None
        if not link.carried_by(self):
            return  # another connection has taken its place
        if kind == _MESSAGE:
            message = link.take(content)
            if message is not None:
                found.append(message)
        elif kind == _RECEIVED:
            link.take_acknowledgment(content)
        elif kind == _PING:
            self._pong_due = True
        elif kind in KINDS and self._streams is not None:
            self._streams.take_frame(kind, content)
        elif kind != _PONG:
            raise LinkError("a frame of unknown kind %d" % kind)

    # --- writing

    def _add_frame(self, kind: int, content: bytes) -> None:
        self._unsent += _HEADER.pack(kind, len(content)) + content

    def _fill(self) -> None:
        """Take what the link has to send, as far as it can be written soon."""
        link = self._link
        if link is None or not link.carried_by(self):
            return
        if self._pong_due and len(self._unsent) < _CHUNK:
            self._pong_due = False
            self._add_frame(_PONG, b"")
        acknowledgment = link.next_acknowledgment() if len(self._unsent) < _CHUNK else None
        if acknowledgment is not None:
            self._add_frame(_RECEIVED, acknowledgment)
        while len(self._unsent) < _CHUNK:
            message = link.next_message()
            if message is None:
                break
            self._add_frame(_MESSAGE, message)
        while self._streams is not None and len(self._unsent) < _CHUNK:
            frame = self._streams.next_frame()
            if frame is None:
                return
            self._add_frame(*frame)

    def _write(self) -> None:
        """Write as much as is possible. Raises OSError."""
        size = 0
        self._fill()
        while self._unsent and size < _MOST_IN_STEP:
            sent = self._transport.send(bytes(self._unsent[:_CHUNK]))
            del self._unsent[:sent]
            size += sent
            self._fill()


def _of_ssl(name: str) -> Tuple[Any, ...]:
    """A class of the module `ssl`, which whoever has made an encrypted transport has imported. Most
    processes have none, and the import would take half of their start."""
    module = sys.modules.get("ssl")
    return () if module is None else (getattr(module, name),)


def _is_encrypted(transport: object) -> bool:
    return isinstance(transport, _of_ssl("SSLSocket"))


def _max_size(kind: int) -> int:
    """The most bytes of the content of a frame."""
    if kind == _MESSAGE:
        return MAX_MESSAGE
    return MAX_FRAME if kind in KINDS else _MAX_CONTROL


def _text_of(error: Exception) -> str:
    if isinstance(error, _of_ssl("SSLCertVerificationError")):
        return "TLS: %s" % error.verify_message
    if isinstance(error, _of_ssl("SSLError")):
        return "TLS: %s" % (error.reason or error)
    return getattr(error, "strerror", None) or str(error)


def _shown(text: str) -> str:
    """A text that may have something of the other end in it, for people."""
    return "".join(char if char.isprintable() else "?" for char in text[:_SHOWN])
