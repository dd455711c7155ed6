"""Counts of nodes by state, for each group and replica, updated node by node.

The rules read these counts instead of scanning all nodes, so the cost of a step depends on how many
nodes changed and not on the size of the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.lifecycle.policy import Policy
from muster.lifecycle.states import ENDED, NodeState
from muster.lifecycle.status import NodeStatus


class GroupCounts(Struct):
    """Counts of one group."""

    pending: int
    """Nodes in PENDING."""
    ready: int
    """Nodes in READY that are not being restarted."""
    ended: int
    """Nodes in an end state."""
    succeeded: int
    """Replicas whose nodes have all succeeded."""
    failed: int
    """Replicas with at least one node that failed or has a `fault`."""
    pending_of: dict[int, int]
    """Nodes in PENDING, by incarnation."""
    succeeded_in: list[int]
    """Nodes that succeeded, by replica."""
    failed_in: list[int]
    """Nodes that failed or have a `fault`, by replica."""
    leaving_in: list[int]
    """Alive nodes that have a `next_incarnation`, by replica. They count as neither ready nor
    failed."""
    scaled_down: int = 0
    """Nodes of replicas that are scaled down or being scaled down. A node in SCALED_DOWN is counted
    nowhere else."""

    def copy(self) -> GroupCounts:
        return GroupCounts(
            self.pending,
            self.ready,
            self.ended,
            self.succeeded,
            self.failed,
            self.pending_of.copy(),
            self.succeeded_in.copy(),
            self.failed_in.copy(),
            self.leaving_in.copy(),
            self.scaled_down,
        )


class NodeCounts(Struct):
    """Counts of all groups of a run."""

    groups: list[GroupCounts]
    awaited: dict[int, int]
    """By number of a restart: alive nodes that have to end before the restart can start nodes."""
    alive: int
    """Nodes with processes that may be running."""

    def copy(self) -> NodeCounts:
        return NodeCounts([group.copy() for group in self.groups], self.awaited.copy(), self.alive)

    def change(self, policy: Policy, rank: int, old: NodeStatus, new: NodeStatus) -> None:
        """Replace a node's old status by its new one in all counts."""
        if old.state in _UNREADY and new.state in _UNREADY and _counted_alike(old, new):
            return  # STARTING to RUNNING, the most frequent change: no count differs
        index = policy.group_index(rank)
        group, rules = self.groups[index], policy.groups[index]
        replica = rules.replica_of(rank)
        self._count(group, rules.nodes, replica, old, -1)
        self._count(group, rules.nodes, replica, new, 1)

    def _count(
        self, group: GroupCounts, nodes: int, replica: int, node: NodeStatus, by: int
    ) -> None:
        """Add `by` (1 or -1) for one node. nodes: number of nodes in a replica of the group."""
        state = node.state
        if state is NodeState.PENDING:
            group.pending += by
            _add(group.pending_of, node.incarnation, by)
            return
        if state is NodeState.SCALED_DOWN:
            group.scaled_down += by
            return
        if node.scaling_down:
            group.scaled_down += by
        if state in ENDED:
            group.ended += by
        else:
            self.alive += by
            if node.next_incarnation is not None:  # it is being stopped to be restarted
                if not node.scaling_down:
                    _add(self.awaited, node.next_incarnation, by)
                group.leaving_in[replica] += by
                return
            if state is NodeState.READY:
                group.ready += by
        if state is NodeState.SUCCEEDED:
            before = group.succeeded_in[replica]
            group.succeeded_in[replica] = before + by
            group.succeeded += (before + by == nodes) - (before == nodes)
        elif state is NodeState.FAILED or (node.fault is not None and state not in ENDED):
            before = group.failed_in[replica]
            group.failed_in[replica] = before + by
            group.failed += (before + by > 0) - (before > 0)


_UNREADY = (NodeState.STARTING, NodeState.RUNNING)


def _counted_alike(old: NodeStatus, new: NodeStatus) -> bool:
    return (
        old.next_incarnation == new.next_incarnation
        and old.fault is new.fault
        and old.scaling_down == new.scaling_down
    )


def _add(counts: dict[int, int], key: int, by: int) -> None:
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        del counts[key]


def count_nodes(policy: Policy, nodes: Sequence[NodeStatus]) -> NodeCounts:
    """Count all nodes of a run. nodes: in rank order."""
    counts = NodeCounts(
        [
            GroupCounts(0, 0, 0, 0, 0, {}, [0] * g.replicas, [0] * g.replicas, [0] * g.replicas)
            for g in policy.groups
        ],
        {},
        0,
    )
    for group, rules in zip(counts.groups, policy.groups, strict=True):
        for replica in range(rules.replicas):
            for rank in rules.replica_ranks(replica):
                counts._count(group, rules.nodes, replica, nodes[rank], 1)
    return counts


def desired_replicas(policy: Policy, counts: NodeCounts, group: int) -> int:
    """Number of replicas the group is scaled to."""
    rules = policy.groups[group]
    return rules.replicas - counts.groups[group].scaled_down // rules.nodes


def required_successes(policy: Policy, counts: NodeCounts, group: int) -> int:
    """Number of replicas of the group that must succeed."""
    return min(policy.groups[group].min_success, desired_replicas(policy, counts, group))


def is_up(policy: Policy, counts: NodeCounts, group: int) -> bool:
    """Whether each node of the group's desired replicas is ready or has ended."""
    count = counts.groups[group]
    return count.ready + count.ended + count.scaled_down == policy.groups[group].size


def is_complete(policy: Policy, counts: NodeCounts, group: int) -> bool:
    """Whether each node of the group's desired replicas has ended, and the required number of
    replicas has succeeded."""
    count = counts.groups[group]
    ended = count.ended + count.scaled_down == policy.groups[group].size
    return ended and count.succeeded >= required_successes(policy, counts, group)
