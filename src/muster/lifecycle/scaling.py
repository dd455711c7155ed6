"""Scaling: change the number of replicas of a group.

A group has ranks for its maximum number of replicas. Nodes of undesired replicas are SCALED_DOWN,
and no rule waits for them. Requests are compared with the states of the nodes, so repeating a
request changes nothing. Kubernetes: as the scale of a StatefulSet, the last replicas are removed
first.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.lifecycle import counts, stopping
from muster.lifecycle.events import ScaleRequested
from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeStatus
from muster.lifecycle.transition import Transition


def apply(transition: Transition, event: ScaleRequested) -> None:
    """Scale a group to the requested size, within its limits. No effect if the run is ending; of a
    suspended run, the size takes effect when it is resumed."""
    ending = transition.run.stopping
    if ending is not None and ending.outcome is not RunState.SUSPENDED:
        return
    for index, group in enumerate(transition.policy.groups):
        if group.name == event.group:
            _scale(transition, index, event)


def _scale(transition: Transition, index: int, event: ScaleRequested) -> None:
    group = transition.policy.groups[index]
    current = counts.desired_replicas(transition.policy, transition.counts, index)
    lowest = transition.policy.min_replicas(index)
    desired = min(max(event.replicas, lowest), group.replicas)
    if desired == current:
        return
    if desired > current:
        added = _replicas(transition, group, scaled_down=True)[: desired - current]
        _scale_up(transition, group, added)
    else:
        remaining = sorted(
            _replicas(transition, group, scaled_down=False),
            key=lambda replica: _removal_order(transition, index, replica),
        )
        _scale_down(transition, group, remaining[desired - current :])
    data = {"group": group.name, "from": current, "to": desired, "why": event.why}
    transition.log("scaled", **data)


def _replicas(transition: Transition, group: GroupPolicy, *, scaled_down: bool) -> list[int]:
    """The replicas that are scaled down, or those that are not."""
    return [
        replica
        for replica in range(group.replicas)
        if transition.nodes[group.replica_ranks(replica)[0]].scaled_down is scaled_down
    ]


def _removal_order(transition: Transition, index: int, replica: int) -> tuple[int, int]:
    """Sort key; the last replicas are removed first: replicas that have succeeded, then running
    ones by ascending number, then failed ones."""
    count, nodes = transition.counts.groups[index], transition.policy.groups[index].nodes
    if count.failed_in[replica]:
        return 2, replica
    return int(count.succeeded_in[replica] < nodes), replica


def _scale_up(transition: Transition, group: GroupPolicy, replicas: list[int]) -> None:
    number = transition.run.last_incarnation + 1
    for replica in replicas:
        ranks = group.replica_ranks(replica)
        # if some nodes of the replica are still ending, all its nodes start together after that
        wait = any(transition.nodes[rank].alive for rank in ranks)
        if wait:
            transition.update(last_incarnation=number)
        for rank in ranks:
            node = transition.nodes[rank]
            if node.alive:
                status = replace(node, scaling_down=False, next_incarnation=number)
            else:
                first = number if wait else node.incarnation
                status = NodeStatus(incarnation=first, retries=node.retries)
            transition.set_node(rank, status)


def _scale_down(transition: Transition, group: GroupPolicy, replicas: list[int]) -> None:
    number = transition.run.last_incarnation + 1
    ranks = [rank for replica in replicas for rank in group.replica_ranks(replica)]
    leaving: list[int] = []

    def ending(node: NodeStatus) -> NodeStatus:
        return replace(node, scaling_down=True, next_incarnation=number, not_before=None)

    for rank in ranks:
        node = transition.nodes[rank]
        if node == NodeStatus():
            transition.scale_down(rank)
            continue
        transition.update(last_incarnation=number)  # no incarnation has this number yet
        if node.leaving:  # the node may be saving its state
            transition.set_node(rank, ending(node))
        elif node.alive:
            leaving.append(rank)
        else:
            transition.scale_down(rank, number)
    stopping.terminate(transition, leaving, ending)
    transition.clear_failures(ranks)
