"""What runs need of this machine: the demands of their nodes, and their shares of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.quantities import format_size


class Demand(Struct, frozen=True):
    """What the machine must have for a node; None for any amount."""

    cpus: float | None
    #: Bytes.
    memory: int | None
    gpus: int


def demand_of(resources: ResourcePlan) -> Demand:
    """What a node of a group demands. What its shape has is reduced to what the machine has."""
    return Demand(
        resources.cpus if resources.demands("cpus") else None,
        resources.memory if resources.demands("memory") else None,
        resources.gpus if resources.demands("gpus") else 0,
    )


def uses_gpus(plan: RunPlan) -> bool:
    """Whether nodes get GPUs, if the machine has some: demanded ones, or those of a shape."""
    return any(group.resources.gpus for group in plan.groups)


def may_reserve(plan: RunPlan) -> bool:
    """Whether a run may need resources that no other run can have at the same time; cheap."""
    demands = (demand_of(group.resources) for group in plan.groups)
    return uses_gpus(plan) or any(one.cpus or one.memory for one in demands)


def count_gpus(count: int) -> str:
    """ "1 GPU" or "2 GPUs"."""
    return "1 GPU" if count == 1 else f"{count} GPUs"


def describe_amounts(cpus: float | None, memory: int | None, gpus: str) -> str:
    """ "2 CPUs, 4GiB of memory, 1 GPU", of those that are given; "" if none is. memory: bytes.
    gpus: in words."""
    parts = []
    if cpus is not None:
        parts.append(f"{cpus:g} CPU{'s' * (cpus != 1)}")
    if memory is not None:
        parts.append(f"{format_size(memory)} of memory")
    return ", ".join([*parts, gpus] if gpus else parts)


def share_of_gpus(plan: RunPlan, rank: int, available: int) -> int:
    """How many GPUs a node gets: what the job demands for it, or what its shape has.

    When shapes together have more GPUs than demands leave, the remaining ones are divided equally,
    lower ranks first.
    """
    resources = plan.group_of(rank).resources
    if resources.demands("gpus") or not resources.gpus:
        return resources.gpus
    sizes = [
        (group, policy.at_once * policy.nodes)
        for group, policy in zip(plan.groups, plan.policy.groups, strict=True)
        if group.resources.gpus
    ]
    demanded = sum(g.resources.gpus * n for g, n in sizes if g.resources.demands("gpus"))
    shaped = [(g, n) for g, n in sizes if not g.resources.demands("gpus")]
    left = max(0, available - demanded)
    if sum(group.resources.gpus * nodes for group, nodes in shaped) <= left:
        return resources.gpus
    first_ranks = [group.first_rank for group, _ in shaped if group.first_rank <= rank]
    position = sum(n for g, n in shaped if g.first_rank < first_ranks[-1]) + rank - first_ranks[-1]
    share, more = divmod(left, sum(nodes for _, nodes in shaped))
    return min(resources.gpus, share + (position < more))


def count_gpus_of(plan: RunPlan, replicas: Mapping[str, int], available: int) -> int:
    """How many GPUs the nodes of a run get together. replicas: how many of each group. More than
    are available if nodes were added, or demand too many."""
    return sum(
        share_of_gpus(plan, rank, available)
        for group in plan.groups
        if group.resources.gpus
        for rank in range(group.first_rank, group.first_rank + replicas[group.name] * group.nodes)
    )
