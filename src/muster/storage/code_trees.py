"""The code of folders: each version is stored as a folder, and versions share unchanged files.

    artifacts/AB/ABCD.../code     the files, as they are placed in a node's working directory
    artifacts/AB/ABCD.../about    how large they are
    artifacts/objects/AB/ABCD...  each different content once; a hard link to it is in `code`

The name of a version is a hash over the names, permissions and contents of its files. Within one
version no two files are the same inode, so that programs can tell them apart. A content that no
version links is not needed any more.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from muster.errors import StoreError
from muster.node.files import remove_entry, remove_tree
from muster.storage.digest_cache import DigestCache, stamp
from muster.storage.file_copies import Copier, can_clone, clone, digest_of
from muster.storage.home import Home
from muster.unix_account import UnixAccount, acting_as, as_root, current

_VERSION = b"muster folder 1\0"
#: Digests of a folder with fewer bytes are not kept.
MIN_CACHED = 1 << 20


class StoredFolder(Struct, frozen=True):
    """A stored version of a folder."""

    sha256: str
    #: Bytes of all files, and their number.
    size: int
    files: int


class _File(NamedTuple):
    """A file or link to store."""

    name: str
    #: "x": an executable file, "-": another file, "l": a link.
    kind: str
    size: int
    #: The SHA-256 of the content; the target of a link.
    content: bytes


class FolderScan:
    """Some files of a folder, as the version of the folder that may have to be stored."""

    def __init__(
        self, home: Home, folder: Path, names: Sequence[str], *, follow: bool = False
    ) -> None:
        """Reads only files that have changed since the last time. A link whose path leaves the
        folder and returns is replaced by a direct link to its target. follow: store the targets of
        links instead of the links."""
        self._home, self._folder = home, folder
        self._reader = current()
        self._cache = DigestCache(home, folder)
        look = os.stat if follow else os.lstat
        found = {name: look(f"{folder}/{name}") for name in names}
        links = _links_of(folder, (name for name in names if stat.S_ISLNK(found[name].st_mode)))
        self._files = [
            _File(name, "l", 0, os.fsencode(links[name]))
            if name in links
            else _examine(f"{folder}/{name}", name, found[name], self._cache)
            for name in names
        ]
        self._sha256 = _identity(self._files)

    @property
    def sha256(self) -> str:
        """The name of this version."""
        return self._sha256

    @property
    def is_stored(self) -> bool:
        """Whether this version is in the store."""
        with as_root():
            return self._is_stored()

    def _is_stored(self) -> bool:
        return code_folder(self._home, self._sha256) is not None

    def sizes(self) -> Iterator[tuple[str, int]]:
        """The path and the bytes of each file."""
        return ((file.name, file.size) for file in self._files)

    def store(self) -> StoredFolder:
        """Store this version unless it is stored already. Raises OSError."""
        sha256, files = self._sha256, self._files
        if not self.is_stored:
            files = self._write()
            sha256 = _identity(files)
        size, count = _extent(files)
        # a small folder is read in less time, and a temporary checkout never again
        temporary = self._folder.resolve().is_relative_to(self._home.root.resolve())
        if size >= MIN_CACHED and not temporary:
            self._cache.save()
        return StoredFolder(sha256, size, count)

    @as_root()
    def _write(self) -> list[_File]:
        """Write the version. Returns its files as they were read now: one may have changed."""
        part = self._home.new_part()
        part.mkdir(mode=0o700)
        try:
            writer = _Writer(self._home, part / "code", self._folder, self._reader)
            files = [writer.add(file) for file in self._files]
            about = dict(zip(("size", "files"), _extent(files), strict=True))
            (part / "about").write_text(json.dumps(about))
            _sync(part)
            sha256 = _identity(files)
            final = self._home.artifact(sha256)
            final.parent.mkdir(exist_ok=True)
            with suppress(FileExistsError):  # another process has stored it meanwhile
                _rename(part, final)
            _sync(final)
        finally:
            remove_tree(str(part))
        return files


def _rename(part: Path, final: Path) -> None:
    try:
        os.rename(part, final)
    except OSError:
        if final.is_dir():
            raise FileExistsError(str(final)) from None
        raise


class _Writer:
    """Writes the files of one version."""

    def __init__(self, home: Home, target: Path, folder: Path, reader: UnixAccount | None) -> None:
        self._reader = reader  # whose rights to the files of the folder matter
        self._objects, self._target, self._folder = home.artifacts / "objects", target, folder
        self._folders: set[str] = set()
        self._linked: set[str] = set()
        self._clones = True
        self._make(str(target))

    def add(self, file: _File) -> _File:
        """Write one file. Returns it as it was read."""
        place = f"{self._target}/{file.name}"
        self._make(os.path.dirname(place))
        if file.kind == "l":
            os.symlink(file.content, os.fsencode(place))
            return file
        if self._link(file, place):
            return file
        read = self._copy(file, place)
        shared = self._object(read)
        if shared in self._linked:
            return read
        self._make(os.path.dirname(shared))
        with suppress(OSError):  # it exists, or this file system has no hard links: not shared
            os.link(place, shared)
            self._linked.add(shared)
        return read

    def _link(self, file: _File, place: str) -> bool:
        """Link the content if it is stored. A second file with it gets a copy of its own."""
        shared = self._object(file)
        try:
            if shared in self._linked:
                Copier().copy(shared, place, stat.S_IMODE(os.stat(shared).st_mode))
            else:
                os.link(shared, place)
        except OSError:  # not stored, too many links
            with suppress(FileNotFoundError):
                os.unlink(place)
            return False
        self._linked.add(shared)
        return True

    def _copy(self, file: _File, place: str) -> _File:
        with acting_as(self._reader):
            opened = open(self._folder / file.name, "rb")  # noqa: SIM115
        with opened as source, open(place, "x+b") as copy:
            found = os.fstat(source.fileno())
            self._clones = self._clones and clone(source.fileno(), copy.fileno())
            cloned = self._clones
            digest, size = digest_of(copy) if cloned else digest_of(source, copy)
            executable = bool(found.st_mode & 0o111)
            os.fchmod(copy.fileno(), 0o755 if executable else 0o644)
        return _File(file.name, "x" if executable else "-", size, digest)

    def _object(self, file: _File) -> str:
        digest = file.content.hex()
        return f"{self._objects}/{digest[:2]}/{digest}{'x' if file.kind == 'x' else ''}"

    def _make(self, folder: str) -> None:
        if folder not in self._folders:
            os.makedirs(folder, 0o755, exist_ok=True)
            self._folders.add(folder)


def _links_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The targets to store for links."""
    links = {name: os.readlink(f"{folder}/{name}") for name in names}
    if not links:
        return links
    from muster.storage.archives import stays_inside

    return {
        name: target if stays_inside(name, links) else _direct(f"{folder}/{name}")
        for name, target in links.items()
    }


def _direct(link: str) -> str:
    return os.path.relpath(os.path.realpath(link), os.path.realpath(os.path.dirname(link)))


def _examine(path: str, name: str, found: os.stat_result, cache: DigestCache) -> _File:
    digest = cache.find(name, found)
    if digest is None:
        read_at = time.time_ns()
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            digest, _ = digest_of(file)
            if stamp(os.fstat(file.fileno())) == stamp(found):
                cache.add(name, found, digest, read_at)
    return _File(name, "x" if found.st_mode & 0o111 else "-", found.st_size, digest)


def _identity(files: Sequence[_File]) -> str:
    parts = [_VERSION]
    for name, kind, _, content in files:
        shown = content if kind == "l" else content.hex().encode()
        parts += (kind.encode(), shown, b"\0", os.fsencode(name), b"\0")
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _extent(files: Sequence[_File]) -> tuple[int, int]:
    return sum(file.size for file in files), len(files)


def _sync(folder: Path) -> None:
    """Write what was changed on the file system of a folder to its disk: in one call, since a call
    for each of many files takes seconds."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if sys.platform.startswith("linux"):
            import ctypes

            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), str(folder))
        else:
            os.sync()
    finally:
        os.close(descriptor)


# --- stored versions


def code_folder(home: Home, sha256: str) -> Path | None:
    """The files of a stored version; None if it is not stored, or is a single file or archive."""
    folder = home.artifact(sha256) / "code"
    return folder if folder.is_dir() else None


def extent_of(code: Path) -> StoredFolder | None:
    """The size of a stored version; None if it was removed. code: see `code_folder`."""
    try:
        return StoredFolder(code.parent.name, **json.loads(code.with_name("about").read_bytes()))
    except FileNotFoundError:
        return None


def names_below(code: Path) -> list[str]:
    """Relative paths of the files and links of a stored version, sorted."""
    below = len(str(code)) + 1
    found = []
    for top, folders, names in os.walk(code):
        links = (name for name in folders if os.path.islink(f"{top}/{name}"))
        found += [f"{top}/{name}"[below:] for name in (*names, *links)]
    return sorted(found)


def shares_blocks(code: Path, target: Path) -> bool:
    """Whether a copy in the folder would share its blocks with the stored version."""
    for top, _, names in os.walk(code):
        for name in names:
            path = f"{top}/{name}"
            if not os.path.islink(path) and os.path.getsize(path):
                return can_clone(path, str(target))
    return False


def place(code: Path, name: str, target: Path) -> None:
    """Copy a stored version into an existing folder. name: of the code, for errors.

    Raises StoreError if the folder cannot be written; what was copied is removed then.
    """
    before = set(os.listdir(target))
    try:
        _place(code, target)
    except OSError as error:
        for name_made in set(os.listdir(target)) - before:
            remove_entry(f"{target}/{name_made}")
        why = error.strerror or str(error)
        raise StoreError(f"cannot copy {name} into {target}: {why}") from None


def _place(code: Path, target: Path) -> None:
    copier = Copier()
    todo = [(str(code), str(target))]
    while todo:
        source, made = todo.pop()
        with os.scandir(source) as entries:
            for entry in entries:
                place = f"{made}/{entry.name}"
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), place)
                elif entry.is_dir(follow_symlinks=False):
                    os.mkdir(place)
                    todo.append((entry.path, place))
                else:
                    copier.copy(entry.path, place, stat.S_IMODE(entry.stat().st_mode))


def remove_artifact(home: Home, sha256: str, *, shared: bool = True) -> None:
    """Remove stored code of any kind and, with `shared`, the contents that no other version has.

    Only while no other process stores code (`ArtifactLock`).
    """
    stored = home.artifact(sha256)
    if not stored.is_dir():
        stored.unlink(missing_ok=True)
        with suppress(OSError):  # other code is in it
            stored.parent.rmdir()
        return
    part = home.new_part()
    os.rename(stored, part)  # at once: if this process is killed, no half of a version is left
    remove_tree(str(part))
    if shared:
        remove_unlinked(home)


def remove_unlinked(home: Home) -> None:
    """Remove the contents that no version has, and empty folders. Only while no other process
    stores code."""
    for path, links, _ in objects(home):
        if links == 1:
            os.unlink(path)
    for parent in (home.artifacts, home.artifacts / "objects"):
        for folder in parent.glob("??"):
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def objects(home: Home) -> Iterator[tuple[str, int, int]]:
    """The stored contents: path, number of links, bytes on the disk."""
    try:
        with os.scandir(home.artifacts / "objects") as folders:
            parts = [folder.path for folder in folders]
    except FileNotFoundError:
        return
    for part in parts:
        with os.scandir(part) as entries:
            for entry in entries:
                found = entry.stat()
                yield entry.path, found.st_nlink, found.st_blocks * 512
