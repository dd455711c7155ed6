"""CPUs and memory: how much of what this machine has each node gets."""

from __future__ import annotations

from msgspec import Struct

from muster.engines.machine import Machine
from muster.engines.reservations.demands import count_gpus, demand_of, describe_amounts
from muster.plan.model import GroupPlan, ResourcePlan, RunPlan


class Limits(Struct, frozen=True):
    """The limits that control groups enforce for a node; None for no limit."""

    cpus: float | None
    #: Bytes.
    memory: int | None


def limits_of(resources: ResourcePlan, machine: Machine) -> Limits:
    """The limits of a node. A shape that is larger than the machine limits nothing."""
    demand, cpus, memory = demand_of(resources), resources.cpus, resources.memory
    if demand.cpus is None and cpus is not None and cpus >= machine.cpus:
        cpus = None
    if demand.memory is None and memory is not None and memory >= machine.memory:
        memory = None
    return Limits(cpus, memory)


def share_of_cpus(plan: RunPlan, group: GroupPlan, machine: Machine) -> int:
    """How many CPUs a node of this group should use: its limit or, without one, an equal share of
    the machine. At least 1."""
    limit = limits_of(group.resources, machine).cpus
    return max(1, int(machine.cpus // plan.policy.size_at_once if limit is None else limit))


def count_fitting(resources: ResourcePlan, nodes: int, machine: Machine) -> int:
    """How many replicas of `nodes` nodes the machine holds at once; at least 1."""
    limits = limits_of(resources, machine)
    counts = [machine.cpus / ((limits.cpus or 1) * nodes)]
    if limits.memory:
        counts.append(machine.memory / (limits.memory * nodes))
    if resources.gpus and machine.gpus:
        counts.append(machine.gpus / (resources.gpus * nodes))
    return max(1, int(min(counts)))


def share_of_memory(plan: RunPlan, group: GroupPlan, machine: Machine) -> int:
    """How many bytes of memory a node of this group should use, by the same rule as CPUs."""
    limit = limits_of(group.resources, machine).memory
    return machine.memory // plan.policy.size_at_once if limit is None else limit


def describe_limits(resources: ResourcePlan, machine: Machine) -> str:
    """What each node of a group may use, as a phrase; "" if the job sets no resources."""
    limits = limits_of(resources, machine)
    gpus = ""
    if resources.gpus and machine.gpus:
        exact = "" if resources.demands("gpus") else " at most"
        gpus = count_gpus(min(resources.gpus, machine.gpus)) + exact
    amounts = describe_amounts(limits.cpus, limits.memory, gpus)
    phrase = f"each node has {amounts}"
    if resources.shape is None:
        return phrase if amounts else ""
    if not amounts:
        return f"shape {resources.shape}: each node has what this machine has"
    return f"shape {resources.shape}: {phrase}"
