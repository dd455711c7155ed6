"""The output of a run on disk: plain files that the processes write, and one index per attempt.

Each index entry records the size of one file at one time. One process writes the index in the order
of time, so that reading it from the start merges the lines of all nodes, and following a run's
output means to follow one file. A size below the previous one: the program truncated its output.

    logs/0/streams.json     the streams: their files and writers
    logs/0/index            records of (time in ns, stream number, end offset), and of (time in ns,
                            stream number | OWNER, rank and start): from that offset on, the stream
                            has the output of another node (`shared_output`)
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
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from muster.node.files import file_size, open_or_replace, replace_file
from muster.storage import shared_output

ENTRY = struct.Struct("<qIQ")
END = 0xFFFFFFFF  # the stream number of the last entry: no output follows
#: Marks the number of a stream in an entry that names the node which writes it from now on.
OWNER = 0x80000000
#: Marks it too if that node appends to the present file of the one before.
_APPENDS = 0x40000000
_START_BITS = 40
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
    #: Whether nodes of an array write it one after another (`shared_output`): `rank` is that of
    #: the first, until an entry of the index names another one.
    shared: bool = False

    def of_owner(self, owner: Owner) -> StreamInfo:
        """A shared stream from an entry of the index on that names its owner."""
        run_id = self.node_id.removesuffix(f"-{self.rank}")
        return replace(self, rank=owner.rank, node_id=f"{run_id}-{owner.rank}")


#: Muster's messages about a run. Readers derive them from the run's events; the file is for people
#: and for readers that have only the files.
MESSAGES = StreamInfo(-1, "service.log", None, "", "", None, "service")


def index_block(descriptor: int, offset: int) -> bytes:
    """Some whole entries of the index from `offset` on; empty at its end.

    A partial entry at the end is being written, or was left by a writer that was killed.
    """
    block = os.pread(descriptor, _BLOCK, offset)
    return block[: len(block) - len(block) % ENTRY.size]


def is_finished(folder: Path) -> bool:
    """Whether no output of an attempt follows, as its index says; also if it has none. folder: of
    the attempt."""
    try:
        descriptor = os.open(folder / "index", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return True
    try:
        whole = os.fstat(descriptor).st_size // ENTRY.size
        last = os.pread(descriptor, ENTRY.size, max(whole - 1, 0) * ENTRY.size)
    finally:
        os.close(descriptor)
    return len(last) == ENTRY.size and ENTRY.unpack(last)[1] == END


class Owner(NamedTuple):
    """The node that writes a shared stream."""

    rank: int
    #: The offset at which its output starts.
    start: int
    #: Whether it appends to the present file of the owner before it, whose output could not be
    #: collected.
    appends: bool = False

    def entry(self, number: int) -> tuple[int, int]:
        """As in an entry of the index, for the stream with a number. Raises OSError if the stream
        is too large for that."""
        if self.start >> _START_BITS:
            raise OSError(errno.EFBIG, "the output of the slot is too large")
        marks = OWNER | (_APPENDS if self.appends else 0)
        return number | marks, self.rank << _START_BITS | self.start

    @classmethod
    def of_entry(cls, number: int, value: int) -> tuple[int, Owner]:
        """The inverse of `entry`."""
        start = value & ((1 << _START_BITS) - 1)
        owner = cls(value >> _START_BITS, start, bool(number & _APPENDS))
        return number & ~(OWNER | _APPENDS), owner


class _Shared(Struct):
    """A shared stream, as its writer knows it."""

    #: The offset at which the present file starts.
    start: int = 0
    #: The largest offset that readers know of.
    end: int = 0
    #: The node that writes it, and the one that the index names.
    owner: Owner | None = None
    named: Owner | None = None
    #: Whether the present file is empty.
    collected: bool = False
    #: Where the present file started when the last entry was written.
    named_start: int = 0

    def resume(self, owner: Owner) -> None:
        """An entry of the index names the owner."""
        self.named = owner
        self.start = self.start if owner.appends else owner.start
        self.end, self.named_start = owner.start, self.start


class LogWriter:
    """Writes the index of one attempt. Only one writer exists at a time; it may continue the index
    of one that was killed.

    A full disk does not stop a run: growth that cannot be recorded is recorded with the next entry,
    and readers also find output that is not in the index. Output of a shared stream that cannot be
    collected stays where it is, and the next node appends to it. Times never decrease, even if the
    clock does.
    """

    def __init__(self, folder: Path, streams: Sequence[StreamInfo]) -> None:
        self._paths = {stream.number: folder / stream.file for stream in streams}
        self._recorded = dict.fromkeys(self._paths, 0)
        self._shared = {stream.number: _Shared() for stream in streams if stream.shared}
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
                if number & OWNER and number != END:
                    shared_number, owner = Owner.of_entry(number, end)
                    if shared_number in self._shared:
                        self._shared[shared_number].resume(owner)
                else:
                    self._recorded[number] = end
                    if (shared := self._shared.get(number)) is not None:
                        shared.end = max(shared.end, end)
            offset += len(block)
        os.ftruncate(self._index, offset)
        for number, shared in self._shared.items():
            path = self._paths[number]
            if not shared_output.is_continued(path, shared.start):
                # a node of which nothing was recorded, as on a full disk
                shared.start = shared.end = max(shared.end, file_size(str(path)))

    def set_owner(self, now_ns: int, numbers: Iterable[int], rank: int) -> None:
        """Another node writes these shared streams from now on. Raises OSError."""
        owners = {}
        for number in numbers:
            shared, path = self._shared[number], self._paths[number]
            if not shared.collected:
                self.note_growth(now_ns, [number])
                self.collect(number)
            start = shared.start
            if not shared.collected:
                start = max(shared.end, start + shared_output.present_size(path))
            shared.owner, shared.end = Owner(rank, start, not shared.collected), start
            shared.collected = False
            if shared.owner != shared.named:
                owners[number] = shared.owner
        self._append(now_ns, {}, owners)

    def keep_owner(self, now_ns: int, numbers: Iterable[int], rank: int) -> None:
        """A node continues that wrote these shared streams when an earlier writer was killed: what
        was collected of it then is collected again, to the same place. Raises OSError."""
        others = []
        for number in numbers:
            shared = self._shared[number]
            if shared.named is not None and shared.named.rank == rank:
                shared.owner, shared.start = shared.named, shared.named_start
                shared.collected = False
            else:  # it could not be recorded, as on a full disk
                others.append(number)
        self.set_owner(now_ns, others, rank)

    def collect(self, number: int) -> None:
        """Collect the output of the node that wrote a shared stream; it has ended. What cannot be
        collected now is collected when the stream has another owner."""
        shared = self._shared[number]
        try:
            end = shared_output.collect(self._paths[number], shared.start, shared.end)
        except OSError:  # a full disk, or a program has put a folder there
            return
        shared.start = shared.end = end
        shared.collected = True

    def note_growth(self, now_ns: int, numbers: Iterable[int]) -> None:
        """Record the present sizes of these streams."""
        grown: dict[int, int] = {}
        owners: dict[int, Owner] = {}
        for number in numbers:
            shared = self._shared.get(number)
            if shared is not None:
                present = shared_output.present_size(self._paths[number])
                if not present:
                    continue
                size = shared.start + present
                if shared.owner is not None and shared.owner != shared.named:
                    owners[number] = shared.owner
            else:
                try:
                    size = os.stat(self._paths[number]).st_size
                except OSError:
                    continue  # a program may remove its output, or replace it by a link to itself
            if size != self._recorded[number]:
                grown[number] = size
        if grown:
            self._append(now_ns, grown, owners)

    def finish(self, now_ns: int) -> None:
        """Record that no output follows."""
        self._append(now_ns, {END: 0})

    def close(self) -> None:
        """Close the index. The output may still grow."""
        os.close(self._index)

    def _append(
        self, now_ns: int, ends: Mapping[int, int], owners: Mapping[int, Owner] | None = None
    ) -> None:
        """Write entries, those of new owners first. Nothing is written if the disk is full."""
        self._time = max(self._time, now_ns)
        named = owners or {}
        pairs = [*(owner.entry(number) for number, owner in named.items()), *ends.items()]
        entries = b"".join(ENTRY.pack(self._time, number, value) for number, value in pairs)
        if not entries:
            return
        try:
            written = os.write(self._index, entries)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return
        if written < len(entries):  # a partial entry would corrupt all that follow
            os.ftruncate(self._index, os.fstat(self._index).st_size - written)
            return
        for number, owner in named.items():
            self._shared[number].named = owner
        for number in self._recorded.keys() & ends.keys():
            self._recorded[number] = ends[number]
            if (shared := self._shared.get(number)) is not None:
                shared.end = max(shared.end, ends[number])
