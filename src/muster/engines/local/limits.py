"""The limits of nodes on CPUs and memory, which control groups enforce.

Control groups of version 1 (a hierarchy for each controller) and version 2 (one for all) work. The
groups of a node are created below the one that Muster runs in; the roots are left alone.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from msgspec import Struct

_PERIOD = 100_000  # microseconds, the kernel's default
_PREFIX = "muster-"


class Hierarchy(Struct, frozen=True):
    """Where groups of one controller can be created."""

    controller: str
    #: The group to create them in.
    parent: Path
    #: Version of control groups: 1 or 2.
    version: int


def hierarchies(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> dict[str, Hierarchy]:
    """Where groups for the controllers `cpu` and `memory` can be created, by controller. A
    controller is missing if its groups are not writable.

    root: where control groups are mounted. own: the file that lists this process's groups.
    """
    found: dict[str, Hierarchy] = {}
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            if name in ("cpu", "memory"):
                parent = root / name / path.lstrip("/")
                if _writable(parent):
                    found[name] = Hierarchy(name, parent, 1)
        if controllers == "":
            parent = root / path.lstrip("/")
            for name in _delegated(parent):
                if _writable(parent):
                    found.setdefault(name, Hierarchy(name, parent, 2))
    return found


def _writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)


def _delegated(parent: Path) -> list[str]:
    try:
        enabled = (parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []
    return [name for name in ("cpu", "memory") if name in enabled]


def unenforceable(cpus: bool, memory: bool) -> list[str]:
    """Which of these limits this machine cannot enforce. cpus, memory: whether a node has one."""
    available = hierarchies()
    needed = [name for name, limited in (("cpu", cpus), ("memory", memory)) if limited]
    return [name for name in needed if name not in available]


class NodeLimits:
    """The control groups of one node. name: unique on this machine, and starts with the run's id.

    A limit that this machine cannot enforce is left out.
    """

    def __init__(self, name: str, cpus: float | None, memory: int | None) -> None:
        self._groups: list[Path] = []
        self._memory: Path | None = None
        available = hierarchies()
        if cpus is not None and "cpu" in available:
            group = self._create(available["cpu"], name)
            quota = max(1000, int(cpus * _PERIOD))
            if available["cpu"].version == 1:
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
        if memory is not None and "memory" in available:
            group = self._create(available["memory"], name)
            limit = "memory.limit_in_bytes" if available["memory"].version == 1 else "memory.max"
            (group / limit).write_text(str(memory))
            self._memory = group

    def _create(self, hierarchy: Hierarchy, name: str) -> Path:
        group = hierarchy.parent / f"{_PREFIX}{name}"
        group.mkdir(exist_ok=True)
        if group not in self._groups:
            self._groups.append(group)
        return group

    def join(self) -> None:
        """Move the calling process into the node's groups. Its future children are in them too."""
        for group in self._groups:
            (group / "cgroup.procs").write_text("0")

    def oom_kill_count(self) -> int:
        """How many processes of the node the kernel has killed at its memory limit."""
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
        for group in self._groups:
            with contextlib.suppress(OSError):  # a process is exiting: `remove_cgroups` removes it
                group.rmdir()
        self._groups.clear()


def join_groups_of(
    pid: int, root: Path = Path("/sys/fs/cgroup"), processes: Path = Path("/proc")
) -> None:
    """Move the calling process into the node's groups that process `pid` is in. Raises OSError.

    root: where control groups are mounted. processes: where /proc is.
    """
    for line in (processes / str(pid) / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if Path(path).name.startswith(_PREFIX):
            group = root / controllers.split(",")[0] / path.lstrip("/")
            (group / "cgroup.procs").write_text("0")


def remove_cgroups(run_id: str) -> None:
    """Remove the control groups that a killed supervisor of this run left behind."""
    for hierarchy in hierarchies().values():
        for group in hierarchy.parent.glob(f"{_PREFIX}{run_id}-*"):
            with contextlib.suppress(OSError):  # busy: its last process is still exiting
                group.rmdir()
