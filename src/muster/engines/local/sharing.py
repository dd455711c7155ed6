"""Which runs may share a supervisor."""

from __future__ import annotations

from muster.engines.reservations.demands import may_reserve
from muster.plan.model import RunPlan

#: A run with more nodes has a supervisor for itself, also if they run one after another: starting
#: and ending them keeps it busy.
MOST_NODES = 4
#: Kinds of mounts for which the supervisor starts processes, and mounts what nodes see.
_MOUNTED_FIRST = ("nfs", "url")


def shares_process(plan: RunPlan) -> bool:
    """Whether the nodes of a run are all that its supervisor starts, and nothing is set up for them
    outside their own namespaces."""
    return (
        plan.policy.initial_size <= MOST_NODES
        and not plan.own_interfaces
        and not may_reserve(plan)
        and not any(
            group.resources.disk_image or any(m.kind in _MOUNTED_FIRST for m in group.mounts)
            for group in plan.groups
        )
    )
