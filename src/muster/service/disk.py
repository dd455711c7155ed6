"""What takes how much of the disk in MUSTER_HOME, and what `prune` would free of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from muster.service.context import Context
from muster.service.prune import candidates, retention_of, run_files
from muster.storage.disk_use import DiskUse, entries_of
from muster.storage.home import Home


class DiskItem(Struct, frozen=True):
    """One kind of what MUSTER_HOME contains."""

    #: code, runs, environments, volumes, database or temporary.
    kind: str
    #: The number of stored versions of code, of runs, environments and volumes; else of files.
    count: int
    #: Bytes. What several share counts once.
    size: int
    #: Bytes that `prune` would free.
    prunable: int
    #: Of runs: the bytes of their logs, nodes (working directories), outputs, and the rest.
    parts: Mapping[str, int] = {}


#: Names in a run's folder -> what they are.
_PARTS = {"logs": "logs", "nodes": "nodes", "outputs": "outputs", "results": "outputs"}


def measure(context: Context) -> tuple[DiskItem, ...]:
    """All kinds, in the order in which they are listed."""
    home = context.home
    found = candidates(context, retention_of(home, None, None))
    use = DiskUse()
    code = [
        one
        for folder in entries_of(home.artifacts)
        if len(folder.name) == 2
        for one in entries_of(folder)
    ]
    unfinished = [*home.artifacts.glob(".part-*")]  # of copies in progress, or killed
    of_code = [path for path in entries_of(home.artifacts) if path not in unfinished]
    code_size = sum(map(use.add, of_code))
    runs = entries_of(home.runs)
    parts = _parts_of_runs(home, runs, use)
    installed = [one for one in entries_of(home.environments) if one.is_dir()]
    volumes = entries_of(home.root / "volumes")
    records = (f"{home.database.name}*", "reserve", "reservations.*", "gpus*")
    files = (home.artifacts_lock.name, home.config.name)
    database = [path for pattern in (*records, *files) for path in home.root.glob(pattern)]
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


def _parts_of_runs(home: Home, folders: list[Path], use: DiskUse) -> dict[str, int]:
    parts = {"logs": 0, "nodes": 0, "outputs": 0, "other": 0}
    for folder in folders:
        _, *logs = run_files(home, folder.name)
        parts["logs"] += sum(map(use.add, logs))
        for entry in entries_of(folder):
            parts[_PARTS.get(entry.name, "other")] += use.add(entry)
    return parts
