"""Files next to a job's code that are not sent, for the hint when a program does not find one."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from muster.plan.model import UnsentFiles
from muster.storage.artifacts import ArtifactRef, stored_names
from muster.storage.home import Home

#: Maximum names kept with a run, Python modules first, and entries of a folder that are read.
_MAX_NAMES, _MAX_ENTRIES = 200, 5_000
_SINGLE = ("python", "notebook", "shell", "program")


def unsent_files(home: Home, code: Path, ref: ArtifactRef) -> UnsentFiles | None:
    """The entries of the code's folder that the stored copy does not contain. None if all are
    stored, or the folder cannot be read: it may have been removed before a job runs again."""
    script = "" if os.path.isdir(code) else code.name
    folder = code.parent if script else code
    try:
        with os.scandir(folder) as scan:
            entries = {entry.name for entry in islice(scan, _MAX_ENTRIES)}
    except OSError:
        return None
    ignored = _ignored_names(folder, entries)
    names = entries - _stored_names(home, script, ref) if script else ignored
    if not names:
        return None
    kept = sorted(names, key=lambda name: (not name.endswith(".py"), name))[:_MAX_NAMES]
    return UnsentFiles(str(folder), script, tuple(kept), tuple(n for n in kept if n in ignored))


def _stored_names(home: Home, script: str, ref: ArtifactRef) -> set[str]:
    if ref.kind in _SINGLE:
        return {script}
    return {name.partition("/")[0] for name in stored_names(home, ref)}


def _ignored_names(folder: Path, entries: set[str]) -> set[str]:
    if not entries & {".musterignore", ".gitignore"}:
        return set()
    from muster.storage.ignore import ignored_entries

    return ignored_entries(folder, entries)
