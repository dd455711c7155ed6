"""Streams from a server, continued where they stopped if the connection is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.api.operations import OPERATIONS
from muster.api.problems import ProblemDetails, error_of
from muster.api.streams import EventItem, Live, LogChunk, Notice, Pause, RunItem, Selection
from muster.client.http.connection import Connection, lines_of, unavailable
from muster.client.http.protocol import Answer
from muster.errors import ServerUnavailable, StoreBusy, TooManyRequests, Unreadable
from muster.type_info import compile_type

#: Seconds without data after which a stream counts as lost: the server sends some every 15.
_SILENCE = 45.0
#: Seconds for which a client tries to reach a lost server again.
_RECONNECT_TIMEOUT = 60.0
#: Answers to a new connection of a stream after which another one may succeed.
_PASSING = (ServerUnavailable, StoreBusy, TooManyRequests)
_BLOCK = 1 << 20


class _Error(Struct, frozen=True, tag="Error"):
    """Ends a stream."""

    error: ProblemDetails


class _End(Struct, frozen=True, tag="End"):
    """Ends a stream that is complete."""


class Interrupt:
    """Ends the wait for the next item of a stream, from another thread."""

    def __init__(self) -> None:
        self._answer: Answer | None = None
        #: Whether the stream is to end.
        self.requested = False

    def watch(self, answer: Answer) -> None:
        """This answer is read from now on."""
        self._answer = answer
        if self.requested:
            self.request()

    def request(self) -> None:
        """End the stream."""
        self.requested = True
        if self._answer is not None:
            self._answer.abort()


def follow_events(
    connection: Connection, run_id: str, after: int, interrupt: Interrupt | None = None
) -> Generator[EventItem | Notice]:
    """See `MusterAPI.follow_events`."""
    return _checked(_follow_events(connection, run_id, after, interrupt))


def _follow_events(
    connection: Connection, run_id: str, after: int, interrupt: Interrupt | None
) -> Generator[EventItem | Notice | None]:
    last = after

    def path() -> str:
        return OPERATIONS["follow_events"].url({"run_id": run_id, "after": last})

    for item in _items(connection, path, _event_lines, EventItem | Notice, interrupt):
        if isinstance(item, EventItem):
            last = item.entry.seq
        yield item


def watch(
    connection: Connection,
    run_id: str,
    timeout: float | None,
    every: float | None,
    interrupt: Interrupt | None = None,
) -> Generator[RunItem | Notice]:
    """See `MusterAPI.watch`."""
    deadline = None if timeout is None else time.monotonic() + timeout
    left = timeout

    def path() -> str:
        nonlocal left
        given = {"run_id": run_id, "timeout": left, "every": every}
        if deadline is not None:  # if the connection is lost
            left = max(deadline - time.monotonic(), 0.0)
        return OPERATIONS["watch"].url(given)

    return _checked(_items(connection, path, lines_of, RunItem | Notice, interrupt))


def read_log(
    connection: Connection,
    run_id: str,
    selection: Selection,
    *,
    follow: bool,
    live: Live | None,
    interrupt: Interrupt | None = None,
) -> Generator[LogChunk | Pause | Notice]:
    """See `MusterAPI.log`."""
    return _checked(_read_log(connection, run_id, selection, follow, live, interrupt))


def _read_log(
    connection: Connection,
    run_id: str,
    selection: Selection,
    follow: bool,
    live: Live | None,
    interrupt: Interrupt | None,
) -> Generator[LogChunk | Pause | Notice | None]:
    seen = _Seen()

    def path() -> str:
        given = {
            "run_id": run_id,
            "selection": seen.rest_of(selection),
            "follow": follow,
            "live": live,
        }
        return OPERATIONS["log"].url(given)

    for item in _items(connection, path, lines_of, LogChunk | Pause | Notice, interrupt):
        if isinstance(item, LogChunk) and (item := seen.new_lines(item)) is None:
            continue
        yield item


class _Seen:
    """How far a log has arrived: a new connection begins with the newest moment again, of which
    some lines may have come already."""

    def __init__(self) -> None:
        self._last = 0  # the newest moment, in nanoseconds
        self._lines: dict[tuple[int, str], int] = {}  # of it, by attempt and file
        self._resumed = 0  # the newest moment when the connection was made
        self._to_skip: dict[tuple[int, str], int] = {}

    def rest_of(self, selection: Selection) -> Selection:
        """What is to be read yet. To be called when a connection is made."""
        self._resumed, self._to_skip = self._last, dict(self._lines)
        if not self._last:
            return selection
        since = (self._last - 1000) / 1e9  # seconds as a float are less exact
        return replace(selection, since=max(selection.since or 0.0, since), tail=None)

    def new_lines(self, chunk: LogChunk) -> LogChunk | None:
        """The lines that have not arrived before; None if there is none."""
        if chunk.time_ns < self._resumed:
            return None
        place = (chunk.attempt, chunk.stream.file)
        if chunk.time_ns == self._resumed and (count := self._to_skip.get(place, 0)):
            lines = chunk.data.splitlines(keepends=True)
            self._to_skip[place] = max(count - len(lines), 0)
            chunk = replace(chunk, data=b"".join(lines[count:]))
        if chunk.time_ns > self._last:
            self._last, self._lines = chunk.time_ns, {}
        if chunk.time_ns == self._last:
            self._lines[place] = self._lines.get(place, 0) + chunk.data.count(b"\n")
        return chunk if chunk.data else None


def read_output(
    connection: Connection, run_id: str, rank: int | None, path: str, offset: int
) -> Generator[bytes]:
    """See `MusterAPI.read_output`."""
    given = {"run_id": run_id, "rank": rank, "path": path, "offset": offset}
    blocks = _blocks(connection, OPERATIONS["read_output"].url(given), path)
    next(blocks)  # the answer has begun, so that its errors are raised here
    return blocks


def _blocks(connection: Connection, url: str, path: str) -> Generator[bytes]:
    with connection.stream("GET", url) as answer:
        yield b""
        try:
            while block := answer.read1(_BLOCK):
                yield block
        except OSError as error:
            lost = unavailable(connection.address.url, error)
            raise Unreadable(f"{path} could not be read to its end: {lost}") from None


def _items(
    connection: Connection,
    path: Callable[[], str],
    lines: Callable[[Answer], Iterator[bytes]],
    kind: Any,
    interrupt: Interrupt | None,
) -> Generator[Any]:
    """The items of a stream. path: of the operation, when a connection is made. lines: the JSON of
    each item. First yields None, when the server has accepted the request."""
    compile_type(kind)
    decoder = msgspec.json.Decoder(kind | _Error | _End)
    lost_at: float | None = None
    pause = 0.02
    begun = False
    while True:
        try:
            with connection.stream("GET", path(), timeout=_SILENCE) as answer:
                if interrupt is not None:
                    interrupt.watch(answer)
                lost_at = None
                if not begun:
                    begun = True
                    yield None
                for line in lines(answer):
                    pause = 0.02
                    item = decoder.decode(line)
                    if isinstance(item, _Error):
                        raise error_of(item.error)
                    if isinstance(item, _End):
                        answer.read()
                        return
                    yield item
            raise ConnectionResetError("the stream was cut off")
        except (OSError, *_PASSING) as error:
            if interrupt is not None and interrupt.requested:
                return
            if isinstance(error, TimeoutError):  # that the server has answered
                raise
            now = time.monotonic()
            lost_at = lost_at or now
            if not begun or now - lost_at > _RECONNECT_TIMEOUT:
                if isinstance(error, OSError):
                    raise unavailable(connection.address.url, error) from None
                raise
            time.sleep(pause)
            pause = min(pause * 2, 1.0)


def _checked(items: Generator[Any]) -> Generator[Any]:
    """The items of a stream whose request the server has accepted: its errors are raised here, not
    when the first item is read."""
    next(items)
    return items


def _event_lines(answer: Answer) -> Iterator[bytes]:
    """The JSON of each server-sent event."""
    kind = b""
    for line in lines_of(answer):
        name, _, value = line.partition(b": ")
        if name == b"event":
            kind = value
        elif name == b"data":
            yield b'{"type":"End"}' if kind == b"end" else value
            kind = b""
