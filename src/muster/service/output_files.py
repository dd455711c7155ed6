"""The outputs of runs: list them and read them."""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterator
from pathlib import PurePosixPath

from msgspec.structs import replace

from muster.api.outputs import OutputFile, OutputList
from muster.errors import Unreadable
from muster.service.context import Context
from muster.storage.outputs import StoredOutput, blocks, find_outputs, output_at
from muster.store.records import RunSummary
from muster.store.run_columns import StoredPlan


def outputs(
    context: Context,
    run: RunSummary,
    ranks: Collection[int] | None,
    groups: Collection[str] | None,
) -> OutputList:
    """See `MusterAPI.outputs`."""
    sizes = StoredPlan(context.store.runs.get(run.id)).policies()
    root = context.home.run_dir(run.id).outputs
    found = find_outputs(root, range(sum(len(group.ranks) for group in sizes)))
    if ranks is not None or groups is not None:
        from muster.api.streams import Selection
        from muster.service.selection import check_selection

        check_selection(context, run, Selection(ranks=ranks, groups=groups))
        chosen = {
            rank
            for group in sizes
            if groups is None or group.name in groups
            for rank in (group.ranks if ranks is None else ranks)
            if rank in group.ranks
        }
        found = [one for one in found if one.rank in chosen]
    return OutputList(str(root), tuple(map(_file, found)))


def _file(one: StoredOutput) -> OutputFile:
    return OutputFile(
        rank=one.rank,
        path=str(one.path),
        size=one.size,
        modified=one.modified,
        mode=one.mode,
        link=one.link,
        leaves_outputs=one.leaves_outputs,
        link_in_copy=one.link_in_copy,
    )


def output(context: Context, run_id: str, rank: int | None, path: str) -> OutputFile:
    """See `MusterAPI.output`."""
    root = context.home.run_dir(run_id).outputs
    try:
        found = output_at(root, rank, PurePosixPath(path))
        with found.open() as file:
            info = os.fstat(file.fileno())
    except OSError as error:
        raise _unreadable(error) from None
    listed = _file(found)
    return replace(listed, size=info.st_size, modified=info.st_mtime, mode=info.st_mode & 0o777)


def read(
    context: Context, run_id: str, rank: int | None, path: str, offset: int
) -> Generator[bytes]:
    """See `MusterAPI.read_output`."""
    root = context.home.run_dir(run_id).outputs
    try:
        file = output_at(root, rank, PurePosixPath(path)).open()
    except OSError as error:
        raise _unreadable(error) from None
    return _guarded(blocks(file, offset))


def _guarded(content: Iterator[bytes]) -> Generator[bytes]:
    try:
        yield from content
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError) -> Unreadable:
    return Unreadable(error.strerror or str(error))
