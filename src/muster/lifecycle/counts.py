"""Counts of nodes by state, for each group and replica, updated node by node.

The rules read these counts instead of scanning all nodes, so the cost of a step depends on how many
nodes changed and not on the size of the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from muster.lifecycle.blocks import SHIFT, BlockList
from muster.lifecycle.policy import EarlySuccess, GroupPolicy, Policy
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
    succeeded_in: BlockList[int]
    """Nodes that succeeded, by replica."""
    failed_in: BlockList[int]
    """Nodes that failed or have a `fault`, by replica."""
    leaving_in: BlockList[int]
    """Alive nodes that have a `next_incarnation`, by replica. They count as neither ready nor
    failed."""
    alive_in: BlockList[int]
    """Alive nodes, by replica. Only of an array; else empty."""
    scaled_down: int = 0
    """Nodes of replicas that are scaled down or being scaled down. A node in SCALED_DOWN is counted
    nowhere else."""
    active: int = 0
    """Replicas with alive nodes. Only of an array; else 0."""
    chosen: tuple[int, ...] = ()
    """For each rule of `early_success`: replicas that have succeeded, of those that it names."""

    def failed_replicas(self) -> Iterator[int]:
        """The numbers of the replicas that `failed` counts."""
        return (replica for replica, nodes in enumerate(self.failed_in) if nodes)

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
            self.alive_in.copy(),
            self.scaled_down,
            self.active,
            self.chosen,
        )


class NodeCounts(Struct):
    """Counts of all groups of a run."""

    groups: list[GroupCounts]
    awaited: dict[int, int]
    """By number of a restart: alive nodes that have to end before the restart can start nodes."""
    alive: int
    """Nodes with processes that may be running."""
    alive_by_block: list[int]
    """The same, by block of ranks."""
    pending_by_block: list[int]
    """Nodes in PENDING, by block of ranks."""

    def copy(self) -> NodeCounts:
        return NodeCounts(
            [group.copy() for group in self.groups],
            self.awaited.copy(),
            self.alive,
            self.alive_by_block.copy(),
            self.pending_by_block.copy(),
        )

    def alive_blocks(self, ranks: range) -> Iterator[range]:
        """The parts of `ranks` in which nodes may be alive, in order."""
        return _occupied(self.alive_by_block, ranks)

    def pending_blocks(self, ranks: range) -> Iterator[range]:
        """The parts of `ranks` in which nodes may be pending, in order."""
        return _occupied(self.pending_by_block, ranks)

    def change(
        self, policy: Policy, ranks: Sequence[int], old: NodeStatus, new: NodeStatus
    ) -> None:
        """Replace the old status of nodes, which all have the same, by their new one in all counts.
        ranks: in ascending order."""
        if old.state in _UNREADY and new.state in _UNREADY and _counted_alike(old, new):
            return  # STARTING to RUNNING, the most frequent change: no count differs
        for index, members in policy.by_group(ranks):
            group, rules = self.groups[index], policy.groups[index]
            self._count(group, rules, members, old, -1)
            self._count(group, rules, members, new, 1)

    def _count(
        self,
        group: GroupCounts,
        rules: GroupPolicy,
        ranks: Sequence[int],
        node: NodeStatus,
        by: int,
    ) -> None:
        """Add `by` (1 or -1) for each of these nodes, which have the same status."""
        state, total = node.state, by * len(ranks)
        if state is NodeState.PENDING:
            group.pending += total
            _add_by_block(self.pending_by_block, ranks, by)
            _add(group.pending_of, node.incarnation, total)
            return
        if state is NodeState.SCALED_DOWN:
            group.scaled_down += total
            return
        if node.scaling_down:
            group.scaled_down += total
        if state in ENDED:
            group.ended += total
        else:
            self.alive += total
            _add_by_block(self.alive_by_block, ranks, by)
            if group.alive_in:
                group.active += by * len(_add_by_replica(group.alive_in, rules, ranks, by))
            if node.next_incarnation is not None:  # it is being stopped to be restarted
                if not node.scaling_down:
                    _add(self.awaited, node.next_incarnation, total)
                _add_by_replica(group.leaving_in, rules, ranks, by)
                return
            if state is NodeState.READY:
                group.ready += total
        if state is NodeState.SUCCEEDED:
            replicas = _add_by_replica(group.succeeded_in, rules, ranks, by, least=rules.nodes)
            group.succeeded += by * len(replicas)
            if rules.early_success and replicas:
                group.chosen = tuple(
                    count + by * rule.among(replicas)
                    for rule, count in zip(rules.early_success, group.chosen, strict=True)
                )
        elif state is NodeState.FAILED or (node.fault is not None and state not in ENDED):
            group.failed += by * len(_add_by_replica(group.failed_in, rules, ranks, by))


_UNREADY = (NodeState.QUEUED, NodeState.STARTING, NodeState.RUNNING)


def _counted_alike(old: NodeStatus, new: NodeStatus) -> bool:
    return (
        old.next_incarnation == new.next_incarnation
        and old.fault is new.fault
        and old.scaling_down == new.scaling_down
    )


def _add_by_block(counts: list[int], ranks: Iterable[int], by: int) -> None:
    for rank in ranks:
        counts[rank >> SHIFT] += by


def _add_by_replica(
    counts: BlockList[int], rules: GroupPolicy, ranks: Iterable[int], by: int, least: int = 1
) -> list[int]:
    """Add `by` (1 or -1) for each of these nodes to the count of its replica. Returns the replicas
    whose count came to `least`, or fell below it."""
    crossed: list[int] = []
    added: dict[int, int] = {}
    for rank in ranks:
        replica = (rank - rules.first_rank) // rules.nodes
        added[replica] = added.get(replica, 0) + 1
    for replica, number in added.items():
        before = counts[replica]
        counts[replica] = now = before + by * number
        if (now >= least) != (before >= least):
            crossed.append(replica)
    return crossed


def _add(counts: dict[int, int], key: int, by: int) -> None:
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        del counts[key]


def count_nodes(policy: Policy, nodes: Sequence[NodeStatus]) -> NodeCounts:
    """Count all nodes of a run. nodes: in rank order."""
    blocks = ((policy.size - 1) >> SHIFT) + 1
    groups = [_no_counts(group) for group in policy.groups]
    counts = NodeCounts(groups, {}, 0, [0] * blocks, [0] * blocks)
    alike: defaultdict[NodeStatus, list[int]] = defaultdict(list)
    for rank, node in enumerate(nodes):
        alike[node].append(rank)
    for node, ranks in alike.items():
        for index, members in policy.by_group(ranks):
            counts._count(groups[index], policy.groups[index], members, node, 1)
    return counts


def _no_counts(group: GroupPolicy) -> GroupCounts:
    succeeded, failed, leaving, alive = (BlockList([0] * group.replicas) for _ in range(4))
    if group.parallelism is None:
        alive = BlockList([])
    chosen = (0,) * len(group.early_success)
    return GroupCounts(0, 0, 0, 0, 0, {}, succeeded, failed, leaving, alive, chosen=chosen)


def _occupied(by_block: list[int], ranks: range) -> Iterator[range]:
    for number in range(ranks.start >> SHIFT, ((ranks.stop - 1) >> SHIFT) + 1):
        if by_block[number]:
            first = number << SHIFT
            yield range(max(ranks.start, first), min(ranks.stop, first + (1 << SHIFT)))


def desired_replicas(policy: Policy, counts: NodeCounts, group: int) -> int:
    """Number of replicas the group is scaled to."""
    rules = policy.groups[group]
    return rules.replicas - counts.groups[group].scaled_down // rules.nodes


def required_successes(policy: Policy, counts: NodeCounts, group: int) -> int:
    """Number of replicas of the group that must succeed."""
    return min(policy.groups[group].min_success, desired_replicas(policy, counts, group))


def is_up(policy: Policy, counts: NodeCounts, group: int) -> bool:
    """Whether each node of the group's desired replicas is ready or has ended; of an array, as many
    nodes as run at once (JobSet: ready, of a Job with more completions than parallelism)."""
    count, rules = counts.groups[group], policy.groups[group]
    needed = rules.size - count.scaled_down
    if rules.parallelism is not None:
        needed = min(rules.parallelism * rules.nodes, needed)
    return count.ready + count.ended >= needed


def is_complete(policy: Policy, counts: NodeCounts, group: int) -> bool:
    """Whether each node of the group's desired replicas has ended, and enough replicas have
    succeeded."""
    if not has_ended(policy, counts, group):
        return False
    enough = counts.groups[group].succeeded >= required_successes(policy, counts, group)
    return enough or succeeded_early(policy, counts, group)


def has_ended(policy: Policy, counts: NodeCounts, group: int) -> bool:
    """Whether each node of the group's desired replicas has ended."""
    count = counts.groups[group]
    return count.ended + count.scaled_down == policy.groups[group].size


def has_succeeded(policy: Policy, counts: NodeCounts) -> bool:
    """Whether the groups that the run's success depends on have succeeded."""
    rules = policy.success
    if not rules.any_replica:
        return all(is_complete(policy, counts, index) for index in rules.groups)
    return any(
        counts.groups[index].succeeded
        if policy.groups[index].parallelism is None
        else is_complete(policy, counts, index)
        for index in rules.groups
    )


def succeeded_early(policy: Policy, counts: NodeCounts, group: int) -> bool:
    """Whether the group has succeeded by one of its rules for early success, so that its other
    replicas need not end."""
    rules = policy.groups[group].early_success
    return any(map(EarlySuccess.is_met, rules, counts.groups[group].chosen))
