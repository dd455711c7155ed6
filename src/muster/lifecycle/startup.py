"""Startup order: all groups at once, or each when the one before it is up.

OCI: startupOrder IN_PARALLEL | IN_ORDER. A group is up when each of its nodes is ready (its
startup probe succeeded, or it has none and runs) or has already ended.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.lifecycle.effects import Effect, StartNodes
from muster.lifecycle.model import GroupPolicy, Policy, RunStatus
from muster.lifecycle.states import NodeState


def apply(policy: Policy, status: RunStatus, now: float) -> tuple[RunStatus, tuple[Effect, ...]]:
    """Hand the nodes whose turn has come to the engine."""
    del now
    if status.stopping is not None:
        return status, ()
    starting: list[int] = []
    for group in policy.groups:
        starting += [r for r in group.ranks if status.nodes[r].state is NodeState.PENDING]
        if policy.in_order and not _up(group, status):
            break
    if not starting:
        return status, ()
    nodes = list(status.nodes)
    for rank in starting:
        nodes[rank] = replace(nodes[rank], state=NodeState.STARTING)
    effect = StartNodes(status.attempt, tuple(starting))
    return replace(status, nodes=tuple(nodes)), (effect,)


def _up(group: GroupPolicy, status: RunStatus) -> bool:
    nodes = (status.nodes[rank] for rank in group.ranks)
    return all(node.state is NodeState.READY or node.state.ended for node in nodes)
