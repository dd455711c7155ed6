"""Copies of directories that nodes on other machines get, and what comes back from them."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from muster.engines.remote.code import write_archive
from muster.node.files import replace_file
from muster.node.folder_access import Listing, in_folder, walk
from muster.node.tree_streams import Version, version_of
from muster.spec.quantities import format_size

#: The most bytes of a directory that is copied to hosts.
LIMIT = 1 << 30
#: How often a directory is read in which files are removed meanwhile, such as those that are about
#: to replace others.
_TRIES = 5
#: What a file that is not there has for a version.
_ABSENT: Version = []


# --- what nodes are given


class Packed(Struct, frozen=True):
    """A directory as nodes are given it."""

    #: Of the archive; "" if there is nothing in it.
    sha256: str
    #: Path in it -> version; of folders, `[]`.
    versions: dict[str, Version]


class _Content:
    """Lists a directory, and keeps the versions of what it lists. Files that are neither regular
    nor links, such as sockets, are left out. source: its path."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._size = 0
        self.versions: dict[str, Version] = {}

    def walk(self, descriptor: int, on_error: Callable[[OSError], None]) -> Iterator[Listing]:
        """As `folder_access.walk`. Raises OSError if the files are too large for copies."""
        for here, names, opened in walk(descriptor, on_error):
            kept = []
            for name in names:
                place = os.path.normpath(os.path.join(here, name))
                try:
                    info = os.stat(name, dir_fd=opened, follow_symlinks=False)
                except FileNotFoundError:  # it was deleted just now
                    continue
                mode = info.st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                    why = "it is not a regular file, link or folder"
                    _log(f"{self._source}/{place} is not copied to hosts: {why}")
                    continue
                is_folder = stat.S_ISDIR(mode)
                self.versions[place] = [] if is_folder else version_of(info)
                self._size += 0 if is_folder else info.st_size
                kept.append(name)
            if self._size > LIMIT:
                raise OSError(
                    errno.EFBIG,
                    f"it has more than {format_size(LIMIT)}, and its node's machine does not have "
                    "it: put it on a file system that the machines share, or on each of them at "
                    "this path, or have the program read it from a URL",
                )
            yield here, kept, opened


def pack(source: str, folder: Path, before: Packed | None = None) -> Packed:
    """Put a directory into an archive in a folder. before: as it was packed last, which is returned
    if nothing has changed. Raises OSError."""
    listed = _Content(source)
    folder.mkdir(mode=0o700, exist_ok=True)
    with in_folder(source) as descriptor:
        for _ in listed.walk(descriptor, _fail):
            pass
        if before is not None and before.versions == listed.versions:
            return before
        if not listed.versions:
            return Packed("", {})
        part = folder / f"part-{os.urandom(8).hex()}"
        try:
            content, digest = _write(source, descriptor, part)
            versions = json.dumps(content.versions).encode()
            replace_file(folder / f"{digest}.json", versions, 0o600)
            part.rename(folder / digest)
        finally:
            part.unlink(missing_ok=True)
    return Packed(digest, content.versions)


def _write(source: str, descriptor: int, target: Path) -> tuple[_Content, str]:
    """Write an archive. Returns what is in it, and its SHA-256. Raises OSError."""
    left_out: list[str] = []
    for _ in range(_TRIES):
        content = _Content(source)
        digest, left_out = write_archive(descriptor, target, content.walk)
        if not left_out:
            return content, digest
    raise OSError(errno.EIO, left_out[0])


def _fail(error: OSError) -> None:
    raise error


def _log(text: str) -> None:
    sys.stderr.write(f"muster: {text}\n")


# --- what comes back


class Given(Struct):
    """What a node has of a directory."""

    sha256: str
    #: Path of a file that it has brought back -> the version that it has here since.
    own: dict[str, Version]
    #: Of the files that it was given.
    versions: dict[str, Version]

    def is_changed(self, place: str, now: Version) -> bool:
        """Whether a file is here another one than the node had."""
        return now not in (_ABSENT, self.own.get(place, self.versions.get(place, _ABSENT)))


def take_back(spool: IO[bytes], target: str, given: Given, rank: int) -> bool:
    """Unpack what has changed in a node's copy into the submitter's directory. Its files replace
    those here; the log says of which ones that have changed here as well. Returns whether there
    were any. Raises OSError."""
    from muster.node.transfer import receive  # few supervisors have nodes elsewhere

    written: list[str] = []

    def wanted(name: str, _modified: float) -> bool:
        place = os.path.normpath(name)
        now = _version_at(target, place)
        if now is None:
            raise OSError(errno.EEXIST, "Is neither a file nor a link here", place)
        if given.is_changed(place, now):
            _log(f"{target}/{place} has changed here, too; now it is that of node {rank}")
        written.append(place)
        return True

    os.makedirs(target, exist_ok=True)
    try:
        receive(target, spool, _log, wanted)
    finally:  # what follows may fail, as on a full disk
        for place in written:
            given.own[place] = _version_at(target, place) or _ABSENT
    return bool(written)


def _version_at(folder: str, place: str) -> Version | None:
    """The version of a file; `_ABSENT` if there is none; None if it is no file."""
    if place.startswith(("/", "../")) or place == "..":
        return _ABSENT  # it will be refused
    try:
        found = os.lstat(os.path.join(folder, place))
    except OSError:
        return _ABSENT
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        return None
    return version_of(found)
