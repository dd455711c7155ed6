"""Whether the disk of MUSTER_HOME has room for a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from muster.errors import Problem
from muster.plan.model import GroupPlan, ResourcePlan, RunPlan

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
    if not any(_asks(group.resources) for group in plan.groups):
        return
    from muster.engines.local import disk_image

    total, small = 0, False
    asking = []
    for group, policy in zip(plan.groups, plan.policy.groups, strict=True):
        yield from _image(group)
        disk = group.resources.disk
        if disk is None:
            continue
        asking.append(group.name)
        total += disk * policy.initial * policy.nodes
        least = disk_image.LEAST if group.resources.disk_image else _LEAST
        if disk < least:
            small = True
            hint = f"did you mean {disk}GiB?" if disk < 4096 else f"at least {size_text(least)}"
            path = f"node_groups[{group.name}].resources.disk"
            yield Problem(path, f"{disk} bytes are too few for any program", hint)
    if total <= free or small:
        return
    if total <= free + _used(plan, root):  # a suspended run's files are a part of what it asks for
        return
    from muster.spec.quantities import format_size

    path = f"node_groups[{asking[0]}].resources.disk" if len(asking) == 1 else "resources.disk"
    text = f"all nodes together may use {format_size(total)}, {root} has {format_size(free)} free"
    hint = "ask for fewer nodes or less disk, free some, or set MUSTER_HOME to a larger disk"
    yield Problem(path, text, hint)


def check_added(plan: RunPlan, root: Path, group: str, added: int) -> list[Problem]:
    """Whether the disk has no room for so many more replicas of a group."""
    index = next(i for i, one in enumerate(plan.groups) if one.name == group)
    disk = plan.groups[index].resources.disk
    if disk is None:
        return []
    room = os.statvfs(root)
    free = room.f_bavail * room.f_frsize
    total = disk * added * plan.policy.groups[index].nodes
    if total <= free:
        return []
    from muster.spec.quantities import format_size

    text = f"the added nodes may use {format_size(total)}, {root} has {format_size(free)} free"
    return [Problem(group, text, "add fewer replicas, or free some space")]


def _used(plan: RunPlan, root: Path) -> int:
    """Bytes that the run's nodes have taken already, which is nothing before it starts."""
    from muster.node.disk import count
    from muster.storage.home import Home

    *_, total = count(str(Home(root).run_dir(plan.run_id).path / "nodes"))
    return total


def _asks(said: ResourcePlan) -> bool:
    return said.disk is not None or said.disk_image


def _image(group: GroupPlan) -> Iterator[Problem]:
    if not group.resources.disk_image:
        return
    from muster.engines.local import disk_image

    path = f"node_groups[{group.name}].resources.disk_image"
    if group.resources.disk is None:
        yield Problem(path, "nothing says how large it is to be", "give resources.disk, too")
    why = disk_image.impossible()
    if why is not None:
        hint = f"{why[1]}, or leave it out: what nodes use is measured then"
        yield Problem(path, f"is not possible here: {why[0]}", hint)


def disk_notes(plan: RunPlan) -> Iterator[str]:
    """How a limit is held, where nothing enforces it."""
    asked = [group.resources for group in plan.groups]
    if any(one.disk is not None and not one.disk_image for one in asked):
        from muster.engines.local import disk_image

        enforce = " (disk_image enforces it)" if disk_image.impossible() is None else ""
        yield (
            "resources.disk is not enforced: what nodes use is measured, and too much is told"
            + enforce
        )


def size_text(size: int) -> str:
    """As a spec has it."""
    for unit, scale in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size % (1 << scale) == 0:
            return f"{size >> scale}{unit}"
    return f"{size} bytes"
