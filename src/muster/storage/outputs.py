"""The outputs of a run: the files that its programs keep with it.

Programs may be writing while they are listed and read. Every file is opened relative to the folder
that contains it, without following links, so that none is read through a link that a program puts
in the place of a folder in that moment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from msgspec import Struct

from muster.describe.times import json_ready, minute, moment
from muster.spec.quantities import format_size

_NODE = re.compile(r"rank-(0|[1-9][0-9]*)")


class Output(Struct, frozen=True):
    """A file, or a symbolic link, that a program wrote to its output directory."""

    #: The folder with the outputs of the run.
    root: Path
    #: The node in whose $MUSTER_OUTPUTS it is; None: it is in $MUSTER_RUN_OUTPUTS, which the nodes
    #: share.
    rank: int | None
    #: Its path in this directory.
    path: PurePosixPath
    #: In bytes, when it was listed.
    size: int
    #: When it was last written.
    modified: datetime
    #: What a symbolic link points to; None for files.
    link: str | None = None

    @property
    def path_in_run(self) -> PurePosixPath:
        """Its path in the outputs of the run, and in a copy of them."""
        return self.path if self.rank is None else f"rank-{self.rank}" / self.path

    @property
    def leaves_outputs(self) -> bool:
        """Whether it is a link to something outside the outputs of the run."""
        if self.link is None:
            return False
        root = self._real_root
        return os.path.commonpath((root, os.path.realpath(self))) != root

    @property
    def _real_root(self) -> str:
        """The folder with the outputs, without links on the way. A program may have replaced the
        folder by a link, which is therefore not resolved."""
        return os.path.join(os.path.realpath(self.root.parent), self.root.name)

    def __fspath__(self) -> str:
        """Where it is on this machine."""
        return str(self.root / self.path_in_run)

    def open(self) -> BinaryIO:
        """Open it to read bytes. Raises OSError, also for a link that leaves the outputs."""
        if self.leaves_outputs:
            text = f"a link to {self.link}, outside the outputs of the run"
            raise PermissionError(errno.EPERM, text, os.fspath(self))
        place = self.path_in_run
        if self.link is not None:
            place = PurePosixPath(os.path.relpath(os.path.realpath(self), self._real_root))
        from muster.node.folder_access import descend

        descriptor = descend(str(self.root.parent), str(self.root.name / place))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(self))
        return os.fdopen(descriptor, "rb")

    def read_bytes(self) -> bytes:
        """What is in the file. Raises OSError."""
        with self.open() as file:
            return file.read()

    def read_text(self) -> str:
        """What is in the file, as UTF-8. Raises OSError."""
        return self.read_bytes().decode()

    def to_dict(self) -> dict[str, Any]:
        """The output as JSON-ready data; times as RFC 3339 text."""
        return json_ready(self._facts())

    def _facts(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "path": str(self.path),
            "size": self.size,
            "modified": self.modified,
            "link": self.link,
            "file": os.fspath(self),
        }

    def _cells(self) -> dict[str, str]:
        return {
            "RANK": "-" if self.rank is None else str(self.rank),
            "SIZE": "-" if self.link is not None else format_size(self.size),
            "WRITTEN": minute(self.modified),
            "PATH": str(self.path) if self.link is None else f"{self.path} -> {self.link}",
        }


def find_outputs(root: Path, ranks: Collection[int]) -> list[Output]:
    """Every output of a run, those that its nodes share first, then by rank. root: the folder with
    them. ranks: those of the run; `rank-9` of three nodes is a folder of the program's own."""
    return sorted(
        _walk(root, ranks), key=lambda o: (-1 if o.rank is None else o.rank, o.path.parts)
    )


def _walk(root: Path, ranks: Collection[int]) -> Iterator[Output]:
    from muster.node.folder_access import walk

    try:
        opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # no program has started, or one has put a link there
        return
    try:
        for here, names, folder in walk(opened, lambda _deleted: None):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # deleted in this moment
                    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    link = None
                    if stat.S_ISLNK(info.st_mode):
                        link = os.readlink(name, dir_fd=folder)
                    elif not stat.S_ISREG(info.st_mode):
                        continue
                    rank, path = _owner(PurePosixPath(here, name), ranks)
                    modified = moment(info.st_mtime)
                    yield Output(root, rank, path, info.st_size, modified, link)
    finally:
        os.close(opened)


def _owner(path: PurePosixPath, ranks: Collection[int]) -> tuple[int | None, PurePosixPath]:
    """The rank in whose directory a path is, and the path in it."""
    first, *others = path.parts
    match = _NODE.fullmatch(first)
    if match is None or not others or int(match[1]) not in ranks:
        return None, path
    return int(match[1]), PurePosixPath(*others)


def copy_content(source: BinaryIO, target: Path) -> None:
    """Copy an open file to a path, with its mode and times, replacing what is there.

    The copy appears as a whole, with what had been written when it began: a program may append
    faster than this copies. Raises OSError if the copy cannot be written, Unreadable.
    """
    from muster.node.folder_access import write_file

    info = os.fstat(source.fileno())
    mode = stat.S_IMODE(info.st_mode) & 0o777
    with _made_folder(target.parent) as folder:
        write_file(folder, target.name, _Limited(source, info.st_size), mode, info.st_mtime)


def copy_link(text: str, target: Path) -> None:
    """Create a symbolic link at a path, replacing what is there. Raises OSError."""
    from muster.node.folder_access import write_link

    with _made_folder(target.parent) as folder:
        write_link(folder, target.name, text)


@contextlib.contextmanager
def _made_folder(folder: Path) -> Iterator[int]:
    """A descriptor of a folder, which is created if it does not exist. It may be deeper than a path
    can be long. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        opened = os.open(folder, flags)
    except OSError:  # it does not exist, or its path is too long
        opened = os.open(folder.anchor or ".", flags)
        try:
            for name in folder.parts[bool(folder.anchor) :]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=opened)
                below = os.open(name, flags, dir_fd=opened)
                os.close(opened)
                opened = below
        except OSError:
            os.close(opened)
            raise
    try:
        yield opened
    finally:
        os.close(opened)


class Unreadable(Exception):  # noqa: N818
    """A file could not be read to its end."""


class _Limited:
    """The first bytes of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes. Raises Unreadable."""
        try:
            data = self._file.read(min(size, self._left))
        except OSError as error:
            raise Unreadable(error.strerror or str(error)) from error
        self._left -= len(data)
        return data
