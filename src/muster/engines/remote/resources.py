"""CPUs and memory of nodes on other machines."""

from __future__ import annotations

from muster.engines.reservations.demands import count_gpus, describe_amounts
from muster.node.control_groups import Amounts
from muster.plan.model import ResourcePlan


def amounts_of(resources: ResourcePlan) -> Amounts:
    """What a node may use of its machine, and what of that the machine has to have and to limit. Of
    a shape, that is nothing: a node gets as much as there is."""
    demanded = {"cpu": resources.demands("cpus"), "memory": resources.demands("memory")}
    required = [name for name, is_demanded in demanded.items() if is_demanded]
    return Amounts(resources.cpus, resources.memory, required)


def describe_resources(resources: ResourcePlan) -> str:
    """What each node of a group gets, as a phrase; "" if the job sets no resources."""
    gpus = count_gpus(resources.gpus) if resources.gpus else ""
    amounts = describe_amounts(resources.cpus, resources.memory, gpus)
    phrase = f"each node has {amounts}" if amounts else ""
    if resources.shape is None:
        return phrase
    if not amounts:
        return f"shape {resources.shape}: each node has what its machine has"
    return f"shape {resources.shape}: {phrase}, or what its machine has"
