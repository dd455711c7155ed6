"""The Python API of a run's outputs."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, SupportsIndex, overload

from msgspec import Struct

from muster.client.item import Item
from muster.client.table import Table
from muster.describe.times import minute, moment
from muster.describe.words import named
from muster.errors import InvalidInput, Problem, Unreadable
from muster.spec.quantities import format_size

if TYPE_CHECKING:
    from muster.api.interface import MusterAPI
    from muster.api.outputs import OutputFile, OutputList

#: Files that an error names.
_NAMED = 5
_BLOCK = 1 << 20  # bytes that are read at once


class Output(Struct, Item, frozen=True):
    """A file, or a symbolic link, that a program wrote to its output directory."""

    #: The folder with the outputs of the run, on Muster's machine.
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
    link: str | None
    #: Whether it is a link to something outside the outputs of the run.
    leaves_outputs: bool
    #: What a link in a copy of all outputs points to; None for files, and for links that leave.
    link_in_copy: str | None
    #: Reads it.
    content: Content

    @property
    def path_in_run(self) -> PurePosixPath:
        """Its path in the outputs of the run, and in a copy of them."""
        return self.path if self.rank is None else f"rank-{self.rank}" / self.path

    def __fspath__(self) -> str:
        """Where it is on Muster's machine."""
        return str(self.root / self.path_in_run)

    def open(self) -> BinaryIO:
        """Open it to read bytes. Raises OSError, also for a link that leaves the outputs."""
        try:
            found = self.content.look()
        except Unreadable as error:
            raise OSError(errno.EIO, str(error), os.fspath(self)) from None
        return io.BufferedReader(_Reader(self.content, found.size), _BLOCK)

    def read_bytes(self) -> bytes:
        """What is in the file. Raises OSError."""
        with self.open() as file:
            return file.read()

    def read_text(self) -> str:
        """What is in the file, as UTF-8. Raises OSError."""
        return self.read_bytes().decode()

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


class Content(Struct, frozen=True):
    """The content of an output. Its methods raise Unreadable."""

    api: MusterAPI
    run_id: str
    rank: int | None
    path: str

    def look(self) -> OutputFile:
        """The output as it is now."""
        return self.api.output(self.run_id, self.rank, self.path)

    def blocks(self, offset: int = 0) -> Iterator[bytes]:
        """What is in it from an offset on."""
        return self.api.read_output(self.run_id, self.rank, self.path, offset)


class _Reader(io.RawIOBase):
    """A file that reads an output from where it is positioned. size: of the output."""

    def __init__(self, content: Content, size: int) -> None:
        self._content = content
        self._size = size
        self._position = 0
        self._blocks: Iterator[bytes] | None = None
        self._rest = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read up to the size of a buffer; 0 at the end."""
        try:
            if self._blocks is None:
                self._blocks = self._content.blocks(self._position)
            if not self._rest:
                self._rest = next(self._blocks, b"")
        except Unreadable as error:
            raise OSError(errno.EIO, str(error), self._content.path) from None
        with memoryview(buffer).cast("B") as view:
            count = min(len(view), len(self._rest))
            view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to an offset from the start, the position or the end."""
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}
        position = starts[whence] + offset
        if position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if position != self._position:
            self._position, self._blocks, self._rest = position, None, b""
        return position


class LeftOut(Struct, frozen=True):
    """An output that was not copied."""

    output: Output
    why: str


class Copied(Struct, frozen=True):
    """What `Outputs.copy_to` has done."""

    copies: tuple[Path, ...]
    #: In bytes, of all copies.
    size: int
    #: Links that leave the outputs of the run, and files that could not be read.
    left_out: tuple[LeftOut, ...]


class Outputs(Table[Output]):
    """The outputs of a run when they were listed: those that its nodes share, then by rank."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Output: ...
    @overload
    def __getitem__(self, index: slice) -> Outputs: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Output | Outputs:
        found = super().__getitem__(index)
        return Outputs(found) if isinstance(found, list) else found

    @property
    def size(self) -> int:
        """In bytes, of all files."""
        return sum(one.size for one in self if one.link is None)

    def copy_to(self, folder: str | Path, *, force: bool = False) -> Copied:
        """Copy all into a folder, those of a node into `rank-N` in it.

        Raises InvalidInput if something would be overwritten, unless `force` is set, and if a copy
        cannot be written.
        """
        if Path(folder).exists() and not Path(folder).is_dir():
            raise InvalidInput(Problem("to", f"{folder} is a file", "name a folder"))
        targets = [(one, Path(folder) / one.path_in_run) for one in self]
        if not force:
            _refuse_existing([path for _, path in targets if os.path.lexists(path)])
        copies, size, left_out = [], 0, []
        for one, path in targets:
            why = _copy(one, path)
            if why:
                left_out.append(LeftOut(one, why))
            else:
                copies.append(path)
                size += one.size
        return Copied(tuple(copies), size, tuple(left_out))


def _copy(one: Output, path: Path) -> str:
    """Copy an output. Returns why it cannot be read, "" if it can. Raises InvalidInput if the copy
    cannot be written."""
    from muster.client.output_copies import copy_content, copy_link

    try:
        if one.link_in_copy is not None:
            copy_link(one.link_in_copy, path)
        else:
            found = one.content.look()
            copy_content(one.content.blocks(), path, found.mode, found.modified)
    except Unreadable as error:
        return str(error)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        text = f"cannot write {path}: {error.strerror}"
        raise InvalidInput(Problem("to", text, "choose another folder")) from None
    return ""


def _refuse_existing(paths: Sequence[Path]) -> None:
    if paths:
        text = f"{named(paths, _NAMED)} would be overwritten"
        raise InvalidInput(Problem("to", text, "choose another folder, or use --force"))


def outputs_from(api: MusterAPI, run_id: str, found: OutputList) -> Outputs:
    """The outputs of a run."""
    root = Path(found.folder)
    return Outputs(
        Output(
            root=root,
            rank=one.rank,
            path=PurePosixPath(one.path),
            size=one.size,
            modified=moment(one.modified),
            link=one.link,
            leaves_outputs=one.leaves_outputs,
            link_in_copy=one.link_in_copy,
            content=Content(api, run_id, one.rank, one.path),
        )
        for one in found.files
    )
