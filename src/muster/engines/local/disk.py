"""Whether the disk of MUSTER_HOME has room for a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from muster.errors import Problem
from muster.plan.model import RunPlan

#: Less than this free under MUSTER_HOME (bytes), beside what the code takes, and a run is refused.
_SPARE = 16 << 20
_SPARE_FILES = 64
#: The least that a node may be limited to (bytes).
_LEAST = 1 << 20


def check_disk(plan: RunPlan, root: Path) -> list[Problem]:
    """What there is no room for."""
    there = next(path for path in (root, *root.absolute().parents) if os.path.exists(path))
    disk = os.statvfs(there)  # a home that is not there yet will be on the same one
    free = disk.f_bavail * disk.f_frsize
    if disk.f_files and disk.f_favail < _SPARE_FILES:
        text = f"the disk has no inodes left: {disk.f_favail} more files can be made there"
        return [Problem(str(root), text, "delete some files, or set MUSTER_HOME to another disk")]
    code = plan.artifact.size * plan.policy.initial_size if plan.artifact else 0
    if free < code + _SPARE:
        need = f"{(code + _SPARE) / 2**20:.0f} MiB"
        text = f"the disk is full: {free / 2**20:.0f} MiB free, the run needs {need}"
        hint = "free some space, or set MUSTER_HOME to a folder on another disk"
        return [Problem(str(root), text, hint)]
    return list(_demands(plan, root, free))


def _demands(plan: RunPlan, root: Path, free: int) -> Iterator[Problem]:
    """What nodes ask for, by group; all their disks are this one, so they add up."""
    total, small = 0, False
    groups = zip(plan.groups, plan.policy.groups, strict=True)
    wanted = [(g.name, g.resources.disk, p.initial * p.nodes) for g, p in groups]
    for name, disk, nodes in wanted:
        if disk is None:
            continue
        path = f"node_groups[{name}].resources.disk"
        if disk < _LEAST:
            small = True
            hint = f"did you mean {disk}GiB?" if disk < 4096 else "at least 1MiB"
            yield Problem(path, f"{disk} bytes are too few for any program", hint)
        total += disk * nodes
    asking = [name for name, disk, _ in wanted if disk is not None]
    if total <= free or small:
        return
    path = f"node_groups[{asking[0]}].resources.disk" if len(asking) == 1 else "resources.disk"
    text = f"all nodes together may use {_gib(total)}, {root} has {_gib(free)} free"
    hint = "ask for fewer nodes or less disk, free some, or set MUSTER_HOME to a larger disk"
    yield Problem(path, text, hint)


def disk_notes(plan: RunPlan) -> Iterator[str]:
    """How a limit is held, where nothing enforces it."""
    if any(group.resources.disk is not None for group in plan.groups):
        yield "resources.disk is not enforced here: what nodes use is measured, too much is told"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
