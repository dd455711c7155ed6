"""Read one output file as whole lines, each time from the end of the last read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from muster.node.files import open_regular
from muster.storage import shared_output
from muster.storage.log_index import Owner

#: Bytes per read and chunk, unless one line is longer. The C library maps larger buffers anew for
#: each chunk, which takes as long as all the rest.
CHUNK = 64 << 10
MAX_LINE = 1 << 20  # a line longer than this is cut
_CARRY = CHUNK // 4  # a longer partial line is not read again each time it grows
_CONTEXT = 256  # last returned bytes that are kept to detect truncation
_SHOWN = 4096  # bytes of an unfinished line that are of interest
_MAX_OPEN = 128  # files kept open


class OpenFiles:
    """Reads any number of files with a bounded number of descriptors."""

    def __init__(self) -> None:
        self._descriptors: dict[Path, int] = {}

    def read(self, path: Path, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; empty if the file is missing."""
        descriptor = self._open(path)
        return b"" if descriptor is None else os.pread(descriptor, length, offset)

    def size(self, path: Path) -> int:
        """The size in bytes; 0 if the file is missing."""
        descriptor = self._open(path)
        return 0 if descriptor is None else os.fstat(descriptor).st_size

    def close(self) -> None:
        """Close all files. A later read opens its file again."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _open(self, path: Path) -> int | None:
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            if len(self._descriptors) >= _MAX_OPEN:
                self.close()
            try:
                descriptor = self._open_new(path)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                return None  # a program may remove its output, or replace it by a pipe
            self._descriptors[path] = descriptor
        return descriptor

    def _open_new(self, path: Path) -> int:
        try:
            return open_regular(path)
        except OSError as error:
            if error.errno != errno.EMFILE or not self._descriptors:
                raise
            self.close()  # the limit of this process is below _MAX_OPEN
            return open_regular(path)


class OutputFile:
    """One output file."""

    #: The offset at which the output of the node that writes now starts.
    start = 0

    def __init__(self, path: Path, files: OpenFiles) -> None:
        self._path = path
        self._files = files

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`."""
        return self._files.read(self._path, offset, length)

    def size(self) -> int:
        """The size in bytes."""
        return self._files.size(self._path)

    def changed(self) -> int | None:
        """When it was last changed, in nanoseconds since the epoch; None if it is missing."""
        return _changed(self._path)


def _changed(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


class SharedFile(OutputFile):
    """The output of nodes that run one after another, in two files (`shared_output`)."""

    def __init__(self, path: Path, files: OpenFiles) -> None:
        super().__init__(path, files)
        self._present = shared_output.present_file(path)
        self.present_start = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `OutputFile.read`."""
        data = self._files.read(self._path, offset, length)
        at, missing = offset + len(data), length - len(data)
        if not missing or at < self.present_start:
            return data
        more = self._files.read(self._present, at - self.present_start, missing)
        if self._files.size(self._path) > at:  # it was collected meanwhile
            more = self._files.read(self._path, at, missing)
        return data + more

    def size(self) -> int:
        """See `OutputFile.size`."""
        collected = self._files.size(self._path)
        return max(collected, self.present_start + self._files.size(self._present))

    def changed(self) -> int | None:
        """See `OutputFile.changed`."""
        return max(filter(None, (_changed(self._path), _changed(self._present))), default=None)


class StreamReader:
    """A position in one output file.

    A program may truncate its output, as `tee /dev/stderr` does. The index does not always show
    that, since the file may have grown beyond its former size by the next entry. So a read
    continues at the position only if the bytes before it are unchanged; otherwise at the start.
    """

    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self._at = 0  # offset of the first unread byte
        self._searched = 0  # no newline between _at and here
        self._before_at = b""  # the bytes before _at

    def read_to(self, end: int) -> Iterator[bytes]:
        """Whole lines up to offset `end`, in chunks. A partial last line is left for later."""
        if self._before(self._at) != self._before_at:
            self._move(self._file.start)
        if end < self._searched:
            self._searched = self._at
        while self._searched < end:
            carried = self._searched - self._at
            start = self._at if carried < _CARRY else self._searched
            length = min(CHUNK, end - start, self._at + MAX_LINE + 1 - start)
            data = self._file.read(start, length)
            if len(data) < length:
                end = start + len(data)  # truncated meanwhile
            cut = data.rfind(b"\n") + 1
            if cut:
                yield self._advance(start + cut, data[:cut] if start == self._at else None)
            else:
                self._searched = start + len(data)
                if self._searched - self._at > MAX_LINE:
                    yield self._advance(self._at + MAX_LINE, None) + b"\n"

    def _advance(self, to: int, data: bytes | None) -> bytes:
        """Advance to offset `to` and return the bytes up to it. data: these bytes, if known."""
        if data is None:
            data = self._file.read(self._at, to - self._at)
        self._at = self._searched = to
        self._before_at = (self._before_at + data[-_CONTEXT:])[-_CONTEXT:]
        return data

    def read_rest(self) -> bytes:
        """The partial last line; empty if the file ends with a newline."""
        return self._advance(self._searched, None)

    def unfinished(self) -> bytes:
        """The end of the partial last line, as far as it was read."""
        start = max(self._at, self._searched - _SHOWN)
        if start == self._searched:
            return b""
        return self._file.read(start, self._searched - start)

    def keep_last(self, lines: int) -> int:
        """Move to the start of the last `lines` lines. Returns how many lines follow.

        A partial last line counts, and follows even if `lines` is 0: the caller drops it when it is
        complete.
        """
        size = self._file.size()
        ended = size == 0 or self._file.read(size - 1, 1) == b"\n"
        lines = max(lines, not ended)
        needed = missing = lines + ended  # newlines, including that of the last line
        start = block = size
        while block > 0 and missing > 0:
            previous, block = block, max(0, block - CHUNK)
            data = self._file.read(block, previous - block)
            at = len(data)
            while missing > 0 and (at := data.rfind(b"\n", 0, at)) >= 0:
                missing -= 1
            start = block + at + 1
        self._move(start)
        return needed - missing + (not ended) if missing else lines

    def change_owner(self, owner: Owner) -> None:
        """Another node writes the file, a shared one, from now on; what was before has been
        read."""
        if isinstance(self._file, SharedFile) and not owner.appends:
            self._file.present_start = owner.start
        self._file.start = owner.start
        self._move(owner.start)

    def skip_to(self, end: int) -> None:
        """Advance to an offset without reading."""
        self._move(end)

    def is_past(self, offset: int) -> bool:
        """Whether all whole lines up to an offset have been read or skipped."""
        return offset <= self._at

    def size(self) -> int:
        """The size of the file in bytes."""
        return self._file.size()

    def changed(self) -> int | None:
        """See `OutputFile.changed`."""
        return self._file.changed()

    def _move(self, to: int) -> None:
        self._at = self._searched = to
        self._before_at = self._before(to)

    def _before(self, offset: int) -> bytes:
        start = max(self._file.start, offset - _CONTEXT)
        return self._file.read(start, offset - start)
