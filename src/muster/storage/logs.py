"""A run's output on disk: plain files, written by the processes themselves, and one index.

The index says when each file had grown how far. It is written by one process in the order of
time, so reading it from the start gives the lines of all nodes merged, and following it is
following one file.

    logs/0/streams.json     which files there are, and whose
    logs/0/index            records of (time in ns, stream number, end offset)
    logs/0/workers-3.out    what rank 3 wrote to stdout, to the byte
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

ENTRY = struct.Struct("<qIQ")
END = 0xFFFFFFFF  # the stream number that says "nothing follows"


class StreamInfo(Struct, frozen=True):
    """One output file. local_rank: which of the node's processes writes it."""

    number: int
    file: str
    rank: int
    group: str
    node_id: str
    local_rank: int
    stream: Literal["stdout", "stderr"]


class LogWriter:
    """Keeps the index of one attempt. There is one writer at a time; it may take over from one
    that was killed."""

    def __init__(self, folder: Path, streams: Sequence[StreamInfo]) -> None:
        self._paths = [folder / stream.file for stream in streams]
        self._noted = [0] * len(streams)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._index = os.open(folder / "index", flags, 0o600)
        self._resume()
        part = folder / "streams.json.part"
        part.write_text(json.dumps([asdict(stream) for stream in streams]))
        part.replace(folder / "streams.json")

    def _resume(self) -> None:
        """Know what a predecessor has noted; forget the half of a record it may have left."""
        size = os.fstat(self._index).st_size
        whole = size - size % ENTRY.size
        if whole != size:
            os.ftruncate(self._index, whole)
        for _, number, end in ENTRY.iter_unpack(os.pread(self._index, whole, 0)):
            if number != END:
                self._noted[number] = end

    def note_growth(self, now_ns: int, numbers: Iterable[int]) -> None:
        """Note how far these streams have grown by now."""
        entries = b""
        for number in numbers:
            try:
                size = os.stat(self._paths[number]).st_size
            except FileNotFoundError:
                continue  # a program may remove its own output
            if size > self._noted[number]:
                self._noted[number] = size
                entries += ENTRY.pack(now_ns, number, size)
        if entries:
            os.write(self._index, entries)

    def finish(self, now_ns: int) -> None:
        """Say that nothing follows."""
        os.write(self._index, ENTRY.pack(now_ns, END, 0))

    def close(self) -> None:
        os.close(self._index)
