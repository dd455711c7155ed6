"""Startup: whose turn it is.

OCI: startupOrder IN_PARALLEL | IN_ORDER. JobSet: startupPolicy, dependsOn. A group is up when each
of its nodes is ready (its startup probe succeeded, or it has none and runs) or has ended; it is
complete when enough of its replicas have succeeded. After a restart of the run the order is walked
again, since only what the present attempt has reached counts.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.lifecycle import cause, census
from muster.lifecycle.effects import StartNodes
from muster.lifecycle.policy import Policy, Strategy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.turn import Turn


def apply(turn: Turn) -> None:
    """Hand the nodes whose turn has come to the engine."""
    if turn.stopping or turn.run.state is RunState.SUSPENDED:
        return
    starting: list[int] = []
    for index, group in enumerate(turn.policy.groups):
        if not _held(turn, index) and blocked_by(turn.policy, turn.census, index) is None:
            starting += [rank for rank in group.ranks if _may_start(turn, index, rank)]
    if not starting:
        return
    if turn.run.failures and any(turn.nodes[rank].incarnation for rank in starting):
        # the incident is over, and all that will be told of it has been
        turn.update(cause=cause.first(turn.run.failures), failures=())
    for rank in starting:
        node = turn.nodes[rank]
        turn.set(rank, replace(node, state=NodeState.STARTING, since=turn.now, not_before=None))
    _watch(turn, starting)
    turn.act(StartNodes(turn.run.attempt, turn.refs(starting)))


def _watch(turn: Turn, starting: list[int]) -> None:
    """Look again when they are too slow; that may be before their own time is over, for a clock
    that others have started."""
    limit, began = turn.policy.attempt_timeout, turn.run.attempt_at
    if limit is not None and began is not None:
        turn.wake(began + limit)
    for index in {turn.policy.group_index(rank) for rank in starting}:
        group = turn.policy.groups[index]
        if group.ready_timeout is not None:
            turn.wake(turn.now + group.ready_timeout)
        if group.timeout is not None:
            replicas = {group.replica_of(rank) for rank in starting if rank in group.ranks}
            ranks = (rank for replica in replicas for rank in group.replica_ranks(replica))
            since = (turn.nodes[rank].since for rank in ranks)
            turn.wake(min(at for at in since if at is not None) + group.timeout)


def more_to_come(turn: Turn) -> bool:
    """Whether nodes will start although no other one ends before."""
    return any(
        count.pending and blocked_by(turn.policy, turn.census, index) is None
        for index, count in enumerate(turn.census.groups)
    )


def blocked_by(policy: Policy, counts: census.Census, index: int) -> int | None:
    """The group that another one waits for; None if it may start."""
    if policy.in_order:
        before = (i for i in range(index) if not census.up(policy, counts, i))
        return next(before, None)
    for dependency in policy.groups[index].depends_on:
        reached = census.complete if dependency.complete else census.up
        if not reached(policy, counts, dependency.group):
            return dependency.group
    return None


def _held(turn: Turn, index: int) -> bool:
    """None of the group's nodes can start, which is known without a look at each."""
    waiting = turn.census.groups[index].pending_of
    if turn.policy.strategy is Strategy.RECREATE:
        return not waiting
    return all(restart in turn.census.awaited for restart in waiting)


def _may_start(turn: Turn, index: int, rank: int) -> bool:
    node = turn.nodes[rank]
    if node.state is not NodeState.PENDING:
        return False
    if node.not_before is not None and not turn.past(node.not_before):
        return False
    if turn.policy.strategy is Strategy.RECREATE:
        replica = turn.policy.groups[index].replica_of(rank)
        return turn.census.groups[index].leaving_in[replica] == 0
    return node.incarnation not in turn.census.awaited
