"""Restart a node, a replica, a group or the whole run.

JobSet: failurePolicy.restartStrategy. With the two-phase barrier (KEP-467), all old processes end
before the new ones start together; `start_order` implements the barrier. The number of the restart
is the next incarnation of the nodes, so that late reports of old incarnations are recognized.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.lifecycle import backoff, budget, cause, stopping
from muster.lifecycle.failure_details import headline
from muster.lifecycle.policy import Action
from muster.lifecycle.status import Failure, NodeStatus
from muster.lifecycle.transition import Transition


def scope(transition: Transition, action: Action, failure: Failure) -> range:
    """The ranks that an action restarts because of a failure."""
    group = transition.policy.group_of(failure.rank)
    match action:
        case Action.RESTART_NODE:
            return range(failure.rank, failure.rank + 1)
        case Action.RESTART_REPLICA:
            return group.replica_ranks(group.replica_of(failure.rank))
        case Action.RESTART_GROUP:
            return group.ranks
        case _:
            return range(transition.policy.size)


def begin(transition: Transition, action: Action, failure: Failure, by: str) -> None:
    """Restart the scope of an action. by: a phrase that names the rule or budget that allows it."""
    ranks = scope(transition, action, failure)
    if action is not Action.RESTART_NODE:
        budget.renew_retries(transition, ranks)
    number = transition.run.last_incarnation + 1
    transition.update(last_incarnation=number, cause=cause.first(transition.run.failures))
    wait = backoff.next_delay(transition)
    why = headline(failure) + (f"; {by}" if by else "")
    what = _scope_text(transition, action, failure)
    transition.log("restart", restart=number, what=what, why=why, wait=round(wait, 3))
    if action is Action.RESTART_RUN:
        transition.update(attempt=transition.run.attempt + 1, attempt_started_at=None)
        transition.log("attempt", attempt=transition.run.attempt, why=f"restart {number}")
    _restart_nodes(transition, ranks, number, transition.now + wait if wait else None)


def _restart_nodes(
    transition: Transition, ranks: range, number: int, not_before: float | None
) -> None:
    leaving: dict[int, NodeStatus] = {}
    for rank in ranks:
        node = transition.nodes[rank]
        if node.scaled_down:
            continue
        if node.alive:
            leaving[rank] = replace(node, next_incarnation=number, not_before=not_before)
        else:
            transition.set_node(rank, NodeStatus(incarnation=number, not_before=not_before))
    stopping.terminate(transition, leaving)


def _scope_text(transition: Transition, action: Action, failure: Failure) -> str:
    group = transition.policy.group_of(failure.rank)
    match action:
        case Action.RESTART_NODE:
            return f"node-{failure.rank}"
        case Action.RESTART_REPLICA:
            return f"replica {group.replica_of(failure.rank)} of group {group.name}"
        case Action.RESTART_GROUP:
            return f"group {group.name}"
        case _:
            return "the run"
