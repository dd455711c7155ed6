"""Read one output file as whole lines, each time from the end of the last read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from muster.node.files import open_regular

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


class StreamReader:
    """A position in one output file.

    A program may truncate its output, as `tee /dev/stderr` does. The index does not always show
    that, since the file may have grown beyond its former size by the next entry. So a read
    continues at the position only if the bytes before it are unchanged; otherwise at the start.
    """

    def __init__(self, path: Path, files: OpenFiles) -> None:
        self._path = path
        self._files = files
        self._at = 0  # offset of the first unread byte
        self._searched = 0  # no newline between _at and here
        self._before_at = b""  # the bytes before _at

    def read_to(self, end: int) -> Iterator[bytes]:
        """Whole lines up to offset `end`, in chunks. A partial last line is left for later."""
        if self._before(self._at) != self._before_at:
            self._move(0)
        if end < self._searched:
            self._searched = self._at
        while self._searched < end:
            carried = self._searched - self._at
            start = self._at if carried < _CARRY else self._searched
            length = min(CHUNK, end - start, self._at + MAX_LINE + 1 - start)
            data = self._files.read(self._path, start, length)
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
            data = self._files.read(self._path, self._at, to - self._at)
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
        return self._files.read(self._path, start, self._searched - start)

    def keep_last(self, lines: int) -> int:
        """Move to the start of the last `lines` lines. Returns how many lines follow.

        A partial last line counts, and follows even if `lines` is 0: the caller drops it when it is
        complete.
        """
        size = self._files.size(self._path)
        ended = size == 0 or self._files.read(self._path, size - 1, 1) == b"\n"
        lines = max(lines, not ended)
        needed = missing = lines + ended  # newlines, including that of the last line
        start = block = size
        while block > 0 and missing > 0:
            previous, block = block, max(0, block - CHUNK)
            data = self._files.read(self._path, block, previous - block)
            at = len(data)
            while missing > 0 and (at := data.rfind(b"\n", 0, at)) >= 0:
                missing -= 1
            start = block + at + 1
        self._move(start)
        return needed - missing + (not ended) if missing else lines

    def _move(self, to: int) -> None:
        self._at = self._searched = to
        self._before_at = self._before(to)

    def _before(self, offset: int) -> bytes:
        start = max(0, offset - _CONTEXT)
        return self._files.read(self._path, start, offset - start)
