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
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from msgspec import Struct

_NODE = re.compile(r"rank-(0|[1-9][0-9]*)")


class StoredOutput(Struct, frozen=True):
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
    #: When it was last written (epoch seconds).
    modified: float
    #: Its permissions: the lowest nine bits of its mode.
    mode: int
    #: What a symbolic link points to; None for files.
    link: str | None = None

    @property
    def path_in_run(self) -> PurePosixPath:
        """Its path in the outputs of the run, and in a copy of them."""
        return path_in_run(self.rank, self.path)

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

    @property
    def link_in_copy(self) -> str | None:
        """What a link points to in a copy of all outputs; None for files, and links that leave."""
        if self.link is None or self.leaves_outputs:
            return None
        if not os.path.isabs(self.link):
            return self.link
        return os.path.relpath(os.path.realpath(self), os.path.realpath(os.path.dirname(self)))

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


def path_in_run(rank: int | None, path: PurePosixPath) -> PurePosixPath:
    """The path of an output in the outputs of its run. rank: see `StoredOutput`."""
    return path if rank is None else f"rank-{rank}" / path


def output_at(root: Path, rank: int | None, path: PurePosixPath) -> StoredOutput:
    """The output at a path of the directory of a node or, with rank None, of that which nodes
    share. Raises OSError."""
    from muster.node.folder_access import descend

    place = path_in_run(rank, path)
    if place.is_absolute() or ".." in place.parts or not place.name:
        raise OSError(errno.EINVAL, "not a path of an output", str(place))
    folder = descend(str(root.parent), str(root.name / place.parent))
    try:
        info = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
        return _output(root, rank, path, info, place.name, folder)
    finally:
        os.close(folder)


def blocks(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """The content of an open file from an offset on, as far as it goes now; closes the file. Raises
    OSError."""
    from muster.node.folder_access import BLOCK

    with file:
        left = os.fstat(file.fileno()).st_size - offset
        file.seek(offset)
        while left > 0 and (data := file.read(min(BLOCK, left))):
            left -= len(data)
            yield data


def find_outputs(root: Path, ranks: Collection[int]) -> list[StoredOutput]:
    """Every output of a run, those that its nodes share first, then by rank. root: the folder with
    them. ranks: those of the run; `rank-9` of three nodes is a folder of the program's own."""
    return sorted(
        _walk(root, ranks), key=lambda o: (-1 if o.rank is None else o.rank, o.path.parts)
    )


def _walk(root: Path, ranks: Collection[int]) -> Iterator[StoredOutput]:
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
                    if stat.S_ISLNK(info.st_mode) or stat.S_ISREG(info.st_mode):
                        rank, path = _owner(PurePosixPath(here, name), ranks)
                        yield _output(root, rank, path, info, name, folder)
    finally:
        os.close(opened)


def _output(
    root: Path,
    rank: int | None,
    path: PurePosixPath,
    info: os.stat_result,
    name: str,
    folder: int,
) -> StoredOutput:
    """info: that of the file or link with this name in an open folder."""
    link = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(info.st_mode) else None
    mode = stat.S_IMODE(info.st_mode) & 0o777
    return StoredOutput(root, rank, path, info.st_size, info.st_mtime, mode, link)


def _owner(path: PurePosixPath, ranks: Collection[int]) -> tuple[int | None, PurePosixPath]:
    """The rank in whose directory a path is, and the path in it."""
    first, *others = path.parts
    match = _NODE.fullmatch(first)
    if match is None or not others or int(match[1]) not in ranks:
        return None, path
    return int(match[1]), PurePosixPath(*others)
