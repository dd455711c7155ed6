"""The Python API of a run's outputs."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import SupportsIndex, overload

from msgspec import Struct

from muster.client.selection import Selection, problems
from muster.client.table import Table
from muster.describe.words import named
from muster.errors import InvalidInput, Problem
from muster.storage.outputs import Output, Unreadable, copy_content, copy_link, find_outputs

#: Files that an error names.
_NAMED = 5


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
    source = None
    try:
        source = one.open() if one.link is None or one.leaves_outputs else None
    except OSError as error:
        return error.strerror or str(error)
    try:
        if source is None:
            copy_link(_relative_link(one), path)
        else:
            with source:
                copy_content(source, path)
    except Unreadable as error:
        return str(error)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        text = f"cannot write {path}: {error.strerror}"
        raise InvalidInput(Problem("to", text, "choose another folder")) from None
    return ""


def _relative_link(one: Output) -> str:
    """The text of a link that stays in the outputs, for a copy of them."""
    if one.link is not None and not os.path.isabs(one.link):
        return one.link
    return os.path.relpath(os.path.realpath(one), os.path.realpath(os.path.dirname(one)))


def _refuse_existing(paths: Sequence[Path]) -> None:
    if paths:
        text = f"{named(paths, _NAMED)} would be overwritten"
        raise InvalidInput(Problem("to", text, "choose another folder, or use --force"))


def select_outputs(root: Path, run: str, sizes: Mapping[str, int], selection: Selection) -> Outputs:
    """The outputs of the selected nodes; of all, with those that nodes share, if the selection
    names no rank and no group. run: its name. sizes: group -> number of nodes, in rank order.

    Raises InvalidInput for parts that the run does not have.
    """
    if missing := list(problems(selection, run, sizes, ())):
        raise InvalidInput(*missing)
    group_of = [name for name, size in sizes.items() for _ in range(size)]
    ranks, groups = selection.ranks, selection.groups
    found = find_outputs(root, range(len(group_of)))
    if ranks is None and groups is None:
        return Outputs(found)
    return Outputs(
        one
        for one in found
        if one.rank is not None
        and (ranks is None or one.rank in ranks)
        and (groups is None or group_of[one.rank] in groups)
    )
