"""What the engines can do on this machine, and where MUSTER_HOME is."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec.structs import replace

from muster.engines.findings import Finding
from muster.engines.installed import InstalledEngine, installed_engines
from muster.engines.registry import LOCAL, found_by
from muster.errors import InvalidInput, StoreError
from muster.file_locks import check_locks
from muster.file_system import file_system_of
from muster.storage.fifos import make_fifo
from muster.storage.home import default_home


def examine() -> list[Finding]:
    """What each installed engine finds, the local one first. Names in findings of others start with
    the engine's. Leaves nothing behind."""
    return [finding for one in installed_engines() for finding in _findings(one)]


def _findings(one: InstalledEngine) -> Iterator[Finding]:
    if one.engine is None or one.unusable:
        yield Finding(f"engine {one.name}", False, f"{one.origin}: {one.unusable}")
        return
    for finding in found_by(one.engine):
        yield finding if one.name == LOCAL else replace(finding, name=f"{one.name}: {finding.name}")


def home_finding() -> Finding:
    """Where MUSTER_HOME is, and how it is used there."""
    name = "MUSTER_HOME"
    try:
        root = default_home().root
    except InvalidInput as error:
        return Finding(name, False, str(error), "set it to a full path")
    where = file_system_of(root)
    if not where.shared:
        return Finding(name, True, f"{root} is on {where}, a local file system")
    folder = next(one for one in (root, *root.parents) if one.exists())
    fifo = folder / f".fifo-{os.getpid()}"
    try:
        check_locks(folder)
        make_fifo(fifo)
        fifo.unlink()
    except StoreError as error:
        problem, _, advice = str(error).rpartition("; ")
        return Finding(name, False, problem, advice)
    except OSError as error:
        says = f"{folder} is on {where}, and cannot be written: {error.strerror}"
        return Finding(name, False, says, "set MUSTER_HOME to a folder you can write to")
    says = (
        f"{root} is on {where}, which other hosts may use too: the database has a rollback "
        "journal, and a run is followed and canceled on the host that started it"
    )
    return Finding(name, True, says)
