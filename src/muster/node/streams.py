"""Bytes beside the messages of a connection: output, files, and the streams of commands in a node.

Either end opens a stream, and says what it is about. Both may send bytes on it, and each says when
it is done, with a result. A connection carries any number of streams; none can hold up the others,
or the messages, because an end sends no more than the other has room for.

A stream ends with its connection. Who needs the rest opens another one, such as for a file from
some place on.

    OPEN   the stream's number (4 bytes), what it is about: a JSON object
    DATA   the number, bytes
    MORE   the number, how many more bytes the sender has room for (4 bytes)
    END    the number, the result: a JSON object. The sender sends no more data
    CANCEL the number, why: text. The stream has ended, both ways
    PACKED as DATA, with compressed bytes (`node.compression`). Room counts what they become

`Streams` does no I/O.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from typing import Any, Deque, Dict, List, Mapping, Tuple

from muster.node.link import LinkError, json_object

OPEN, DATA, MORE, END, CANCEL, PACKED = range(16, 22)
KINDS = range(OPEN, PACKED + 1)

_NUMBER = struct.Struct(">I")
#: Bytes of a stream that may be on their way, or wait for whom they are meant for.
WINDOW = 1 << 20
#: Bytes of data in a frame: others wait while it is written.
CHUNK = 1 << 16
#: The most bytes of what a stream is about, and of its result.
MAX_JSON = 1 << 20
#: The most bytes of a frame's content.
MAX_FRAME = max(MAX_JSON, CHUNK) + _NUMBER.size
#: The most streams of a connection at a time that the other end has opened.
MOST = 1000

Frame = Tuple[int, bytes]
#: JSON-ready data.
Data = Mapping[str, Any]


class Stream:
    """One end of a stream."""

    def __init__(self, streams: Streams, number: int, about: Data) -> None:
        self._streams = streams
        self.number = number
        #: What it is about, as said by the end that has opened it.
        self.about = about
        #: Bytes for which the other end has room.
        self.room = WINDOW
        #: What the other end has said as its result, once all of its data was received.
        self.result: Data | None = None
        #: Why it was canceled, by either end; "" if it was not.
        self.canceled = ""
        #: Whether `Streams` knows that it has frames to write.
        self.queued = False
        self._done = False  # whether this end has said its result
        self._outgoing: Deque[Frame] = deque()
        self._incoming: Deque[bytes] = deque()
        self._waiting = 0  # bytes that were received, and for which no room was made since
        self._taken = 0  # bytes that were taken, of these
        self._result: Data | None = None  # it follows the data

    @property
    def ended(self) -> bool:
        """Whether it was canceled, or both ends are done."""
        return bool(self.canceled) or (self._done and self.result is not None)

    def send(self, data: bytes) -> None:
        """Send bytes: no more than there is room for."""
        assert len(data) <= self.room, "the other end has no room"
        if self.canceled or not data:
            return
        self.room -= len(data)
        for start in range(0, len(data), CHUNK):
            self._add(DATA, data[start : start + CHUNK])

    def finish(self, result: Data) -> None:
        """Send no more, and say the result. May be repeated."""
        if not self._done and not self.canceled:
            self._done = True
            self._add(END, json.dumps(result).encode())
            self._streams.forget_if_ended(self)

    def cancel(self, why: str) -> None:
        """End it, both ways. Data that was not written yet is dropped. May be repeated."""
        if not self.ended:
            kept = [frame for frame in self._outgoing if frame[0] == OPEN]
            self._outgoing.clear()
            self._outgoing.extend(kept)
            self._add(CANCEL, why.encode(errors="backslashreplace")[:MAX_JSON])
            self.drop(why)
            self._streams.forget_if_ended(self)

    def take(self, most: int | None = None) -> bytes:
        """The bytes that have arrived and were not taken yet, up to so many, which makes room for
        others. Sets `result` if nothing follows."""
        data = self._take(most)
        self._taken += len(data)
        if self._taken >= WINDOW // 4 and self._result is None and not self.canceled:
            self._waiting -= self._taken
            self._add(MORE, _NUMBER.pack(self._taken))
            self._taken = 0
        if self._result is not None and self.result is None and not self._incoming:
            self.result = self._result
            self._streams.forget_if_ended(self)
        return data

    def _take(self, most: int | None) -> bytes:
        parts, size = [], 0
        while self._incoming and (most is None or size < most):
            part = self._incoming.popleft()
            if most is not None and size + len(part) > most:
                self._incoming.appendleft(part[most - size :])
                part = part[: most - size]
            parts.append(part)
            size += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _add(self, kind: int, content: bytes) -> None:
        self._outgoing.append((kind, _NUMBER.pack(self.number) + content))
        if not self.queued:
            self._streams.add_writer(self)

    # --- for `Streams`

    def next_frame(self) -> Frame:
        """The next frame to write."""
        return self._outgoing.popleft()

    @property
    def has_frames(self) -> bool:
        """Whether there are frames to write."""
        return bool(self._outgoing)

    def receive(self, kind: int, content: bytes) -> None:
        """Receive a frame. Raises LinkError."""
        if kind == DATA:
            self._waiting += len(content)
            if self._waiting > WINDOW or self._result is not None:
                raise LinkError("data of a stream for which there is no room")
            if content:  # what has no bytes takes no room, but memory
                self._incoming.append(content)
        elif kind == MORE:
            if len(content) != _NUMBER.size:
                raise LinkError("an invalid frame of a stream")
            self.room += _NUMBER.unpack(content)[0]
            if self.room > WINDOW:
                raise LinkError("a stream has more room than it may")
        elif kind == END:
            self._result = json_object(content, "a frame of a stream that is not JSON")
            if not self._incoming:
                self.take()
        else:
            self.drop(content.decode(errors="replace"))

    def drop(self, why: str) -> None:
        """It was canceled."""
        self.canceled = self.canceled or why or "no reason was given"


class Streams:
    """The streams of one end of a connection. supervisor: whether it is the supervisor's end; the
    ends number their streams differently. compress: whether it compresses what it sends."""

    def __init__(self, *, supervisor: bool, compress: bool = False) -> None:
        self._compress = compress
        self._next = 0 if supervisor else 1
        self._last_opened = -1  # the last number of the other end
        self._streams: Dict[int, Stream] = {}
        self._writers: Deque[Stream] = deque()  # each has frames to write, and is here once
        self._opened: List[Stream] = []
        self._changed: Dict[Stream, None] = {}

    def open(self, about: Data) -> Stream:
        """Open a stream. about: at most MAX_JSON bytes as JSON, or the other end ends the
        connection."""
        stream = Stream(self, self._next, about)
        self._next += 2
        self._streams[stream.number] = stream
        stream._add(OPEN, json.dumps(about).encode())
        return stream

    @property
    def count(self) -> int:
        """How many streams there are."""
        return len(self._streams)

    @property
    def has_opened(self) -> bool:
        """Whether `opened` has streams: the other end may send nothing before it is answered."""
        return bool(self._opened)

    def opened(self) -> List[Stream]:
        """The streams that the other end has opened since the last call."""
        found, self._opened = self._opened, []
        return found

    def changed(self) -> List[Stream]:
        """The streams on which something has arrived since the last call, including room, and that
        were canceled by the other end."""
        found, self._changed = list(self._changed), {}
        return found

    def close(self, why: str) -> None:
        """The connection is lost: every stream has ended."""
        for stream in self._streams.values():
            stream.drop(why)
            self._changed[stream] = None
        self._streams.clear()
        self._writers.clear()

    def next_frame(self) -> Frame | None:
        """The next frame to write, of one stream after the other; None if there is none."""
        if not self._writers:
            return None
        stream = self._writers.popleft()
        frame, stream.queued = stream.next_frame(), False
        if stream.has_frames:
            self.add_writer(stream)
        return _packed(*frame) if self._compress and frame[0] == DATA else frame

    def take_frame(self, kind: int, content: bytes) -> None:
        """A frame has arrived. Raises LinkError."""
        if len(content) < _NUMBER.size:
            raise LinkError("a frame without a number")
        (number,) = _NUMBER.unpack_from(content)
        content = content[_NUMBER.size :]
        if kind == OPEN:
            self._take_open(number, content)
            return
        stream = self._streams.get(number)
        if stream is None:
            return  # this end has canceled it
        if kind == PACKED:
            kind, content = DATA, _unpacked(content)
        stream.receive(kind, content)
        self._changed[stream] = None
        self.forget_if_ended(stream)

    def _take_open(self, number: int, content: bytes) -> None:
        if number % 2 == self._next % 2 or number <= self._last_opened:
            raise LinkError("a stream with the number of another one")
        self._last_opened = number
        if len(self._streams) >= MOST:
            raise LinkError("too many streams")
        stream = self._streams[number] = Stream(
            self, number, json_object(content, "a frame of a stream that is not JSON")
        )
        self._opened.append(stream)

    def add_writer(self, stream: Stream) -> None:
        """A stream has frames to write."""
        stream.queued = True
        self._writers.append(stream)

    def forget_if_ended(self, stream: Stream) -> None:
        """Forget a stream that has ended; what it has to write is written."""
        if stream.ended:
            self._streams.pop(stream.number, None)


def _packed(kind: int, content: bytes) -> Frame:
    """A frame of data, compressed if that is worth it."""
    from muster.node.compression import compressed  # few nodes need it

    packed = compressed(content[_NUMBER.size :])
    return (kind, content) if packed is None else (PACKED, content[: _NUMBER.size] + packed)


def _unpacked(content: bytes) -> bytes:
    """Raises LinkError."""
    from muster.node.compression import decompressed

    try:
        return decompressed(content, CHUNK)
    except ValueError as error:
        raise LinkError("compressed data of a stream: %s" % error) from None
