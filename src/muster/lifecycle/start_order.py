"""Start order: start the nodes of groups whose dependencies are met.

OCI: startupOrder IN_PARALLEL | IN_ORDER. JobSet: startupPolicy, dependsOn. A group is up when each
of its nodes is ready (its startup probe succeeded, or it has none and runs) or has ended; it is
complete when the required number of its replicas has succeeded. A restart of the run follows the
order again: only what the present attempt has reached counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from muster.lifecycle import cause, counts
from muster.lifecycle.effects import StartNodes
from muster.lifecycle.policy import GroupPolicy, Policy, Strategy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus
from muster.lifecycle.transition import Transition


def apply(transition: Transition) -> None:
    """Start all pending nodes that may start."""
    if transition.stopping or transition.run.state in (RunState.SUSPENDED, RunState.QUEUED):
        return
    starting: list[int] = []
    for index, group in enumerate(transition.policy.groups):
        if (
            not _has_no_startable_node(transition, index)
            and blocked_by(transition.policy, transition.counts, index) is None
        ):
            starting += _startable(transition, index, group)
    if not starting:
        return
    if transition.run.failures and any(transition.nodes[rank].incarnation for rank in starting):
        # the incident is over: all its failures have been reported
        transition.update(cause=cause.first(transition.run.failures), failures=())
    transition.change_nodes(
        starting,
        lambda node: replace(node, state=NodeState.STARTING, since=transition.now, not_before=None),
    )
    schedule_deadlines(transition, starting)
    transition.emit(StartNodes(transition.run.attempt, transition.refs(starting)))


def _startable(transition: Transition, index: int, group: GroupPolicy) -> list[int]:
    """The nodes of a group that start now, in order."""
    pending = transition.pending_ranks(group.ranks)
    if group.parallelism is not None:
        pending = _within_parallelism(transition, index, group)
    ranks = [
        rank
        for node, alike in transition.alike(pending)
        if _may_start(transition, node)
        for rank in alike
        if not _old_replica_ends(transition, index, rank)
    ]
    return sorted(ranks)


def _within_parallelism(transition: Transition, index: int, group: GroupPolicy) -> Iterator[int]:
    """The pending nodes of an array's replicas that are active, then those of the next replicas,
    as long as these may run beside them. A replica that waits for its restart does not hold back
    those after it."""
    count = transition.counts.groups[index]
    assert group.parallelism is not None
    free = group.parallelism - count.active
    if group.nodes > 1:
        active = {group.replica_of(rank): None for rank in transition.alive_ranks(group.ranks)}
        for replica in active:
            yield from transition.pending_ranks(group.replica_ranks(replica))
    taken = -1  # the replica that took the last free place
    for rank in transition.pending_ranks(group.ranks):
        replica = group.replica_of(rank)
        if replica == taken:
            yield rank
        elif not free:
            return
        elif not count.alive_in[replica] and _may_start(transition, transition.nodes[rank]):
            taken = replica
            free -= 1
            yield rank


def schedule_deadlines(transition: Transition, starting: Sequence[int]) -> None:
    """Wake at the deadlines of nodes that start now. A deadline may have started earlier, with
    other nodes of the replica or the attempt."""
    limit, started_at = transition.policy.attempt_timeout, transition.run.attempt_started_at
    if limit is not None and started_at is not None:
        transition.wake(started_at + limit)
    for index in {transition.policy.group_index(rank) for rank in starting}:
        group = transition.policy.groups[index]
        if group.ready_timeout is not None:
            transition.wake(transition.now + group.ready_timeout)
        if group.timeout is not None:
            replicas = {group.replica_of(rank) for rank in starting if rank in group.ranks}
            ranks = (rank for replica in replicas for rank in group.replica_ranks(replica))
            nodes = (transition.nodes[rank] for rank in ranks)
            since = (node.since for node in nodes if node.state is not NodeState.QUEUED)
            transition.wake(min(at for at in since if at is not None) + group.timeout)


def will_start_more(transition: Transition) -> bool:
    """Whether pending nodes will start without another node ending first."""
    return any(
        count.pending and blocked_by(transition.policy, transition.counts, index) is None
        for index, count in enumerate(transition.counts.groups)
    )


def blocked_by(policy: Policy, node_counts: counts.NodeCounts, index: int) -> int | None:
    """The group that group `index` waits for; None if it may start."""
    if policy.in_order:
        before = (i for i in range(index) if not counts.is_up(policy, node_counts, i))
        return next(before, None)
    for dependency in policy.groups[index].depends_on:
        reached = counts.is_complete if dependency.complete else counts.is_up
        if not reached(policy, node_counts, dependency.group):
            return dependency.group
    return None


def _has_no_startable_node(transition: Transition, index: int) -> bool:
    """Whether no node of the group can start, judged by counts alone."""
    waiting = transition.counts.groups[index].pending_of
    if transition.policy.strategy is Strategy.RECREATE:
        return not waiting
    return all(restart in transition.counts.awaited for restart in waiting)


def _may_start(transition: Transition, node: NodeStatus) -> bool:
    """Whether pending nodes with this status may start now."""
    if node.not_before is not None and not transition.is_due(node.not_before):
        return False
    recreate = transition.policy.strategy is Strategy.RECREATE
    return recreate or node.incarnation not in transition.counts.awaited


def _old_replica_ends(transition: Transition, index: int, rank: int) -> bool:
    """Whether a node has to wait for the end of other nodes of its replica, which is recreated."""
    if transition.policy.strategy is not Strategy.RECREATE:
        return False
    replica = transition.policy.groups[index].replica_of(rank)
    return transition.counts.groups[index].leaving_in[replica] > 0
