"""Where a machine has mounted NFS exports."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Dict, Iterable, Tuple

_TABLE = "/proc/self/mounts"
_TYPES = ("nfs", "nfs4")


def mounted_exports(exports: Iterable[str]) -> Dict[str, str]:
    """Export (`HOST:/PATH`) -> the directory here with its files; without those that are not
    mounted. A directory of an export that is mounted counts as well. Nothing is looked at below the
    mount points, since a server that does not answer would block this process.
    """
    table = ""
    # a file system may have any bytes in its name; only Linux has the table
    with contextlib.suppress(OSError), open(_TABLE, errors="surrogateescape") as file:
        table = file.read()
    found = ((export, find_mounted(export, table)) for export in exports)
    return {export: path for export, path in found if path}


def find_mounted(export: str, table: str) -> str:
    """The directory with the files of an export; "" if it is not mounted. table: as in
    /proc/self/mounts."""
    host, path = _split(export)
    mounts = {}  # the last file system at a mount point hides those before
    for line in table.splitlines():
        device, place, kind = [_unescaped(field) for field in line.split(" ")[:3]]
        mounts[place] = (device, kind)
    best = ""
    longest = -1
    for place, (device, kind) in mounts.items():
        mounted_host, mounted_path = _split(device)
        if kind not in _TYPES or mounted_host != host:
            continue
        below = _below(path, mounted_path)
        if below is not None and len(mounted_path) > longest:
            longest = len(mounted_path)
            best = os.path.join(place, below) if below else place
    return best


def _split(export: str) -> Tuple[str, str]:
    host, _, path = export.rpartition(":/")
    return host.lower(), "/" + path.strip("/")


def _below(path: str, folder: str) -> str | None:
    """The part of a path below a folder; None if it is not in it."""
    if path == folder:
        return ""
    start = folder.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else None


def _unescaped(field: str) -> str:
    """The kernel writes spaces, tabs, line ends and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
