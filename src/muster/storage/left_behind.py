"""What lies beside a job's code and is not sent: named when a program looks for it in vain."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from muster.plan.model import LeftBehind
from muster.storage.artifacts import ArtifactRef, stored_path
from muster.storage.home import Home

#: Names that are kept with a run, Python's modules first, and entries of a folder looked at.
_MOST, _LOOKED_AT = 200, 5_000
_SINGLE = ("python", "notebook", "shell", "program")


def left_behind(home: Home, code: Path, ref: ArtifactRef) -> LeftBehind | None:
    """What of a script's folder, or of a folder that is sent, its stored copy does not have.
    Nothing where the folder cannot be read: it may be gone when a job runs again."""
    script = "" if os.path.isdir(code) else code.name
    folder = code.parent if script else code
    try:
        with os.scandir(folder) as scan:
            entries = {entry.name for entry in islice(scan, _LOOKED_AT)}
    except OSError:
        return None
    ignored = _ignored(folder, entries)
    names = entries - _sent(home, script, ref) if script else ignored
    if not names:
        return None
    kept = sorted(names, key=lambda name: (not name.endswith(".py"), name))[:_MOST]
    return LeftBehind(str(folder), script, tuple(kept), tuple(n for n in kept if n in ignored))


def _sent(home: Home, script: str, ref: ArtifactRef) -> set[str]:
    if ref.kind in _SINGLE:
        return {script}
    import tarfile

    with tarfile.open(stored_path(home, ref.sha256)) as packed:
        return {name.partition("/")[0] for name in packed.getnames()}


def _ignored(folder: Path, entries: set[str]) -> set[str]:
    if not entries & {".musterignore", ".gitignore"}:
        return set()
    from muster.storage.ignore import kept_back

    return kept_back(folder, entries)
