"""Kinds of code, which follow from the names of files."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.spec.models import JobSpec

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
KINDS = {
    ".py": "python",
    ".ipynb": "notebook",
    ".sh": "shell",
    ".bash": "shell",
    ".jar": "jar",
    ".class": "class",
    ".function": "function",
}


def kind_of(name: str) -> str | None:
    """The kind that follows from a file name; None if its suffix is unknown. Ignores case."""
    lower = name.lower()
    return "archive" if lower.endswith(ARCHIVES) else KINDS.get(PurePosixPath(lower).suffix)


def holds_files(spec: JobSpec) -> bool:
    """Whether the code has several files, of which one is run: a folder, archive or repository."""
    code = spec.artifact
    if code is None:
        return spec.git is not None
    return os.path.isdir(code) or kind_of(code) == "archive"
