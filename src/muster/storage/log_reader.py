"""Read the output of one attempt: whole lines, merged by time, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from muster.errors import StoreError
from muster.node.files import open_regular, read_regular
from muster.storage.log_index import END, ENTRY, StreamInfo, index_block
from muster.storage.log_stream import OpenFiles, StreamReader


class LogChunk(Struct, frozen=True):
    """Some lines of one stream."""

    #: When the lines were recorded in the index, in nanoseconds since the epoch.
    time_ns: int
    stream: StreamInfo
    #: Ends with a newline.
    data: bytes


class Unfinished(NamedTuple):
    """The end of a line that a program has not finished, such as a progress bar."""

    stream: StreamInfo
    line: bytes


def _read_streams(folder: Path) -> list[StreamInfo]:
    """The streams of an attempt. Raises FileNotFoundError or StoreError."""
    try:
        listed = read_regular(folder / "streams.json")
        return msgspec.json.decode(listed, type=list[StreamInfo])
    except FileNotFoundError:
        raise
    except (OSError, msgspec.DecodeError) as error:
        raise _damaged(folder, "streams.json", error) from None


def _open_index(folder: Path) -> int:
    """A descriptor of the index. Raises FileNotFoundError or StoreError."""
    try:
        return open_regular(folder / "index")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _damaged(folder, "index", error) from None


def _damaged(folder: Path, name: str, error: Exception) -> StoreError:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return StoreError(
        f"{folder / name} was replaced or damaged ({why}), perhaps by a program of the run; the "
        f"output of its nodes is in the other files of {folder}"
    )


class LogCursor:
    """A position in the output of one attempt; reading advances it.

    Times of chunks never decrease. Memory: one chunk, and some numbers per stream.
    """

    def __init__(self, folder: Path, select: Callable[[StreamInfo], bool] | None = None) -> None:
        """folder: that of the attempt. select: which streams; None = all."""
        streams = _read_streams(folder)
        self._streams = {s.number: s for s in streams if select is None or select(s)}
        self._paths = {number: folder / s.file for number, s in self._streams.items()}
        self._files = OpenFiles()
        self._places = {n: StreamReader(path, self._files) for n, path in self._paths.items()}
        self._index = _open_index(folder)
        self._offset = 0
        self._old: dict[int, int] = {}  # unread lines that existed when `tail` was called
        self._skip = 0
        self._time = 0
        #: The index says that no output follows.
        self.finished = False

    def read(self) -> Iterator[LogChunk]:
        """The output recorded since the last call."""
        while block := index_block(self._index, self._offset):
            for time_ns, number, end in ENTRY.iter_unpack(block):
                self._offset += ENTRY.size
                self.finished = number == END  # unless another writer continues
                place = self._places.get(number)
                if place is not None:
                    for data in place.read_to(end):
                        yield from self._chunks(time_ns, number, data)

    def drain(self) -> Iterator[LogChunk]:
        """Output that is not in the index because the writer was killed, and last lines without a
        newline. Call it at the end: earlier calls return partial lines."""
        found = []
        for number, path in self._paths.items():
            try:
                status = path.stat()
            except OSError:
                continue
            found.append((status.st_mtime_ns, number, status.st_size))
        for time_ns, number, size in sorted(found):
            place = self._places[number]
            for data in place.read_to(size):
                yield from self._chunks(time_ns, number, data)
            if rest := place.read_rest():
                yield from self._chunks(time_ns, number, rest + b"\n")

    def unfinished(self) -> Iterator[Unfinished]:
        """The lines that `read` has found the start of."""
        for number, place in self._places.items():
            if line := place.unfinished():
                yield Unfinished(self._streams[number], line)

    def tail(self, lines: int) -> None:
        """Skip all but the last `lines` of the present lines. Call it before reading.

        The last lines of all streams are among the last lines of each stream. So each stream starts
        at its own last lines, and surplus lines are dropped while reading.
        """
        self._old = {number: place.keep_last(lines) for number, place in self._places.items()}
        self._skip = max(0, sum(self._old.values()) - lines)

    def close(self) -> None:
        """Close the files."""
        os.close(self._index)
        self._files.close()

    def _chunks(self, time_ns: int, number: int, data: bytes) -> Iterator[LogChunk]:
        if self._skip:
            data = self._without_skipped(number, data)
        if data:
            self._time = max(self._time, time_ns)
            yield LogChunk(self._time, self._streams[number], data)

    def _without_skipped(self, number: int, data: bytes) -> bytes:
        """The data without the lines to skip. Lines written after `tail` are never skipped."""
        old = min(self._old[number], data.count(b"\n"))
        dropped = min(old, self._skip)
        self._old[number] -= old
        self._skip -= dropped
        return data.split(b"\n", dropped)[-1]
