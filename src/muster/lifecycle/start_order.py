"""Start order: start the nodes of groups whose dependencies are met.

OCI: startupOrder IN_PARALLEL | IN_ORDER. JobSet: startupPolicy, dependsOn. A group is up when each
of its nodes is ready (its startup probe succeeded, or it has none and runs) or has ended; it is
complete when the required number of its replicas has succeeded. A restart of the run follows the
order again: only what the present attempt has reached counts.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.lifecycle import cause, counts
from muster.lifecycle.effects import StartNodes
from muster.lifecycle.policy import Policy, Strategy
from muster.lifecycle.states import NodeState, RunState
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
            starting += [rank for rank in group.ranks if _may_start(transition, index, rank)]
    if not starting:
        return
    if transition.run.failures and any(transition.nodes[rank].incarnation for rank in starting):
        # the incident is over: all its failures have been reported
        transition.update(cause=cause.first(transition.run.failures), failures=())
    for rank in starting:
        node = transition.nodes[rank]
        transition.set_node(
            rank, replace(node, state=NodeState.STARTING, since=transition.now, not_before=None)
        )
    _schedule_deadlines(transition, starting)
    transition.emit(StartNodes(transition.run.attempt, transition.refs(starting)))


def _schedule_deadlines(transition: Transition, starting: list[int]) -> None:
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
            since = (transition.nodes[rank].since for rank in ranks)
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


def _may_start(transition: Transition, index: int, rank: int) -> bool:
    node = transition.nodes[rank]
    if node.state is not NodeState.PENDING:
        return False
    if node.not_before is not None and not transition.is_due(node.not_before):
        return False
    if transition.policy.strategy is Strategy.RECREATE:
        replica = transition.policy.groups[index].replica_of(rank)
        return transition.counts.groups[index].leaving_in[replica] == 0
    return node.incarnation not in transition.counts.awaited
