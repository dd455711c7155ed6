"""Reading a run's output back: whole lines, merged by time, in bounded memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from muster.errors import StoreError
from muster.node.files import open_regular, read_regular
from muster.storage.log_stream import OpenFiles, StreamReader
from muster.storage.logs import END, ENTRY, StreamInfo, index_block


class LogChunk(Struct, frozen=True):
    """Some lines of one stream. data: ends with a newline; time_ns: when they were noted."""

    time_ns: int
    stream: StreamInfo
    data: bytes


class LogRecord(Struct, frozen=True):
    """One line. time: epoch seconds; message: without its newline; rank: the node's; local_rank:
    of the process on its node, None for a launcher's own lines.

    Of a message of the service (stream: `service`), rank and local_rank are None, and group and
    node_id empty."""

    time: float
    rank: int | None
    group: str
    node_id: str
    attempt: int
    stream: str
    message: str
    local_rank: int | None
    service: str = ""


def records(chunk: LogChunk, attempt: int = 0) -> Iterator[LogRecord]:
    """The lines of a chunk, one by one. What is not UTF-8 is replaced.

    A carriage return stays in the message: what a progress bar rewrites is one line.
    """
    stream = chunk.stream
    for line in chunk.data[:-1].split(b"\n"):
        yield LogRecord(
            time=chunk.time_ns / 1e9,
            rank=stream.rank,
            group=stream.group,
            node_id=stream.node_id,
            attempt=attempt,
            stream=stream.stream,
            message=line.decode(errors="replace"),
            local_rank=stream.local_rank,
            service=stream.service,
        )


def prefixed(chunk: LogChunk, prefix: bytes) -> bytes:
    """The chunk's text with `prefix` before every line."""
    return prefix + chunk.data[:-1].replace(b"\n", b"\n" + prefix) + b"\n"


def _listed(folder: Path) -> list[StreamInfo]:
    """Which files there are. Raises FileNotFoundError, or StoreError."""
    try:
        listed = json.loads(read_regular(folder / "streams.json"))
        return [StreamInfo(**stream) for stream in listed]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise _damaged(folder, "streams.json", error) from None


def _index(folder: Path) -> int:
    """Raises FileNotFoundError, or StoreError."""
    try:
        return open_regular(folder / "index")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _damaged(folder, "index", error) from None


def _damaged(folder: Path, name: str, error: Exception) -> StoreError:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return StoreError(
        f"{folder / name} was replaced or damaged ({why}), perhaps by a program of the run; what "
        f"its nodes wrote is in the other files of {folder}"
    )


class LogCursor:
    """A place in a run's output; reading moves it on.

    folder: that of one attempt. select: which streams; None = all. `finished`: the index has said
    that nothing follows. Times of chunks never decrease. Memory: a chunk and
    some numbers a stream, however much was written.
    """

    def __init__(self, folder: Path, select: Callable[[StreamInfo], bool] | None = None) -> None:
        streams = _listed(folder)
        self._streams = {s.number: s for s in streams if select is None or select(s)}
        self._paths = {number: folder / s.file for number, s in self._streams.items()}
        self._files = OpenFiles()
        self._places = {n: StreamReader(path, self._files) for n, path in self._paths.items()}
        self._index = _index(folder)
        self._offset = 0
        self._old: dict[int, int] = {}  # lines to come that were there when `tail` was called
        self._skip = 0
        self._time = 0
        self.finished = False

    def read(self) -> Iterator[LogChunk]:
        """What was noted since the last time."""
        while block := index_block(self._index, self._offset):
            for time_ns, number, end in ENTRY.iter_unpack(block):
                self._offset += ENTRY.size
                self.finished = number == END  # unless a successor of the writer goes on
                place = self._places.get(number)
                if place is not None:
                    for data in place.upto(end):
                        yield from self._give(time_ns, number, data)

    def drain(self) -> Iterator[LogChunk]:
        """What nobody noted, because the writer was killed, and last lines without a newline.

        For the end: called earlier, it gives half lines.
        """
        found = []
        for number, path in self._paths.items():
            try:
                status = path.stat()
            except OSError:
                continue
            found.append((status.st_mtime_ns, number, status.st_size))
        for time_ns, number, size in sorted(found):
            place = self._places[number]
            for data in place.upto(size):
                yield from self._give(time_ns, number, data)
            if rest := place.rest():
                yield from self._give(time_ns, number, rest + b"\n")

    def tail(self, lines: int) -> int:
        """Leave out all but the last `lines` lines there are by now; how many are left. Call before
        reading.

        A line among the last of all is among the last of its stream: so each stream starts at its
        own last lines, and what those are too many is dropped as it comes.
        """
        self._old = {number: place.keep_last(lines) for number, place in self._places.items()}
        there = sum(self._old.values())
        self._skip = max(0, there - lines)
        return there - self._skip

    def close(self) -> None:
        """Close the files."""
        os.close(self._index)
        self._files.close()

    def _give(self, time_ns: int, number: int, data: bytes) -> Iterator[LogChunk]:
        if self._skip:
            data = self._without_skipped(number, data)
        if data:
            self._time = max(self._time, time_ns)
            yield LogChunk(self._time, self._streams[number], data)

    def _without_skipped(self, number: int, data: bytes) -> bytes:
        """Lines written after `tail` was called are never dropped."""
        old = min(self._old[number], data.count(b"\n"))
        dropped = min(old, self._skip)
        self._old[number] -= old
        self._skip -= dropped
        return data.split(b"\n", dropped)[-1]
