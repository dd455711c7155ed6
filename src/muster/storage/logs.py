"""A run's output on disk: plain files, written by the processes themselves, and one index.

The index says when each file had grown how far. It is written by one process in the order of
time, so reading it from the start gives the lines of all nodes merged, and following it is
following one file. An end lower than the one before: the program has emptied its output.

    logs/0/streams.json     which files there are, and whose
    logs/0/index            records of (time in ns, stream number, end offset)
    logs/0/workers-3.out    what rank 3 wrote to stdout, to the byte
    logs/0/workers-3.1.out  what its process 1 wrote, where nodes have several
    logs/0/main-0.scheduler.log    what a service of the framework wrote
    logs/service.log        what Muster says of the run itself, over all attempts: time, message
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from muster.node.files import open_own, replace_file

ENTRY = struct.Struct("<qIQ")
END = 0xFFFFFFFF  # the stream number that says "nothing follows"
_BLOCK = 4096 * ENTRY.size  # of the index, read at a time
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StreamInfo(Struct, frozen=True):
    """One output file. local_rank: which of the node's processes writes it, None for the launcher
    that starts them; service: or which of its framework's services, with both its streams.

    rank: None, and no group nor node_id, of `MESSAGES` alone."""

    number: int
    file: str
    rank: int | None
    group: str
    node_id: str
    local_rank: int | None
    stream: Literal["stdout", "stderr", "service"]
    service: str = ""


#: What Muster itself says of a run. Readers make it from the run's events, which are the truth;
#: the file is there to be read by people, and by those who have nothing but the files.
MESSAGES = StreamInfo(-1, "service.log", None, "", "", None, "service")


def index_block(descriptor: int, offset: int) -> bytes:
    """Some whole entries of the index from `offset` on; empty at its end.

    Half an entry at the end is not there yet, or was left by a writer that was killed.
    """
    block = os.pread(descriptor, _BLOCK, offset)
    return block[: len(block) - len(block) % ENTRY.size]


class LogWriter:
    """Keeps the index of one attempt. There is one writer at a time; it may take over from one
    that was killed.

    A full disk stops no run: what cannot be noted now is noted with the next growth, and readers
    find what never was. Times never decrease, whatever the clock does.
    """

    def __init__(self, folder: Path, streams: Sequence[StreamInfo]) -> None:
        self._paths = {stream.number: folder / stream.file for stream in streams}
        self._noted = dict.fromkeys(self._paths, 0)
        self._time = 0
        self._index = open_own(folder / "index", os.O_RDWR | os.O_APPEND, 0o600)
        self._resume()
        listed = json.dumps([asdict(stream) for stream in streams])
        replace_file(folder / "streams.json", listed.encode())

    def _resume(self) -> None:
        """Know what a predecessor has noted; forget the half of an entry it may have left."""
        offset = 0
        while block := index_block(self._index, offset):
            for self._time, number, end in ENTRY.iter_unpack(block):
                self._noted[number] = end
            offset += len(block)
        os.ftruncate(self._index, offset)

    def note_growth(self, now_ns: int, numbers: Iterable[int]) -> None:
        """Note how far these streams have grown by now."""
        grown: dict[int, int] = {}
        for number in numbers:
            try:
                size = self._paths[number].stat().st_size
            except OSError:
                continue  # a program may remove its own output, or lead it round in a circle
            if size != self._noted[number]:
                grown[number] = size
        if grown and self._append(now_ns, grown):
            self._noted.update(grown)

    def finish(self, now_ns: int) -> None:
        """Say that nothing follows."""
        self._append(now_ns, {END: 0})

    def close(self) -> None:
        """Close the index; the run's output may still grow."""
        os.close(self._index)

    def _append(self, now_ns: int, ends: Mapping[int, int]) -> bool:
        """Whether there was room."""
        self._time = max(self._time, now_ns)
        entries = b"".join(ENTRY.pack(self._time, number, end) for number, end in ends.items())
        try:
            written = os.write(self._index, entries)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return False
        if written < len(entries):  # half an entry here would garble all that follow
            os.ftruncate(self._index, os.fstat(self._index).st_size - written)
            return False
        return True
