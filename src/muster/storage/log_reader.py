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
from muster.storage.log_index import END, ENTRY, OWNER, Owner, StreamInfo, index_block
from muster.storage.log_stream import OpenFiles, OutputFile, SharedFile, StreamReader


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
        self._select = select or (lambda _: True)
        streams = _read_streams(folder)
        #: Which node writes a shared stream is known when the index is read.
        self._streams = {s.number: s for s in streams if s.shared or self._select(s)}
        self._unselected = {n for n, s in self._streams.items() if not self._select(s)}
        self._paths = {number: folder / s.file for number, s in self._streams.items()}
        self._files = OpenFiles()
        self._readers = {n: self._reader(s) for n, s in self._streams.items()}
        self._index = _open_index(folder)
        self._offset = 0
        self._old: dict[int, int] = {}  # unread lines that existed when `tail` was called
        self._skip = 0
        self._present = 0  # size of the index when `tail` was called, in bytes
        self._time = 0
        #: The index says that no output follows.
        self.finished = False

    def _reader(self, stream: StreamInfo) -> StreamReader:
        kind = SharedFile if stream.shared else OutputFile
        return StreamReader(kind(self._paths[stream.number], self._files))

    def read(self) -> Iterator[LogChunk]:
        """The output recorded since the last call."""
        while block := index_block(self._index, self._offset):
            for time_ns, number, end in ENTRY.iter_unpack(block):
                self._offset += ENTRY.size
                self.finished = number == END  # unless another writer continues
                if number & OWNER and not self.finished:
                    yield from self._change_owner(time_ns, *Owner.of_entry(number, end))
                    continue
                reader = self._readers.get(number)
                if reader is None or (self._offset <= self._present and reader.is_past(end)):
                    continue
                if number in self._unselected:
                    reader.skip_to(end)
                    continue
                for data in reader.read_to(end):
                    yield from self._chunks(time_ns, number, data)

    def _change_owner(self, time_ns: int, number: int, owner: Owner) -> Iterator[LogChunk]:
        """Read the rest of what the former owner of a shared stream wrote."""
        stream = self._streams.get(number)
        if stream is None:
            return
        reader = self._readers[number]
        if number not in self._unselected:
            for data in reader.read_to(owner.start):
                yield from self._chunks(time_ns, number, data)
            # zeros stand for what a program has truncated
            if rest := reader.read_rest().rstrip(b"\0"):
                yield from self._chunks(time_ns, number, rest + b"\n")
        reader.change_owner(owner)
        stream = stream.of_owner(owner)
        self._streams[number] = stream
        if self._select(stream):
            self._unselected.discard(number)
        else:
            self._unselected.add(number)

    def drain(self) -> Iterator[LogChunk]:
        """Output that is not in the index because the writer was killed, and last lines without a
        newline. Call it at the end: earlier calls return partial lines."""
        found = []
        for number, reader in self._readers.items():
            if number not in self._unselected and (changed := reader.changed()) is not None:
                found.append((changed, number))
        for time_ns, number in sorted(found):
            reader = self._readers[number]
            for data in reader.read_to(reader.size()):
                yield from self._chunks(time_ns, number, data)
            rest = reader.read_rest()
            if self._streams[number].shared:
                rest = rest.rstrip(b"\0")
            if rest:
                yield from self._chunks(time_ns, number, rest + b"\n")

    def unfinished(self) -> Iterator[Unfinished]:
        """The lines that `read` has found the start of."""
        for number, reader in self._readers.items():
            if number not in self._unselected and (line := reader.unfinished()):
                yield Unfinished(self._streams[number], line)

    def tail(self, lines: int) -> None:
        """Skip all but the last `lines` of the present lines. Call it before reading.

        The last lines of all streams are among the last lines of each stream. So each stream starts
        at its own last lines, and surplus lines are dropped while reading. Does nothing if nodes
        share a stream: which lines are selected is known when the index is read.
        """
        if any(stream.shared for stream in self._streams.values()):
            return
        self._present = os.fstat(self._index).st_size
        self._old = {number: reader.keep_last(lines) for number, reader in self._readers.items()}
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
