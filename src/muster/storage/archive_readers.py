"""Read zip and tar archives through one interface, with validated names and one kind of error.

Archives are untrusted: sizes, counts and names are checked here, because the standard library's tar
reader trusts the length in a header.
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
#: PATH_MAX and NAME_MAX of Linux, in bytes.
_MAX_PATH, _MAX_NAME = 4096, 255
#: Maximum bytes and reads for the headers of one tar entry; long names need a few KiB.
_MAX_HEADER, _MAX_HEADER_READS = 64 << 10, 64
#: Refused in headers: the standard library takes quadratic time to parse such a number.
_DIGITS = re.compile(rb"\d{300}")
#: Errors that the libraries raise for a damaged, truncated or unsupported archive.
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
    """One entry of an archive."""

    #: A relative, normalized path; "" for the root.
    name: str
    #: file, folder, symlink or hardlink.
    kind: str
    #: Bytes of a file.
    size: int
    #: Bytes to read for the entry, including its headers.
    cost: int
    mode: int
    #: Identifies the entry's content to its reader.
    key: object
    #: The target of a link.
    link: str = ""


class Reader(Protocol):
    """An open archive. Both methods raise InvalidInput if it is damaged or refused."""

    name: str

    def entries(self) -> Iterator[Entry]:
        """The entries in the archive's order, each validated on its own."""

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        """The content of a file, in blocks."""


@contextmanager
def open_archive(path: Path, name: str) -> Iterator[Reader]:
    """Open an archive whose format follows from its name. Raises InvalidInput if it is not one."""
    with open(path, "rb") as file:
        if name.lower().endswith(".zip"):
            with _translated_errors(name):
                archive = zipfile.ZipFile(file)
            with archive:
                yield _Zip(archive, name)
        else:
            with _translated_errors(name):
                stream = _decompressed(file)
            with stream:
                yield _Tar(stream, name)


def refusal(name: str, why: str) -> InvalidInput:
    """The error for an archive that is refused. Control characters in the reason are escaped."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in why)
    text = f"{name} is refused: {shown}"
    return InvalidInput(Problem("artifact", text, "create it without that"))


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    """Raise InvalidInput for the errors of the libraries."""
    try:
        yield
    except _DAMAGE as error:
        why = str(error).partition("\n")[0] or "it is truncated"
        text = f"{name} is damaged or not an archive: {why}"
        raise InvalidInput(Problem("artifact", text, "create it again")) from None


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
                with _translated_errors(self.name):
                    link = os.fsdecode(self._archive.read(info))
                yield _link(self.name, Entry(name, "symlink", 0, 0, mode, info, link))
            elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise refusal(self.name, f"{name} is not a file, folder or link")
            else:
                yield Entry(name, "file", info.file_size, info.file_size, mode, info)

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        with _translated_errors(self.name):
            file = self._archive.open(cast(zipfile.ZipInfo, entry.key))
        with file:
            while block := self._read(file):
                yield block

    def _read(self, file: IO[bytes]) -> bytes:
        with _translated_errors(self.name):
            return file.read(_BLOCK)


class _Tar:
    def __init__(self, stream: IO[bytes], name: str) -> None:
        self.name = name
        self._stream = stream

    def entries(self) -> Iterator[Entry]:
        headers = _Headers(self._stream, self.name)
        with _translated_errors(self.name):
            archive = tarfile.TarFile(fileobj=cast("IO[bytes]", headers))
        while (info := self._next(archive)) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # bounds memory
            yield self._entry(info, headers.spent())
        yield from self._rest(archive.offset)

    def _next(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        with _translated_errors(self.name):
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
        raise refusal(self.name, f"{name} is not a file, folder or link")

    def _rest(self, offset: int) -> Iterator[Entry]:
        """Read to the end, where decompressors verify checksums.

        Only zeros may follow the last entry; otherwise the reader has stopped at a damaged header.
        """
        with _translated_errors(self.name):
            self._stream.seek(offset)
            block = self._stream.read(tarfile.BLOCKSIZE)
            if block.strip(b"\0"):
                raise tarfile.ReadError("one of its headers is invalid")
        while block:
            yield Entry("", "folder", 0, len(block), 0, None)
            with _translated_errors(self.name):
                block = self._stream.read(_BLOCK)

    def blocks(self, entry: Entry) -> Iterator[bytes]:
        offset, left = cast("tuple[int, int]", entry.key)
        with _translated_errors(self.name):
            self._stream.seek(offset)
        while left:
            with _translated_errors(self.name):
                block = self._stream.read(min(left, _BLOCK))
                if not block:
                    raise EOFError
            left -= len(block)
            yield block


class _Headers:
    """The stream from which a tar's headers are read, with limits per entry."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream = stream
        self._name = name
        self._bytes = self._reads = 0

    def spent(self) -> int:
        """Bytes read since the last call."""
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
    """The tar in a file, decompressed according to its first bytes."""
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
    # a backslash is a separator on Windows and part of the name here
    if path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
        raise refusal(archive, f"{name!r} would be unpacked outside the folder")
    if not path.parts and not folder:
        raise refusal(archive, f"it contains a file named {name!r}")
    with _translated_errors(archive):
        lengths = [len(os.fsencode(part)) for part in path.parts]
    if max(lengths, default=0) > _MAX_NAME or sum(lengths) + len(lengths) > _MAX_PATH // 2:
        raise refusal(archive, f"the name {name[:60]}... is too long")
    return "/".join(path.parts)


def _link(archive: str, entry: Entry) -> Entry:
    if not entry.link or "\0" in entry.link or len(entry.link) > _MAX_PATH:
        raise refusal(archive, f"the link {entry.name} leads nowhere")
    return entry
