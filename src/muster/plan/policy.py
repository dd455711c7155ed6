"""The part of a plan the lifecycle is held to."""

from __future__ import annotations

from muster.lifecycle.model import GroupPolicy, Policy
from muster.plan.model import RunPlan


def policy_of(plan: RunPlan) -> Policy:
    """What `lifecycle.decide` needs to know of a plan."""
    return Policy(
        groups=tuple(
            GroupPolicy(g.name, g.first_rank, g.replicas, g.nodes, g.min_success)
            for g in plan.groups
        ),
        in_order=plan.in_order,
        max_runtime=plan.max_runtime,
        grace_period=plan.grace_period,
    )
