"""How many nodes of each group and replica are in what state, kept up to date node by node.

Rules ask these numbers instead of looking at every node, so that a step of a run costs what has
changed, not what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from muster.lifecycle.policy import Policy
from muster.lifecycle.states import ENDED, NodeState
from muster.lifecycle.status import NodeStatus


class GroupCensus(Struct):
    """One group. pending, ready, ended: nodes; pending_of: the pending by incarnation. succeeded,
    failed: replicas: all nodes succeeded; any node failed, or found at fault. By replica: how many
    nodes succeeded, failed, and are on their way out to be started again, which makes them neither
    ready nor failed. parked: nodes of replicas that are not wanted, which are nothing else."""

    pending: int
    ready: int
    ended: int
    succeeded: int
    failed: int
    pending_of: dict[int, int]
    succeeded_in: list[int]
    failed_in: list[int]
    leaving_in: list[int]
    parked: int = 0

    def copy(self) -> GroupCensus:
        return GroupCensus(
            self.pending,
            self.ready,
            self.ended,
            self.succeeded,
            self.failed,
            self.pending_of.copy(),
            self.succeeded_in.copy(),
            self.failed_in.copy(),
            self.leaving_in.copy(),
            self.parked,
        )


class Census(Struct):
    """alive: nodes of which something may run. awaited: by restart, nodes that have yet to end
    before it."""

    groups: list[GroupCensus]
    awaited: dict[int, int]
    alive: int

    def copy(self) -> Census:
        return Census([group.copy() for group in self.groups], self.awaited.copy(), self.alive)

    def change(self, policy: Policy, rank: int, old: NodeStatus, new: NodeStatus) -> None:
        """Count a node as what it is now instead of what it was."""
        if old.state in _GOING and new.state in _GOING and _alike(old, new):
            return  # the commonest change of all: nothing that is counted differs
        index = policy.group_index(rank)
        group, rules = self.groups[index], policy.groups[index]
        replica = rules.replica_of(rank)
        self._count(group, rules.nodes, replica, old, -1)
        self._count(group, rules.nodes, replica, new, 1)

    def _count(
        self, group: GroupCensus, nodes: int, replica: int, node: NodeStatus, by: int
    ) -> None:
        """nodes: of each of the group's replicas."""
        state = node.state
        if state is NodeState.PENDING:
            group.pending += by
            _add(group.pending_of, node.incarnation, by)
            return
        if state is NodeState.PARKED:
            group.parked += by
            return
        if node.parking:
            group.parked += by
        if state in ENDED:
            group.ended += by
        else:
            self.alive += by
            if node.again is not None:  # it is gone already, for whoever waits for its group
                if not node.parking:
                    _add(self.awaited, node.again, by)
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


_GOING = (NodeState.STARTING, NodeState.RUNNING)


def _alike(old: NodeStatus, new: NodeStatus) -> bool:
    return old.again == new.again and old.fault is new.fault and old.parking == new.parking


def _add(counts: dict[int, int], key: int, by: int) -> None:
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        del counts[key]


def take(policy: Policy, nodes: Sequence[NodeStatus]) -> Census:
    """Count from nothing."""
    census = Census(
        [
            GroupCensus(0, 0, 0, 0, 0, {}, [0] * g.replicas, [0] * g.replicas, [0] * g.replicas)
            for g in policy.groups
        ],
        {},
        0,
    )
    for group, rules in zip(census.groups, policy.groups, strict=True):
        for replica in range(rules.replicas):
            for rank in rules.replica_ranks(replica):
                census._count(group, rules.nodes, replica, nodes[rank], 1)
    return census


def wanted(policy: Policy, census: Census, group: int) -> int:
    """Replicas of the group that are wanted."""
    rules = policy.groups[group]
    return rules.replicas - census.groups[group].parked // rules.nodes


def least(policy: Policy, census: Census, group: int) -> int:
    """Replicas of the group that must succeed."""
    return min(policy.groups[group].min_success, wanted(policy, census, group))


def up(policy: Policy, census: Census, group: int) -> bool:
    """Each node of the group that is wanted is ready, or has ended."""
    count = census.groups[group]
    return count.ready + count.ended + count.parked == policy.groups[group].size


def complete(policy: Policy, census: Census, group: int) -> bool:
    """Every node of the group that is wanted has ended, and enough of its replicas have
    succeeded."""
    count = census.groups[group]
    ended = count.ended + count.parked == policy.groups[group].size
    return ended and count.succeeded >= least(policy, census, group)


def ranges(ranks: Iterable[int]) -> str:
    """Ranks as a person writes them: 0-3,7."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], rank]
        else:
            parts.append([rank])
    return ",".join("-".join(map(str, part)) for part in parts)


def expand(text: str) -> list[int]:
    """The inverse of `ranges`."""
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ranks += range(int(first), int(last or first) + 1)
    return ranks
