"""Archives from anywhere, unpacked so that nothing lands outside and nothing explodes."""

from __future__ import annotations

import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from msgspec import Struct

from muster.errors import InvalidInput, Problem

MAX_ENTRIES = 100_000
MAX_UNPACKED = 20 << 30  # bytes
#: An archive that grows by more than this, and beyond the size below, was made to.
MAX_RATIO, RATIO_MATTERS_FROM = 200, 256 << 20
_BLOCK = 1 << 20
#: What reading an archive raises that is not one, or not whole.
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
)


class _Entry(Struct, frozen=True):
    """name: relative, clean. link: where a symbolic or hard link leads, "" for others."""

    name: str
    kind: str  # file, folder, symlink, hardlink
    size: int
    mode: int
    link: str = ""


def list_files(path: Path) -> list[str]:
    """The files in an archive. Raises InvalidInput if it is unsafe, damaged or too large."""
    with _Reader(path, path.name) as reader:
        return [entry.name for entry in reader.checked() if entry.kind != "folder"]


def unpack(path: Path, name: str, target: Path) -> None:
    """Unpack into an existing folder. name: what the archive was called, which tells its format.

    Raises InvalidInput before anything is written if it is unsafe or too large.
    """
    with _Reader(path, name) as reader:
        entries = reader.checked()
        written = 0
        links = []
        for entry in entries:
            place = target / entry.name
            if entry.kind == "folder":
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry.kind == "file":
                written = reader.extract(entry.name, place, written)
                place.chmod(0o755 if entry.mode & 0o111 else 0o644)
            else:
                links.append((entry, place))
        # links last: a file written through a link could land anywhere
        for entry, place in links:
            if entry.kind == "symlink":
                place.symlink_to(entry.link)
            else:
                os.link(target / entry.link, place)


def pack(folder: Path, files: Sequence[str], to: IO[bytes]) -> None:
    """A tar of these files of a folder; the same files give the same bytes."""
    with tarfile.open(fileobj=to, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in files:
            path = folder / name
            info = tarfile.TarInfo(name)
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
                archive.addfile(info)
                continue
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                info.size = status.st_size
                info.mode = 0o755 if status.st_mode & 0o111 else 0o644
                archive.addfile(info, file)


class _Reader:
    """A zip or tar under one roof."""

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        self._path = path
        self._zip: zipfile.ZipFile | None = None
        self._tar: tarfile.TarFile | None = None
        self._names: dict[str, str] = {}  # clean name -> as the archive spells it

    def __enter__(self) -> _Reader:
        try:
            if self._name.endswith(".zip"):
                self._zip = zipfile.ZipFile(self._path)
            else:
                self._tar = tarfile.open(self._path)
        except _DAMAGE as error:
            raise self._damaged(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        for archive in (self._zip, self._tar):
            if archive is not None:
                archive.close()

    def checked(self) -> list[_Entry]:
        """Every entry, once all are known to be safe."""
        entries: dict[str, _Entry] = {}
        total = 0
        try:
            for entry in self._zip_entries() if self._zip else self._tar_entries():
                if entry.name in entries and entry.kind != "folder":
                    raise _refusal(self._name, f"holds {entry.name} twice")
                entries[entry.name] = entry
                total += entry.size
                self._bound(len(entries), total)
            self._read_to_the_end()
        except _DAMAGE as error:
            raise self._damaged(error) from None
        _check_links(self._name, entries)
        return list(entries.values())

    def _read_to_the_end(self) -> None:
        """Compressed tars are proven whole by what follows the last entry."""
        if self._tar is not None and self._tar.fileobj is not None:
            while self._tar.fileobj.read(_BLOCK):
                pass

    def extract(self, name: str, place: Path, written: int) -> int:
        """Write one file; returns `written`, the bytes of all files so far, whatever the archive
        says of their sizes."""
        try:
            with self._open(name) as source, open(place, "xb") as file:
                while block := source.read(_BLOCK):
                    written += len(block)
                    if written > MAX_UNPACKED:
                        raise _refusal(self._name, "unpacks to more than 20 GiB")
                    file.write(block)
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
            raise self._damaged(error) from None
        return written

    def _open(self, name: str) -> IO[bytes]:
        if self._zip is not None:
            return self._zip.open(self._names[name])
        assert self._tar is not None, "opened in __enter__"
        file = self._tar.extractfile(self._tar.getmember(self._names[name]))
        assert file is not None, "only called for files"
        return file

    def _bound(self, count: int, total: int) -> None:
        if count > MAX_ENTRIES:
            raise _refusal(self._name, f"holds more than {MAX_ENTRIES:,} entries")
        if total > MAX_UNPACKED:
            raise _refusal(self._name, "unpacks to more than 20 GiB")
        if total > RATIO_MATTERS_FROM and total > MAX_RATIO * self._path.stat().st_size:
            raise _refusal(self._name, f"unpacks to more than {MAX_RATIO} times its size")

    def _zip_entries(self) -> Iterator[_Entry]:
        assert self._zip is not None, "called for zips"
        for info in self._zip.infolist():
            mode = info.external_attr >> 16
            name = self._clean(info.filename)
            self._names[name] = info.filename
            if info.is_dir():
                yield _Entry(name, "folder", 0, mode)
            elif stat.S_ISLNK(mode):
                link = self._zip.read(info).decode(errors="replace")
                yield _Entry(name, "symlink", 0, mode, link)
            elif mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
                raise _refusal(self._name, f"{name} is neither file, folder nor link")
            else:
                yield _Entry(name, "file", info.file_size, mode)

    def _tar_entries(self) -> Iterator[_Entry]:
        assert self._tar is not None, "called for tars"
        for info in self._tar:
            if info.name.rstrip("/") in (".", ""):
                continue
            name = self._clean(info.name)
            self._names[name] = info.name
            if info.isdir():
                yield _Entry(name, "folder", 0, info.mode)
            elif info.issym():
                yield _Entry(name, "symlink", 0, info.mode, info.linkname)
            elif info.islnk():
                yield _Entry(name, "hardlink", 0, info.mode, self._clean(info.linkname))
            elif info.isreg():
                yield _Entry(name, "file", info.size, info.mode)
            else:
                raise _refusal(self._name, f"{name} is neither file, folder nor link")

    def _clean(self, name: str) -> str:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
            raise _refusal(self._name, f"{name!r} would land outside of it")
        return str(path)

    def _damaged(self, error: Exception) -> InvalidInput:
        text = f"{self._name} is damaged or no archive: {error or 'it ends too early'}"
        return InvalidInput(Problem("artifact", text, "make it again"))


def _check_links(name: str, entries: dict[str, _Entry]) -> None:
    for entry in entries.values():
        if entry.kind == "symlink":
            base = PurePosixPath(entry.name).parent
            if entry.link.startswith("/") or _escapes(base / entry.link):
                raise _refusal(name, f"the link {entry.name} leads outside, to {entry.link}")
        elif entry.kind == "hardlink":
            target = entries.get(entry.link)
            if target is None or target.kind != "file":
                raise _refusal(name, f"the link {entry.name} leads to no file of it")
        for parent in PurePosixPath(entry.name).parents:
            above = entries.get(str(parent))
            if above is not None and above.kind != "folder":
                raise _refusal(name, f"{entry.name} lies below {parent}, which is no folder")


def _escapes(path: PurePosixPath) -> bool:
    depth = 0
    for part in path.parts:
        depth += -1 if part == ".." else 0 if part == "." else 1
        if depth < 0:
            return True
    return False


def _refusal(name: str, why: str) -> InvalidInput:
    return InvalidInput(Problem("artifact", f"{name} is refused: {why}", "make it without that"))
