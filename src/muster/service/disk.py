"""What takes how much of the disk in MUSTER_HOME, and what `prune` would free of it.

Of code and runs, what only other projects have is left out.
"""

from __future__ import annotations

from pathlib import Path

from muster.api.answers import DiskItem
from muster.service.context import Context
from muster.service.prune import candidates, retention_of, run_files
from muster.storage.disk_use import DiskUse, entries_of
from muster.storage.home import Home
from muster.store.records import RunFilter

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
    code_size = sum(map(use.add, [*code, *([] if others else shared)]))
    hidden = _runs_of_others(context)
    runs = [one for one in entries_of(home.runs) if one.name not in hidden]
    parts = _parts_of_runs(home, runs, use)
    installed = [one for one in entries_of(home.environments) if one.is_dir()]
    volumes = entries_of(home.root / "volumes")
    records = (f"{home.database.name}*", "reserve", "reservations.*", "gpus", home.config.name)
    database = [path for pattern in records for path in home.root.glob(pattern)]
    known = {home.artifacts, home.runs, home.environments, home.root / "volumes", *database}
    rest = [*unfinished, *(path for path in entries_of(home.root) if path not in known)]
    return (
        DiskItem("code", len(code), code_size, found.code_size),
        DiskItem("runs", len(runs), sum(parts.values()), found.runs_size, parts),
        DiskItem(
            "environments",
            len(installed),
            sum(map(use.add, entries_of(home.environments))),
            found.environments_size,
        ),
        DiskItem("volumes", len(volumes), sum(map(use.add, volumes)), 0),
        DiskItem("database", len(database), sum(map(use.add, database)), 0),
        DiskItem("temporary", len(rest), sum(map(use.add, rest)), found.leftovers_size),
    )


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
