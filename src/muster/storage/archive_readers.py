"""Zip and tar under one roof: entries with clean names, their bytes, and one way to fail.

Nothing is believed. Sizes, counts and names come from whoever made the archive, and the standard
library's tar reader takes the length of a header at its word.
"""

from __future__ import annotations

import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from msgspec import Struct

from muster.errors import InvalidInput, Problem

_BLOCK = 1 << 20
#: POSIX PATH_MAX and NAME_MAX of every file system that matters.
_MAX_PATH, _MAX_NAME = 4096, 255
#: What one tar entry may spend on headers. Long names and attributes need a few KiB.
_MAX_HEADER, _MAX_HEADER_READS = 64 << 10, 64
#: No name is that long; the standard library's search for numbers is quadratic in such a run.
_DIGITS = re.compile(rb"\d{300}")
#: What reading an archive raises that is not one, or not whole, or of a kind nobody can read.
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    OverflowError,
    NotImplementedError,
)


class Entry(Struct, frozen=True):
    """name: relative, clean, "" for the root itself. kind: file, folder, symlink or hardlink.

    size: bytes of a file. cost: bytes it takes to read, headers and all. link: where a link leads.
    key: how the reader finds its bytes.
    """

    name: str
    kind: str
    size: int
    cost: int
    mode: int
    key: object
    link: str = ""


class Reader(Protocol):
    """An open archive. Both methods raise InvalidInput if it is damaged or refused."""

    name: str

    def entries(self) -> Iterator[Entry]:
        """Every entry, in the archive's order, each checked by itself."""

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        """The bytes of a file."""


@contextmanager
def open_archive(path: Path, name: str) -> Iterator[Reader]:
    """Open by what the archive is called. Raises InvalidInput if it is none."""
    with open(path, "rb") as file:
        if name.lower().endswith(".zip"):
            with _mended(name):
                archive = zipfile.ZipFile(file)
            with archive:
                yield _Zip(archive, name)
        else:
            with _mended(name):
                stream = _decompressed(file)
            with stream:
                yield _Tar(stream, name)


def refusal(name: str, why: str) -> InvalidInput:
    """The archive is not taken. What it says of itself is shown without control characters."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in why)
    text = f"{name} is refused: {shown}"
    return InvalidInput(Problem("artifact", text, "make it without that"))


@contextmanager
def _mended(name: str) -> Iterator[None]:
    """Failures of the libraries, as one error a person can act on."""
    try:
        yield
    except _DAMAGE as error:
        why = str(error).partition("\n")[0] or "it ends too early"
        text = f"{name} is damaged or no archive: {why}"
        raise InvalidInput(Problem("artifact", text, "make it again")) from None


class _Zip:
    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self.name = name
        self._archive = archive

    def entries(self) -> Iterator[Entry]:
        for info in self._archive.infolist():
            mode = info.external_attr >> 16
            if info.flag_bits & 1:
                raise refusal(self.name, f"{info.filename} is encrypted")
            folder = info.is_dir()
            name = _clean(self.name, info.filename, folder=folder)
            if folder:
                yield Entry(name, "folder", 0, 0, mode, info)
            elif stat.S_ISLNK(mode):
                if info.file_size > _MAX_PATH:
                    raise refusal(self.name, f"the link {name} is too long")
                with _mended(self.name):
                    link = os.fsdecode(self._archive.read(info))
                yield _link(self.name, Entry(name, "symlink", 0, 0, mode, info, link))
            elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise refusal(self.name, f"{name} is neither file, folder nor link")
            else:
                yield Entry(name, "file", info.file_size, info.file_size, mode, info)

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        with _mended(self.name):
            file = self._archive.open(cast(zipfile.ZipInfo, entry.key))
        with file:
            while block := self._read(file):
                yield block

    def _read(self, file: IO[bytes]) -> bytes:
        with _mended(self.name):
            return file.read(_BLOCK)


class _Tar:
    def __init__(self, stream: IO[bytes], name: str) -> None:
        self.name = name
        self._stream = stream

    def entries(self) -> Iterator[Entry]:
        headers = _Headers(self._stream, self.name)
        with _mended(self.name):
            archive = tarfile.TarFile(fileobj=cast("IO[bytes]", headers))
        while (info := self._next(archive)) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # it would keep all
            yield self._entry(info, headers.spent())
        yield from self._rest(archive.offset)

    def _next(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        with _mended(self.name):
            return archive.next()

    def _entry(self, info: tarfile.TarInfo, header: int) -> Entry:
        name = _clean(self.name, info.name, folder=info.isdir())
        where = (info.offset_data, info.size)
        if info.isdir():
            return Entry(name, "folder", 0, header, info.mode, where)
        if info.issym():
            return _link(self.name, Entry(name, "symlink", 0, header, 0, where, info.linkname))
        if info.islnk():
            link = _clean(self.name, info.linkname, folder=False)
            return Entry(name, "hardlink", 0, header, 0, where, link)
        if info.issparse():
            raise refusal(self.name, f"{name} is a sparse file")
        if info.isreg():
            return Entry(name, "file", info.size, info.size + header, info.mode, where)
        raise refusal(self.name, f"{name} is neither file, folder nor link")

    def _rest(self, offset: int) -> Iterator[Entry]:
        """What follows the last entry: zeros, or the reader has stopped at a damaged header.

        Read to the end, which is where compressed tars are proven whole.
        """
        with _mended(self.name):
            self._stream.seek(offset)
            block = self._stream.read(tarfile.BLOCKSIZE)
            if block.strip(b"\0"):
                raise tarfile.ReadError("one of its headers is not one")
        while block:
            yield Entry("", "folder", 0, len(block), 0, None)
            with _mended(self.name):
                block = self._stream.read(_BLOCK)

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        offset, left = cast("tuple[int, int]", entry.key)
        with _mended(self.name):
            self._stream.seek(offset)
        while left:
            with _mended(self.name):
                block = self._stream.read(min(left, _BLOCK))
                if not block:
                    raise EOFError
            left -= len(block)
            yield block


class _Headers:
    """A tar's stream as its headers are read: so much for each entry, and no more."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream = stream
        self._name = name
        self._bytes = self._reads = 0

    def spent(self) -> int:
        """Bytes read since the last time it was asked."""
        spent = self._bytes
        self._bytes = self._reads = 0
        return spent

    def read(self, size: int) -> bytes:
        self._bytes += size
        self._reads += 1
        if self._bytes > _MAX_HEADER or self._reads > _MAX_HEADER_READS:
            raise refusal(self._name, "an entry has more than 64 KiB of headers")
        data = self._stream.read(size)
        if _DIGITS.search(data):
            raise refusal(self._name, "a header holds a number of more than 300 digits")
        return data

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int) -> int:
        return self._stream.seek(offset)


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    """The tar in a file, whatever it is packed with; told by how it begins."""
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        import gzip

        return cast("IO[bytes]", gzip.GzipFile(fileobj=file))
    if start.startswith(b"BZh"):
        import bz2

        return cast("IO[bytes]", bz2.BZ2File(file))
    if start.startswith(b"\xfd7zXZ\0"):
        return cast("IO[bytes]", lzma.LZMAFile(file))
    return file


def _clean(archive: str, name: str, *, folder: bool) -> str:
    path = PurePosixPath(name)
    # a backslash is a separator to who made it on Windows, and part of the name here
    if path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
        raise refusal(archive, f"{name!r} would land outside of it")
    if not path.parts and not folder:
        raise refusal(archive, f"it holds a file called {name!r}")
    with _mended(archive):
        lengths = [len(os.fsencode(part)) for part in path.parts]
    if max(lengths, default=0) > _MAX_NAME or sum(lengths) + len(lengths) > _MAX_PATH // 2:
        raise refusal(archive, f"the name {name[:60]}... is too long")
    return "/".join(path.parts)


def _link(archive: str, entry: Entry) -> Entry:
    if not entry.link or "\0" in entry.link or len(entry.link) > _MAX_PATH:
        raise refusal(archive, f"the link {entry.name} leads nowhere")
    return entry
