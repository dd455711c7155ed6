"""CPU and memory limits of a node, where this machine lets us set them.

Control groups of version 1 (one hierarchy a controller) and version 2 (one for all). A node's
groups are made below the one we are in; the roots of the hierarchies are left alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_PERIOD = 100_000  # microseconds, the kernel's default
_PREFIX = "muster-"


class Hierarchy(Struct, frozen=True):
    """Where the group of a controller goes. version: 1 or 2."""

    controller: str
    parent: Path
    version: int


def hierarchies(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> dict[str, Hierarchy]:
    """The controllers `cpu` and `memory` we can make groups for; what is missing is not writable.

    root: where control groups are mounted; own: our place in them.
    """
    found: dict[str, Hierarchy] = {}
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            if name in ("cpu", "memory"):
                parent = root / name / path.lstrip("/")
                if _writable(parent):
                    found[name] = Hierarchy(name, parent, 1)
        if names == "":
            parent = root / path.lstrip("/")
            for name in _delegated(parent):
                if _writable(parent):
                    found.setdefault(name, Hierarchy(name, parent, 2))
    return found


def memory_limit(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Bytes that we and all we start may use, by our own groups' limits and those above; None
    without any. root, own: as in `hierarchies`."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, names, path = line.split(":", 2)
        if names == "":
            top, file = root, "memory.max"
        elif "memory" in names.split(","):
            top, file = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        limits += [_number(f"{top}/{group}/{file}") for group in _up(path.strip("/"))]
    return min((limit for limit in limits if limit is not None), default=None)


def _up(group: str) -> Iterator[str]:
    """A group's path and those above it, the root's, which is empty, last."""
    while group:
        yield group
        group = group.rpartition("/")[0]
    yield ""


def _number(file: str) -> int | None:
    try:
        with open(file, "rb") as opened:
            text = opened.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)


def _delegated(parent: Path) -> list[str]:
    try:
        enabled = (parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []
    return [name for name in ("cpu", "memory") if name in enabled]


class NodeLimits:
    """The control groups of one node."""

    def __init__(self, name: str, cpus: float | None, memory: int | None) -> None:
        self._groups: list[Path] = []
        self._memory: Path | None = None
        available = hierarchies()
        if cpus is not None and "cpu" in available:
            where = self._make(available["cpu"], name)
            quota = max(1000, int(cpus * _PERIOD))
            if available["cpu"].version == 1:
                (where / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (where / "cpu.max").write_text(f"{quota} {_PERIOD}")
        if memory is not None and "memory" in available:
            where = self._make(available["memory"], name)
            limit = "memory.limit_in_bytes" if available["memory"].version == 1 else "memory.max"
            (where / limit).write_text(str(memory))
            self._memory = where

    def _make(self, hierarchy: Hierarchy, name: str) -> Path:
        where = hierarchy.parent / f"{_PREFIX}{name}"
        where.mkdir(exist_ok=True)
        if where not in self._groups:
            self._groups.append(where)
        return where

    def join(self) -> None:
        """Move the calling process, and all it will start, into the node's groups."""
        for where in self._groups:
            (where / "cgroup.procs").write_text("0")

    def out_of_memory(self) -> int:
        """How many processes of the node the kernel has ended at its memory limit."""
        if self._memory is None:
            return 0
        for name in ("memory.oom_control", "memory.events"):
            with contextlib.suppress(OSError):
                for line in (self._memory / name).read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Remove the groups; the node's processes have ended."""
        for where in self._groups:
            with contextlib.suppress(OSError):  # a process still exiting: `sweep` gets it later
                where.rmdir()
        self._groups.clear()


def sweep(run_id: str) -> None:
    """Remove groups a supervisor that was killed has left behind for this run."""
    for hierarchy in hierarchies().values():
        for where in hierarchy.parent.glob(f"{_PREFIX}{run_id}-*"):
            with contextlib.suppress(OSError):  # busy: its last process has not gone yet
                where.rmdir()


def missing(cpus: bool, memory: bool) -> list[str]:
    """Which of the asked limits cannot be enforced here."""
    available = hierarchies()
    asked = [name for name, wanted in (("cpu", cpus), ("memory", memory)) if wanted]
    return [name for name in asked if name not in available]
