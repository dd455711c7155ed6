"""One output file, read as whole lines from where the last reading ended."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from muster.node.files import open_regular

CHUNK = 256 << 10  # bytes read and given at a time, unless one line is longer
LONGEST = 1 << 20  # a line longer than this is cut
_CARRY = CHUNK // 4  # a longer unfinished line is not read again for every note of its growth
_GIVEN = 256  # bytes remembered of what was given last
_OPEN = 128  # files kept open


class OpenFiles:
    """Reads any number of files with a bounded number of descriptors."""

    def __init__(self) -> None:
        self._descriptors: dict[Path, int] = {}

    def read(self, path: Path, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; none of a file that is not there."""
        descriptor = self._open(path)
        return b"" if descriptor is None else os.pread(descriptor, length, offset)

    def size(self, path: Path) -> int:
        """In bytes; 0 of a file that is not there."""
        descriptor = self._open(path)
        return 0 if descriptor is None else os.fstat(descriptor).st_size

    def close(self) -> None:
        """Close all; the next reading opens again."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _open(self, path: Path) -> int | None:
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            if len(self._descriptors) >= _OPEN:
                self.close()
            try:
                descriptor = self._open_new(path)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                return None  # a program may remove its own output, or make it a pipe
            self._descriptors[path] = descriptor
        return descriptor

    def _open_new(self, path: Path) -> int:
        try:
            return open_regular(path)
        except OSError as error:
            if error.errno != errno.EMFILE or not self._descriptors:
                raise
            self.close()  # this process may open fewer files than most
            return open_regular(path)


class StreamReader:
    """A place in one output file.

    A program may empty its own output, as `tee /dev/stderr` does, and the index need not show it:
    the file may have grown beyond its former end by the next note. So a place is good as long as
    what lies before it is what was given; else what is in the file now is given from its start.
    """

    def __init__(self, path: Path, files: OpenFiles) -> None:
        self._path = path
        self._files = files
        self._at = 0  # the first byte not given yet
        self._searched = 0  # no newline between _at and here
        self._given = b""  # what lies before _at

    def upto(self, end: int) -> Iterator[bytes]:
        """Whole lines up to offset `end`, in chunks; what follows the last newline waits."""
        if self._before(self._at) != self._given:
            self._move(0)
        if end < self._searched:
            self._searched = self._at
        while self._searched < end:
            carried = self._searched - self._at
            start = self._at if carried < _CARRY else self._searched
            wanted = min(CHUNK, end - start, self._at + LONGEST + 1 - start)
            data = self._files.read(self._path, start, wanted)
            if len(data) < wanted:
                end = start + len(data)  # cut short under us
            cut = data.rfind(b"\n") + 1
            if cut:
                yield self._take(start + cut, data[:cut] if start == self._at else None)
            else:
                self._searched = start + len(data)
                if self._searched - self._at > LONGEST:
                    yield self._take(self._at + LONGEST, None) + b"\n"

    def _take(self, to: int, data: bytes | None) -> bytes:
        """Give what is before offset `to`, and be there."""
        if data is None:
            data = self._files.read(self._path, self._at, to - self._at)
        self._at = self._searched = to
        self._given = (self._given + data[-_GIVEN:])[-_GIVEN:]
        return data

    def rest(self) -> bytes:
        """The last line, which nothing will end any more; empty if there is none."""
        return self._take(self._searched, None)

    def keep_last(self, lines: int) -> int:
        """Go to where the last `lines` lines of the file begin; how many lines follow.

        An unfinished last line counts, and is kept even if no line is wanted: whoever counts what
        comes drops it whole.
        """
        size = self._files.size(self._path)
        ended = size == 0 or self._files.read(self._path, size - 1, 1) == b"\n"
        lines = max(lines, not ended)
        wanted = missing = lines + ended  # newlines: the one that ends the last line begins none
        begin = block = size
        while block > 0 and missing > 0:
            previous, block = block, max(0, block - CHUNK)
            data = self._files.read(self._path, block, previous - block)
            at = len(data)
            while missing > 0 and (at := data.rfind(b"\n", 0, at)) >= 0:
                missing -= 1
            begin = block + at + 1
        self._move(begin)
        return wanted - missing + (not ended) if missing else lines

    def _move(self, to: int) -> None:
        self._at = self._searched = to
        self._given = self._before(to)

    def _before(self, offset: int) -> bytes:
        start = max(0, offset - _GIVEN)
        return self._files.read(self._path, start, offset - start)
