"""Reading a run's output back: whole lines, merged by time, in bounded memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from muster.storage.logs import END, ENTRY, StreamInfo

_CHUNK = 256 << 10  # bytes read at a time
_LONGEST = 1 << 20  # a line longer than this is cut
_OPEN = 128  # files kept open
_BLOCK = 4096 * ENTRY.size  # of the index, read at a time


class LogChunk(Struct, frozen=True):
    """Some lines of one stream. data: ends with a newline; time_ns: when they were noted."""

    time_ns: int
    stream: StreamInfo
    data: bytes


class LogRecord(Struct, frozen=True):
    """One line. time: epoch seconds; message: without its newline."""

    time: float
    rank: int
    group: str
    node_id: str
    attempt: int
    stream: str
    message: str
    local_rank: int


def records(chunk: LogChunk, attempt: int = 0) -> Iterator[LogRecord]:
    """The lines of a chunk, one by one. What is not UTF-8 is replaced."""
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
        )


def prefixed(chunk: LogChunk, prefix: bytes) -> bytes:
    """The chunk's text with `prefix` before every line."""
    return prefix + chunk.data[:-1].replace(b"\n", b"\n" + prefix) + b"\n"


class LogCursor:
    """A place in a run's output; reading moves it on.

    folder: that of one attempt. select: which streams; None = all.
    """

    def __init__(self, folder: Path, select: Callable[[StreamInfo], bool] | None = None) -> None:
        self._folder = folder
        listed = json.loads((folder / "streams.json").read_text())
        streams = [StreamInfo(**stream) for stream in listed]
        self._streams = {s.number: s for s in streams if select is None or select(s)}
        self._at = dict.fromkeys(self._streams, 0)
        self._index = os.open(folder / "index", os.O_RDONLY | os.O_CLOEXEC)
        self._offset = 0
        self._skip = 0
        self._files: dict[int, int] = {}
        self.finished = False

    def read(self) -> Iterator[LogChunk]:
        """What was noted since the last time."""
        while not self.finished:
            block = os.pread(self._index, _BLOCK, self._offset)
            block = block[: len(block) - len(block) % ENTRY.size]
            if not block:
                return
            for time_ns, number, end in ENTRY.iter_unpack(block):
                self._offset += ENTRY.size
                if number == END:
                    self.finished = True
                elif number in self._streams:
                    yield from self._lines(time_ns, number, end)

    def drain(self) -> Iterator[LogChunk]:
        """What nobody noted, because the writer was killed, and last lines without a newline."""
        for number, stream in self._streams.items():
            try:
                status = os.stat(self._folder / stream.file)
            except FileNotFoundError:
                continue
            yield from self._lines(status.st_mtime_ns, number, status.st_size)
            rest = self._pread(number, self._at[number], _LONGEST)
            if rest:
                self._at[number] += len(rest)
                yield from self._emit(status.st_mtime_ns, number, rest + b"\n")

    def close(self) -> None:
        os.close(self._index)
        self._close_files()

    def _lines(self, time_ns: int, number: int, end: int) -> Iterator[LogChunk]:
        """Whole lines up to offset `end`; what follows the last newline waits."""
        room = _CHUNK
        while self._at[number] < end:
            start = self._at[number]
            data = self._pread(number, start, min(room, end - start))
            if not data:
                return  # the file was cut short under us
            cut = data.rfind(b"\n") + 1
            if cut == 0 and len(data) < _LONGEST:
                if start + len(data) >= end:
                    return
                room = min(room * 2, _LONGEST)
                continue
            room = _CHUNK
            self._at[number] += cut or len(data)
            yield from self._emit(time_ns, number, data[:cut] if cut else data + b"\n")

    def _emit(self, time_ns: int, number: int, data: bytes) -> Iterator[LogChunk]:
        if self._skip:
            lines = data.count(b"\n")
            dropped = min(self._skip, lines)
            self._skip -= dropped
            data = b"\n".join(data.split(b"\n")[dropped:])
        if data:
            yield LogChunk(time_ns, self._streams[number], data)

    def tail(self, lines: int) -> None:
        """Leave out all but the last `lines` lines noted so far. Call before reading.

        A line among the last of all is among the last of its stream; so each stream starts at its
        own last lines, and what those are too many is skipped as it comes.
        """
        candidates = 0
        for number, noted in self._noted().items():
            start, found = self._last_lines(number, noted, lines)
            self._at[number] = start
            candidates += found
        self._skip = max(0, candidates - lines)

    def _noted(self) -> dict[int, int]:
        """How far the index has followed each stream."""
        noted: dict[int, int] = {}
        offset = 0
        while block := os.pread(self._index, _BLOCK, offset):
            block = block[: len(block) - len(block) % ENTRY.size]
            if not block:
                break
            offset += len(block)
            noted.update((n, end) for _, n, end in ENTRY.iter_unpack(block) if n in self._streams)
        return noted

    def _last_lines(self, number: int, end: int, lines: int) -> tuple[int, int]:
        """Where the last whole lines before `end` begin, and how many there are (<= lines)."""
        found = -1  # the newline that ends the last line begins no other
        while end > 0:
            start = max(0, end - _CHUNK)
            data = self._pread(number, start, end - start)
            at = len(data)
            while (at := data.rfind(b"\n", 0, at)) >= 0:
                found += 1
                if found == lines:
                    return start + at + 1, lines
            end = start
        return 0, max(found + 1, 0)

    def _pread(self, number: int, offset: int, length: int) -> bytes:
        descriptor = self._files.get(number)
        if descriptor is None:
            if len(self._files) >= _OPEN:
                self._close_files()
            path = self._folder / self._streams[number].file
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
            self._files[number] = descriptor
        return os.pread(descriptor, length, offset)

    def _close_files(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
