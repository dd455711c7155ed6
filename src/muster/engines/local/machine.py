"""What this machine has, and whether a plan fits it."""

from __future__ import annotations

import os

from msgspec import Struct

from muster.engines.local import gpus
from muster.engines.local.cgroups import memory_limit
from muster.errors import Problem
from muster.plan.model import GroupPlan, RunPlan

_LEAST_MEMORY = 16 << 20


class Machine(Struct, frozen=True):
    """cpus: those we may run on; memory in bytes; gpus: how many."""

    cpus: int
    memory: int
    gpus: int


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


def share_of_cpus(plan: RunPlan, group: GroupPlan, available: int) -> int:
    """How many a node of this group had best use: what it asks for or, where nothing keeps its
    nodes apart, its share of what is available."""
    asked = group.resources
    if asked.cpus is not None and asked.shape is None:
        return max(1, int(asked.cpus))
    return max(1, available // plan.policy.initial_size)


def share_of_memory(plan: RunPlan, group: GroupPlan, available: int) -> int:
    """How many bytes a node of this group had best use, by the same rule as CPUs."""
    asked = group.resources
    if asked.memory is not None and asked.shape is None:
        return asked.memory
    return available // plan.policy.initial_size


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
        if group.resources.shape is None
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
    """A shape describes the node meant elsewhere; where it is larger than this machine, say so."""
    notes = []
    for group in plan.groups:
        asked = group.resources
        if asked.shape is not None and _larger(group, machine):
            notes.append(
                f"group {group.name}: shape {asked.shape} is larger than this machine "
                f"({machine.cpus} CPUs, {_gib(machine.memory)}, {machine.gpus} GPUs); "
                "its nodes run with what there is"
            )
    return notes


def _check_group(group: GroupPlan, machine: Machine) -> list[Problem]:
    asked = group.resources
    if asked.shape is not None:
        return []
    path = "resources"
    problems = []
    if asked.cpus is not None and asked.cpus > machine.cpus:
        text = f"a node needs {asked.cpus:g} CPUs, this machine has {machine.cpus}"
        problems.append(Problem(f"{path}.cpus", text, f"ask for at most {machine.cpus}"))
    if asked.memory is not None and asked.memory > machine.memory:
        have = _gib(machine.memory)
        text = f"a node needs {_gib(asked.memory)}, this machine has {have}"
        problems.append(Problem(f"{path}.memory", text, f"ask for less than {have}"))
    if asked.memory is not None and asked.memory < _LEAST_MEMORY:
        text = f"{asked.memory} bytes are too few for any program"
        hint = f"did you mean {asked.memory}GiB?" if asked.memory < 4096 else "at least 16MiB"
        problems.append(Problem(f"{path}.memory", text, hint))
    if asked.gpus > machine.gpus:
        text = f"a node needs {_gpus(asked.gpus)}, this machine has {machine.gpus or 'none'}"
        hint = f"ask for at most {machine.gpus}"
        if not machine.gpus:
            hint = "leave gpus out to run on CPUs; see `muster doctor` for what this machine has"
        problems.append(Problem(f"{path}.gpus", text, hint))
    return problems


def _larger(group: GroupPlan, machine: Machine) -> bool:
    asked = group.resources
    return (
        (asked.cpus or 0) > machine.cpus
        or (asked.memory or 0) > machine.memory
        or asked.gpus > machine.gpus
    )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
