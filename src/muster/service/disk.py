"""What takes how much of the disk in MUSTER_HOME, and what `prune` would free of it.

Of code and runs, what only other projects have is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from muster.api.answers import DiskItem
from muster.service.context import Context
from muster.service.prune import candidates, retention_of, run_files
from muster.storage.disk_use import DiskUse, entries_of
from muster.storage.home import Home
from muster.storage.owners import Shared, shared_by_runs
from muster.store.records import RunFilter
from muster.unix_account import acting_as

#: Names in a run's folder -> what they are.
_PARTS = {"logs": "logs", "nodes": "nodes", "outputs": "outputs", "results": "outputs"}


def measure(context: Context) -> tuple[DiskItem, ...]:
    """All kinds, in the order in which they are listed."""
    home = context.home
    found = candidates(context, retention_of(home, None, None))
    use = DiskUse()
    folders = [one for one in entries_of(home.artifacts) if len(one.name) == 2]
    every = [one for folder in folders for one in entries_of(folder)]
    others = _code_of_others(context)
    code = [one for one in every if one.name not in others]
    unfinished = [*home.artifacts.glob(".part-*")]  # of copies in progress, or killed
    shared = [one for one in entries_of(home.artifacts) if one not in (*folders, *unfinished)]
    shared += entries_of(home.sent.root)
    code_size = sum(map(use.add, [*code, *([] if others else shared)]))
    hidden = _runs_of_others(context)
    runs = [one for one in entries_of(home.runs) if one.name not in hidden]
    parts = _parts_of_runs(home, runs, use)
    owners = [_measure_shared(one, use) for one in shared_by_runs(home)]
    environments, volumes, homes = map(_sum, zip(*owners, strict=True))
    records = (f"{home.database.name}*", "reserve", "reservations.*", "gpus*")
    files = (home.artifacts_lock.name, home.config.name)
    database = [path for pattern in (*records, *files) for path in home.root.glob(pattern)]
    known = {home.artifacts, home.runs, home.environments, home.volumes, home.owners}
    known |= {home.sent.root, *database}
    rest = [*unfinished, *(path for path in entries_of(home.root) if path not in known)]
    return (
        DiskItem("code", len(code), code_size, found.code_size),
        DiskItem("runs", len(runs), sum(parts.values()), found.runs_size, parts),
        DiskItem("environments", *environments, found.environments_size),
        DiskItem("volumes", *volumes, 0),
        *([DiskItem("homes", *homes, 0)] if homes.number else []),
        DiskItem("database", len(database), sum(map(use.add, database)), 0),
        DiskItem("temporary", len(rest), sum(map(use.add, rest)), found.leftovers_size),
    )


class _Measured(NamedTuple):
    """Some folders."""

    number: int
    #: Bytes.
    size: int


def _sum(several: Iterable[_Measured]) -> _Measured:
    numbers, sizes = zip(*several, strict=True)
    return _Measured(sum(numbers), sum(sizes))


def _measure_shared(shared: Shared, use: DiskUse) -> tuple[_Measured, _Measured, _Measured]:
    """Environments, volumes, and the home directory of an owner, with what else is there."""
    home = shared.home
    with acting_as(shared.account):
        installed, volumes = _entries(home.environments), _entries(home.volumes)
        number = sum(one.is_dir() and not one.is_symlink() for one in installed)
        environments = _Measured(number, sum(map(use.add, installed)))
        kept = _Measured(len(volumes), sum(map(use.add, volumes)))
        if shared.account is None:
            return environments, kept, _Measured(0, 0)
        return environments, kept, _Measured(1, use.add(home.root))  # what was not counted yet


def _entries(folder: Path) -> list[Path]:
    """As `entries_of`; none if the owner has closed the folder."""
    try:
        return entries_of(folder)
    except OSError:
        return []


def _runs_of_others(context: Context) -> set[str]:
    every = {run.id for run in context.store.runs.listing(None, RunFilter())}
    return every - {run.id for run in context.store.runs.listing(context.project, RunFilter())}


def _code_of_others(context: Context) -> set[str]:
    """The artifacts that Jobs have, and none of the caller's project."""
    own = {job.artifact_sha256 for job in context.store.jobs.listing(context.project)}
    return {sha256 for sha256 in context.store.jobs.artifacts_in_use() if sha256 not in own}


def _parts_of_runs(home: Home, folders: list[Path], use: DiskUse) -> dict[str, int]:
    parts = {"logs": 0, "nodes": 0, "outputs": 0, "other": 0}
    for folder in folders:
        _, *logs = run_files(home, folder.name)
        parts["logs"] += sum(map(use.add, logs))
        for entry in entries_of(folder):
            parts[_PARTS.get(entry.name, "other")] += use.add(entry)
    return parts
