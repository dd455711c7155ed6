"""Starting nodes again: a node, a replica, a group or the whole run.

JobSet: failurePolicy.restartStrategy. In a two-phase barrier (KEP-467) the old processes of
everything that restarts go first, then the new ones start together; `startup` holds the barrier.
Which incarnation a node will have is the number of the restart, so that whatever is still told of
the old one is told of another.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.lifecycle import backoff, budget, cause, stopping
from muster.lifecycle.describe import headline
from muster.lifecycle.policy import Action
from muster.lifecycle.status import Failure, NodeStatus
from muster.lifecycle.turn import Turn


def scope(turn: Turn, action: Action, failure: Failure) -> range:
    """The ranks an action starts again because of a failure."""
    group = turn.policy.group_of(failure.rank)
    match action:
        case Action.RESTART_NODE:
            return range(failure.rank, failure.rank + 1)
        case Action.RESTART_REPLICA:
            return group.replica_ranks(group.replica_of(failure.rank))
        case Action.RESTART_GROUP:
            return group.ranks
        case _:
            return range(turn.policy.size)


def begin(turn: Turn, action: Action, failure: Failure, by: str) -> None:
    """Start again what the action says. by: the rule or the budget that allows it."""
    ranks = scope(turn, action, failure)
    if action is not Action.RESTART_NODE:
        budget.renew_retries(turn, ranks)
    number = turn.run.restarts + 1
    turn.update(restarts=number, cause=cause.first(turn.run.failures))
    wait = backoff.take(turn)
    why = headline(failure) + (f"; {by}" if by else "")
    what = _what(turn, action, failure)
    turn.note("restart", restart=number, what=what, why=why, wait=round(wait, 3))
    if action is Action.RESTART_RUN:
        turn.update(attempt=turn.run.attempt + 1, attempt_at=None)
        turn.note("attempt", attempt=turn.run.attempt, why=f"restart {number}")
    _again(turn, ranks, number, turn.now + wait if wait else None)


def _again(turn: Turn, ranks: range, number: int, not_before: float | None) -> None:
    leaving: dict[int, NodeStatus] = {}
    for rank in ranks:
        node = turn.nodes[rank]
        if node.parked:
            continue
        if node.alive:
            leaving[rank] = replace(node, again=number, not_before=not_before)
        else:
            turn.set(rank, NodeStatus(incarnation=number, not_before=not_before))
    stopping.tell_to_end(turn, leaving)


def _what(turn: Turn, action: Action, failure: Failure) -> str:
    group = turn.policy.group_of(failure.rank)
    match action:
        case Action.RESTART_NODE:
            return f"node-{failure.rank}"
        case Action.RESTART_REPLICA:
            return f"replica {group.replica_of(failure.rank)} of group {group.name}"
        case Action.RESTART_GROUP:
            return f"group {group.name}"
        case _:
            return "the run"
