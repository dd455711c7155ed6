"""What the engines can do on this machine, and where MUSTER_HOME is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from msgspec.structs import replace

from muster.engines.findings import Finding
from muster.engines.installed import InstalledEngine, installed_engines
from muster.engines.registry import LOCAL, found_by, local_engine
from muster.errors import InvalidInput, StoreError
from muster.file_locks import check_locks
from muster.file_system import file_system_of
from muster.storage.fifos import make_fifo
from muster.storage.home import default_home


def examine() -> list[Finding]:
    """What each engine finds, the local one first; not those that are built in and were not added,
    which `muster engines check` examines. Names in findings of others start with the engine's.
    Leaves nothing behind."""
    try:
        home = default_home()
    except InvalidInput:  # `home_finding` tells more
        return found_by(local_engine())
    found = [one for one in installed_engines(home) if one.name == LOCAL or not one.is_built_in]
    return [finding for one in found for finding in _findings(one)]


def _findings(one: InstalledEngine) -> Iterator[Finding]:
    if one.engine is None or one.unusable:
        yield Finding(f"engine {one.name}", False, f"{one.origin}: {one.unusable}")
        return
    for finding in found_by(one.engine):
        yield finding if one.name == LOCAL else replace(finding, name=f"{one.name}: {finding.name}")


def key_findings() -> list[Finding]:
    """Whether others can read the key of the secrets; empty if all is well."""
    try:
        path = default_home().secret_key
        mode = stat.S_IMODE(path.stat().st_mode)
    except (InvalidInput, OSError):  # there is none, or `home_finding` tells more
        return []
    if not mode & (stat.S_IRWXG | stat.S_IRWXO):
        return []
    says = f"other users may read the key of your secrets: {path} has mode {mode:04o}"
    return [Finding("secret.key", False, says, f"chmod 600 {path}")]


def home_finding() -> Finding:
    """Where MUSTER_HOME is, and how it is used there."""
    name = "MUSTER_HOME"
    try:
        home = default_home()
    except InvalidInput as error:
        return Finding(name, False, str(error), "set it to a full path")
    root = home.root
    where = file_system_of(root)
    folder = next(one for one in (root, *root.parents) if one.exists())
    writable = "set MUSTER_HOME to a folder you can write to"
    if not where.shared and (home.read_only() or not os.access(folder, os.W_OK)):
        says = f"{folder} is on {where}, and read-only: nothing can be started or changed"
        return Finding(name, False, says, writable)
    if not where.shared:
        return Finding(name, True, f"{root} is on {where}, a local file system")
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
        return Finding(name, False, says, writable)
    says = (
        f"{root} is on {where}, which other hosts may use too: the database has a rollback "
        "journal, and exec, shell, cp, open, top, stacks and cancel --force work on the host of "
        "the run only"
    )
    return Finding(name, True, says)
