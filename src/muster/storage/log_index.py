"""The output of a run on disk: plain files that the processes write, and one index per attempt.

Each index entry records the size of one file at one time. One process writes the index in the order
of time, so that reading it from the start merges the lines of all nodes, and following a run's
output means to follow one file. A size below the previous one: the program truncated its output.

    logs/0/streams.json     the streams: their files and writers
    logs/0/index            records of (time in ns, stream number, end offset)
    logs/0/workers-3.out    stdout of rank 3, unchanged
    logs/0/workers-3.1.out  stdout of its process 1, if nodes have several
    logs/0/main-0.scheduler.log    output of a service of the framework
    logs/service.log        Muster's messages about all attempts: time, message
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

from muster.node.files import open_or_replace, replace_file

ENTRY = struct.Struct("<qIQ")
END = 0xFFFFFFFF  # the stream number of the last entry: no output follows
_BLOCK = 4096 * ENTRY.size  # bytes of the index per read
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StreamInfo(Struct, frozen=True):
    """One output file."""

    #: Identifies the stream in the index.
    number: int
    #: Name of the file in the attempt's folder.
    file: str
    #: The node's rank; None only for `MESSAGES`, which also has no group and no node_id.
    rank: int | None
    group: str
    node_id: str
    #: The process of the node that writes the file; None for the launcher that starts them.
    local_rank: int | None
    stream: Literal["stdout", "stderr", "service"]
    #: The framework's service that writes the file; both its streams are in it.
    service: str = ""


#: Muster's messages about a run. Readers derive them from the run's events; the file is for people
#: and for readers that have only the files.
MESSAGES = StreamInfo(-1, "service.log", None, "", "", None, "service")


def index_block(descriptor: int, offset: int) -> bytes:
    """Some whole entries of the index from `offset` on; empty at its end.

    A partial entry at the end is being written, or was left by a writer that was killed.
    """
    block = os.pread(descriptor, _BLOCK, offset)
    return block[: len(block) - len(block) % ENTRY.size]


class LogWriter:
    """Writes the index of one attempt. Only one writer exists at a time; it may continue the index
    of one that was killed.

    A full disk does not stop a run: growth that cannot be recorded is recorded with the next entry,
    and readers also find output that is not in the index. Times never decrease, even if the clock
    does.
    """

    def __init__(self, folder: Path, streams: Sequence[StreamInfo]) -> None:
        self._paths = {stream.number: folder / stream.file for stream in streams}
        self._recorded = dict.fromkeys(self._paths, 0)
        self._time = 0
        self._index = open_or_replace(folder / "index", os.O_RDWR | os.O_APPEND, 0o600)
        self._resume()
        listed = json.dumps([asdict(stream) for stream in streams])
        replace_file(folder / "streams.json", listed.encode())

    def _resume(self) -> None:
        """Read the entries of an earlier writer, and remove a partial last entry."""
        offset = 0
        while block := index_block(self._index, offset):
            for self._time, number, end in ENTRY.iter_unpack(block):
                self._recorded[number] = end
            offset += len(block)
        os.ftruncate(self._index, offset)

    def note_growth(self, now_ns: int, numbers: Iterable[int]) -> None:
        """Record the present sizes of these streams."""
        grown: dict[int, int] = {}
        for number in numbers:
            try:
                size = self._paths[number].stat().st_size
            except OSError:
                continue  # a program may remove its output, or replace it by a link to itself
            if size != self._recorded[number]:
                grown[number] = size
        if grown and self._append(now_ns, grown):
            self._recorded.update(grown)

    def finish(self, now_ns: int) -> None:
        """Record that no output follows."""
        self._append(now_ns, {END: 0})

    def close(self) -> None:
        """Close the index. The output may still grow."""
        os.close(self._index)

    def _append(self, now_ns: int, ends: Mapping[int, int]) -> bool:
        """Write entries. Returns False if the disk is full."""
        self._time = max(self._time, now_ns)
        entries = b"".join(ENTRY.pack(self._time, number, end) for number, end in ends.items())
        try:
            written = os.write(self._index, entries)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return False
        if written < len(entries):  # a partial entry would corrupt all that follow
            os.ftruncate(self._index, os.fstat(self._index).st_size - written)
            return False
        return True
