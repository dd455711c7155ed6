"""What this machine has, and whether a plan fits it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from muster.engines.local import gpus
from muster.engines.local.cgroups import memory_limit
from muster.errors import Problem
from muster.plan.model import GroupPlan, ResourcePlan, RunPlan

_LEAST_MEMORY = 16 << 20


class Machine(Struct, frozen=True):
    """cpus: those we may run on; memory in bytes; gpus: how many."""

    cpus: int
    memory: int
    gpus: int


class Limits(Struct, frozen=True):
    """What control groups hold a node to; None = nothing. memory in bytes."""

    cpus: float | None
    memory: int | None


def this_machine() -> Machine:
    """Measured afresh."""
    return Machine(count_cpus(), count_memory(), len(gpus.devices()))


def count_cpus() -> int:
    """Those we may run on."""
    count = getattr(os, "sched_getaffinity", None)
    return len(count(0)) if count else os.cpu_count() or 1


def count_memory() -> int:
    """Bytes that we may use: the machine's, or fewer where a control group limits us."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory, memory_limit() or memory)


def limits_of(asked: ResourcePlan, machine: Machine) -> Limits:
    """What a node is held to. A shape that is larger than the machine holds it to nothing."""

    def kept(name: str, there: float) -> bool:
        value = getattr(asked, name)
        return value is not None and (asked.demands(name) or value < there)

    return Limits(
        asked.cpus if kept("cpus", machine.cpus) else None,
        asked.memory if kept("memory", machine.memory) else None,
    )


def share_of_cpus(plan: RunPlan, group: GroupPlan, machine: Machine) -> int:
    """How many a node of this group had best use: what it is held to or, where nothing keeps its
    nodes apart, its share of what is available."""
    limit = limits_of(group.resources, machine).cpus
    return max(1, int(machine.cpus // plan.policy.initial_size if limit is None else limit))


def share_of_memory(plan: RunPlan, group: GroupPlan, machine: Machine) -> int:
    """How many bytes a node of this group had best use, by the same rule as CPUs."""
    limit = limits_of(group.resources, machine).memory
    return machine.memory // plan.policy.initial_size if limit is None else limit


def share_of_gpus(plan: RunPlan, rank: int, available: int) -> int:
    """How many GPUs a node takes: what it demands, or what its shape has. Where shapes have more
    of them together than is left, those that are left are shared out in the order of ranks."""
    own = plan.group_of(rank).resources
    if own.demands("gpus") or not own.gpus:
        return own.gpus
    sizes = [
        (group, policy.initial * policy.nodes)
        for group, policy in zip(plan.groups, plan.policy.groups, strict=True)
        if group.resources.gpus
    ]
    demanded = sum(g.resources.gpus * n for g, n in sizes if g.resources.demands("gpus"))
    shaped = [(g, n) for g, n in sizes if not g.resources.demands("gpus")]
    left = max(0, available - demanded)
    if sum(group.resources.gpus * nodes for group, nodes in shaped) <= left:
        return own.gpus
    before = [group.first_rank for group, _ in shaped if group.first_rank <= rank]
    place = sum(n for g, n in shaped if g.first_rank < before[-1]) + rank - before[-1]
    share, more = divmod(left, sum(nodes for _, nodes in shaped))
    return min(own.gpus, share + (place < more))


def check_fit(plan: RunPlan, machine: Machine) -> list[Problem]:
    """Demands no node here can meet. CPUs are shared out; GPUs never are, so those add up."""
    problems = [
        p._replace(path=f"node_groups[{group.name}].{p.path}")
        for group in plan.groups
        for p in _check_group(group, machine)
    ]
    wanted = sum(
        group.resources.gpus * policy.initial * policy.nodes
        for group, policy in zip(plan.groups, plan.policy.groups, strict=True)
        if group.resources.demands("gpus")
    )
    if wanted > machine.gpus and not problems:
        problems.append(
            Problem(
                "resources.gpus",
                f"all nodes together need {wanted} GPUs, this machine has {machine.gpus}",
                "ask for fewer nodes, or fewer GPUs on each",
            )
        )
    return problems


def shape_notes(plan: RunPlan, machine: Machine) -> list[str]:
    """Where a shape is larger than this machine, or all of them together are."""
    notes = []
    cpus, memory, nodes = 0.0, 0, 0
    for group, policy in zip(plan.groups, plan.policy.groups, strict=True):
        asked, size = group.resources, policy.initial * policy.nodes
        if asked.shape is None:
            continue
        if larger := _larger(asked, machine):
            notes.append(
                f"group {group.name}: shape {asked.shape} is larger than this machine "
                f"({larger}); its nodes run with what there is"
            )
        limits = limits_of(asked, machine)
        cpus += size * (limits.cpus or 0)
        memory += size * (limits.memory or 0)
        nodes += size
    if cpus > machine.cpus:
        notes.append(_shared(nodes, f"{cpus:g} CPUs", f"{machine.cpus}"))
    if memory > machine.memory:
        notes.append(_shared(nodes, f"{_gib(memory)} of memory", _gib(machine.memory)))
    return notes


def _shared(nodes: int, together: str, there: str) -> str:
    return (
        f"the shapes of {nodes} nodes have {together} together, this machine {there}: they share it"
    )


def held_to(asked: ResourcePlan, machine: Machine) -> str:
    """What each node of a group is held to, for people; "" if nothing is asked for."""
    limits = limits_of(asked, machine)
    parts = []
    if limits.cpus is not None:
        parts.append(f"{limits.cpus:g} CPU{'s' * (limits.cpus != 1)}")
    if limits.memory is not None:
        parts.append(f"{_gib(limits.memory)} of memory")
    if asked.gpus and machine.gpus:
        parts.append(
            f"{_gpus(min(asked.gpus, machine.gpus))}{'' if asked.demands('gpus') else ' at most'}"
        )
    held = f"each node has {', '.join(parts)}"
    if asked.shape is None:
        return held if parts else ""
    if not parts:
        return f"shape {asked.shape}: each node has what this machine has"
    return f"shape {asked.shape}: {held}"


def _check_group(group: GroupPlan, machine: Machine) -> list[Problem]:
    asked = group.resources
    path = "resources"
    problems = []
    if asked.demands("cpus") and asked.cpus is not None and asked.cpus > machine.cpus:
        text = f"a node needs {asked.cpus:g} CPUs, this machine has {machine.cpus}"
        problems.append(Problem(f"{path}.cpus", text, f"ask for at most {machine.cpus}"))
    if asked.demands("memory") and asked.memory is not None:
        problems += _check_memory(asked.memory, machine, f"{path}.memory")
    if asked.demands("gpus") and asked.gpus > machine.gpus:
        text = f"a node needs {_gpus(asked.gpus)}, this machine has {machine.gpus or 'none'}"
        hint = f"ask for at most {machine.gpus}"
        if not machine.gpus:
            hint = "leave gpus out to run on CPUs; see `muster doctor` for what this machine has"
        problems.append(Problem(f"{path}.gpus", text, hint))
    return problems


def _check_memory(asked: int, machine: Machine, path: str) -> Iterator[Problem]:
    if asked > machine.memory:
        have = _gib(machine.memory)
        text = f"a node needs {_gib(asked)}, this machine has {have}"
        yield Problem(path, text, f"ask for less than {have}")
    if asked < _LEAST_MEMORY:
        hint = f"did you mean {asked}GiB?" if asked < 4096 else "at least 16MiB"
        yield Problem(path, f"{asked} bytes are too few for any program", hint)


def _larger(asked: ResourcePlan, machine: Machine) -> str:
    """What of the machine is less than the shape has; "" if nothing is."""
    there = []
    if not asked.demands("cpus") and (asked.cpus or 0) > machine.cpus:
        there.append(f"{machine.cpus} CPUs")
    if not asked.demands("memory") and (asked.memory or 0) > machine.memory:
        there.append(_gib(machine.memory))
    if not asked.demands("gpus") and asked.gpus > machine.gpus:
        there.append(f"{machine.gpus} GPUs")
    return ", ".join(there)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _gib(size: int) -> str:
    if size < 2**30:
        return f"{size / 2**20:.0f} MiB"
    return f"{size / 2**30:.1f} GiB"
