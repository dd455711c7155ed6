"""Kinds of code and of mounts, which follow from names alone."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from muster.spec.models import JobSpec

MountKind = Literal["directory", "nfs", "url", "scratch", "volume", "files"]

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


def classify_source(source: str) -> MountKind:
    """The kind of a source: a directory, an NFS export (`nfs://host/path`, `host:/path`), an fsspec
    URL, or a directory that Muster creates (`scratch:node/NAME`, `scratch:incarnation/NAME`,
    `scratch:run/NAME`, `volume:NAME`)."""
    if source.startswith("nfs://"):
        return "nfs"
    if "://" in source:
        return "url"
    host, colon, path = source.partition(":")
    if colon and not path.startswith("/") and host in ("scratch", "volume"):
        return "scratch" if host == "scratch" else "volume"
    return "nfs" if colon and host and path.startswith("/") and "/" not in host else "directory"
