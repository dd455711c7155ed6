"""Whether this machine has the CPUs, memory, GPUs and disk that a plan asks for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from muster.engines import open_files
from muster.engines.least_memory import check_least_memory, meant_size
from muster.engines.local.resources import limits_of
from muster.engines.machine import Machine
from muster.engines.ports import count_held
from muster.engines.reservations.demands import count_gpus, count_gpus_of, demand_of
from muster.errors import Problem
from muster.plan.model import GroupPlan, ResourcePlan, RunPlan
from muster.spec.quantities import format_size

#: A run is refused if storing its code would leave less than this free under MUSTER_HOME (bytes).
_SPARE_DISK = 16 << 20
#: A run is refused if fewer files than this can be created under MUSTER_HOME.
_SPARE_FILES = 64
#: The least memory that the processes of a node need besides the program (bytes).
_NODE_MEMORY = 3 << 20
#: The files that a supervisor has open besides those of nodes, and some more.
_OTHER_FILES = 23
#: The least disk that a node can be limited to (bytes).
_MIN_DISK = 1 << 20


# --- CPUs, memory and GPUs


def check_fit(plan: RunPlan, machine: Machine, replicas: Mapping[str, int]) -> list[Problem]:
    """Demands that this machine cannot meet. Nodes share CPUs and memory, so each node is checked
    alone; they never share GPUs, so the GPUs of all nodes are added up. replicas: how many of each
    group."""
    nodes = _count_nodes(plan, replicas)
    if nodes * _NODE_MEMORY > machine.memory:
        least, memory = format_size(nodes * _NODE_MEMORY), format_size(machine.memory)
        text = f"{nodes:,} nodes take at least {least} of memory, this machine has {memory}"
        hint = (
            f"ask for fewer than {machine.memory // _NODE_MEMORY:,}; `muster simulate` has no limit"
        )
        return [Problem("nodes", text, hint)]
    if problem := check_open_files(plan, replicas):
        fewer = "fewer replicas at once (--parallelism)" if plan.has_arrays else "fewer nodes"
        return [problem._replace(hint=f"{problem.hint}, or run {fewer}")]
    problems = [
        p._replace(path=f"node_groups[{group.name}].{p.path}")
        for group in plan.groups
        for p in _check_group(group, machine)
    ]
    text = _too_many_gpus(plan, replicas, machine.gpus)
    if text and not problems:
        hint = "ask for fewer nodes, or fewer GPUs on each"
        problems.append(Problem("resources.gpus", text, hint))
    return problems


def check_open_files(plan: RunPlan, replicas: Mapping[str, int]) -> Problem | None:
    """Whether this process allows a supervisor enough open files. See `_count_open_files`."""
    return open_files.check_open_files(_count_open_files(plan, replicas))


def _count_open_files(plan: RunPlan, replicas: Mapping[str, int]) -> int:
    """The supervisor, which inherits this process's limit, has a connection to each running node,
    and holds ports for each cluster of nodes: for the run, and for each replica of an array."""
    needed, in_one_cluster = _OTHER_FILES, 0
    for group in plan.groups:
        nodes = replicas[group.name] * group.nodes
        needed += nodes
        if group.is_array:
            held = count_held(plan.ports, group.nodes, plan.own_interfaces)
            needed += replicas[group.name] * held
        else:
            in_one_cluster += nodes
    if in_one_cluster:
        needed += count_held(plan.ports, in_one_cluster, plan.own_interfaces)
    return needed


def check_added_gpus(
    plan: RunPlan, replicas: Mapping[str, int], group: str, gpus: int
) -> list[Problem]:
    """Whether a run may be given enough GPUs for replicas added to a group. replicas: how many of
    each group there are then. gpus: how many the run may be given."""
    text = _too_many_gpus(plan, replicas, gpus)
    return [Problem(group, text, "add fewer replicas")] if text else []


def _too_many_gpus(plan: RunPlan, replicas: Mapping[str, int], available: int) -> str:
    needed = count_gpus_of(plan, replicas, available)
    if needed <= available:
        return ""
    return f"all nodes together need {needed} GPUs, this machine has {available}"


def _count_nodes(plan: RunPlan, replicas: Mapping[str, int]) -> int:
    return sum(replicas[group.name] * group.nodes for group in plan.groups)


def _check_group(group: GroupPlan, machine: Machine) -> list[Problem]:
    demand = demand_of(group.resources)
    path = "resources"
    problems = []
    cpus, gpus = demand.cpus, demand.gpus
    if cpus is not None and cpus > machine.cpus:
        text = f"a node needs {cpus:g} CPUs, this machine has {machine.cpus}"
        problems.append(Problem(f"{path}.cpus", text, f"ask for at most {machine.cpus}"))
    if demand.memory is not None:
        problems += _check_memory(demand.memory, machine, f"{path}.memory")
    if gpus > machine.gpus:
        text = f"a node needs {count_gpus(gpus)}, this machine has {machine.gpus or 'none'}"
        hint = f"ask for at most {machine.gpus}"
        if not machine.gpus:
            hint = "leave gpus out to run on CPUs; see `muster doctor` for what this machine has"
        problems.append(Problem(f"{path}.gpus", text, hint))
    return problems


def _check_memory(memory: int, machine: Machine, path: str) -> Iterator[Problem]:
    if memory > machine.memory:
        have = format_size(machine.memory)
        text = f"a node needs {format_size(memory)}, this machine has {have}"
        yield Problem(path, text, f"ask for less than {have}")
    if problem := check_least_memory(memory, path, machine.memory):
        yield problem


def shape_notes(plan: RunPlan, machine: Machine) -> list[str]:
    """Notes about shapes that are larger than this machine, each alone or all together."""
    notes = []
    cpus, memory, nodes = 0.0, 0, 0
    for group, policy in zip(plan.groups, plan.policy.groups, strict=True):
        resources, size = group.resources, policy.at_once * policy.nodes
        if resources.shape is None:
            continue
        if smaller := _smaller_than(resources, machine):
            notes.append(
                f"group {group.name}: shape {resources.shape} is larger than this machine "
                f"({smaller}); its nodes run with what the machine has"
            )
        limits = limits_of(resources, machine)
        cpus += size * (limits.cpus or 0)
        memory += size * (limits.memory or 0)
        nodes += size
    if cpus > machine.cpus:
        notes.append(_sharing_note(nodes, f"{cpus:g} CPUs", f"{machine.cpus}"))
    if memory > machine.memory:
        total, available = format_size(memory), format_size(machine.memory)
        notes.append(_sharing_note(nodes, f"{total} of memory", available))
    return notes


def _smaller_than(resources: ResourcePlan, machine: Machine) -> str:
    """What the machine has less of than the shape; "" if nothing."""
    parts = []
    if not resources.demands("cpus") and (resources.cpus or 0) > machine.cpus:
        parts.append(f"{machine.cpus} CPUs")
    if not resources.demands("memory") and (resources.memory or 0) > machine.memory:
        parts.append(format_size(machine.memory))
    if not resources.demands("gpus") and resources.gpus > machine.gpus:
        parts.append(f"{machine.gpus} GPUs")
    return ", ".join(parts)


def _sharing_note(nodes: int, total: str, available: str) -> str:
    return (
        f"the shapes of {nodes} nodes add up to {total}; this machine has {available}: "
        "they share it"
    )


# --- disk


def check_disk(plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
    """A plan's demands that exceed the free space under MUSTER_HOME (`root`, may be missing).
    replicas: how many of each group."""
    existing = next(path for path in (root, *root.absolute().parents) if os.path.exists(path))
    disk = os.statvfs(existing)
    if not disk.f_blocks:
        return []  # it has no size, such as /proc: that it cannot be written is reported elsewhere
    free = disk.f_bavail * disk.f_frsize
    if disk.f_files and disk.f_favail < _SPARE_FILES:
        text = f"the disk has no inodes left: only {disk.f_favail} more files can be created"
        return [Problem(str(root), text, "delete some files, or set MUSTER_HOME to another disk")]
    code = plan.artifact.size * _count_nodes(plan, replicas) if plan.artifact else 0
    if free < code + _SPARE_DISK:
        need = format_size(code + _SPARE_DISK)
        text = f"the disk is full: {format_size(free)} free, the run needs {need}"
        hint = "free some space, or set MUSTER_HOME to a folder on another disk"
        return [Problem(str(root), text, hint)]
    return list(_check_disk_demands(plan, root, free, replicas))


def _check_disk_demands(
    plan: RunPlan, root: Path, free: int, replicas: Mapping[str, int]
) -> Iterator[Problem]:
    """Check `resources.disk` and `disk_image` of each group. All nodes use the disk of
    MUSTER_HOME, so their demands are added up."""
    if not any(one.resources.disk is not None or one.resources.disk_image for one in plan.groups):
        return
    from muster.engines.local import node_folders

    total, too_small = 0, False
    demanding = []
    for group in plan.groups:
        yield from _check_disk_image(group)
        disk = group.resources.disk
        if disk is None:
            continue
        demanding.append(group.name)
        total += disk * replicas[group.name] * group.nodes
        least = node_folders.MIN_DISK_IMAGE if group.resources.disk_image else _MIN_DISK
        if disk < least:
            too_small = True
            hint = meant_size(disk, least, free) or f"at least {format_size(least)}"
            path = f"node_groups[{group.name}].resources.disk"
            yield Problem(path, f"{disk} bytes are too few for any program", hint)
    if total <= free or too_small:
        return
    if total <= free + _used(plan, root):  # files of a suspended run count towards its demand
        return
    only = len(demanding) == 1
    path = f"node_groups[{demanding[0]}].resources.disk" if only else "resources.disk"
    text = f"all nodes together may use {format_size(total)}, {root} has {format_size(free)} free"
    hint = "ask for fewer nodes or less disk, free some, or set MUSTER_HOME to a larger disk"
    yield Problem(path, text, hint)


def _check_disk_image(group: GroupPlan) -> Iterator[Problem]:
    if not group.resources.disk_image:
        return
    from muster.engines.local import node_folders

    path = f"node_groups[{group.name}].resources.disk_image"
    if group.resources.disk is None:
        yield Problem(path, "the size of the disk is not specified", "give resources.disk, too")
    missing = node_folders.disk_image_unavailable()
    if missing is not None:
        reason, advice = missing
        hint = f"{advice}, or leave it out: their disk usage is only measured then"
        yield Problem(path, f"is not possible here: {reason}", hint)


def check_added_disk(plan: RunPlan, root: Path, group: str, added: int) -> list[Problem]:
    """Whether the disk has enough free space for `added` more replicas of a group."""
    index = next(i for i, one in enumerate(plan.groups) if one.name == group)
    disk = plan.groups[index].resources.disk
    if disk is None:
        return []
    found = os.statvfs(root)
    free = found.f_bavail * found.f_frsize
    total = disk * added * plan.policy.groups[index].nodes
    if total <= free:
        return []
    text = f"the added nodes may use {format_size(total)}, {root} has {format_size(free)} free"
    return [Problem(group, text, "add fewer replicas, or free some space")]


def _used(plan: RunPlan, root: Path) -> int:
    """Bytes that the run's nodes use already; 0 before the run starts."""
    from muster.node.disk_usage import count
    from muster.storage.home import Home

    *_, total = count(str(Home(root).run_dir(plan.run_id).path / "nodes"))
    return total


def disk_notes(plan: RunPlan) -> Iterator[str]:
    """A note if a disk limit of the plan is only measured."""
    groups = [group.resources for group in plan.groups]
    if any(one.disk is not None and not one.disk_image for one in groups):
        from muster.engines.local import node_folders

        possible = node_folders.disk_image_unavailable() is None
        yield (
            "resources.disk is not enforced: disk usage is measured, and excess is reported"
            + (" (disk_image enforces it)" if possible else "")
        )
