"""Restart a node, a replica, a group or the whole run.

JobSet: failurePolicy.restartStrategy. With the two-phase barrier (KEP-467), all old processes end
before the new ones start together; `start_order` implements the barrier. The number of the restart
is the next incarnation of the nodes, so that late reports of old incarnations are recognized.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec.structs import replace

from muster.lifecycle import backoff, cause, stopping
from muster.lifecycle.failure_details import cause_of_restart
from muster.lifecycle.policy import Action
from muster.lifecycle.ranks import shortened_ranks, to_ranges
from muster.lifecycle.status import Failure, NodeStatus
from muster.lifecycle.transition import Transition


def scope(
    transition: Transition, action: Action, failure: Failure, replicas: Sequence[int] = ()
) -> list[range]:
    """The ranks that an action restarts because of a failure.

    replicas: those that restart with `Action.RESTART_REPLICA`; empty = that of the failed node.
    """
    group = transition.policy.group_of(failure.rank)
    match action:
        case Action.RESTART_NODE:
            return [range(failure.rank, failure.rank + 1)]
        case Action.RESTART_REPLICA:
            numbers = to_ranges(replicas or [group.replica_of(failure.rank)])
            return [
                range(group.replica_ranks(part[0]).start, group.replica_ranks(part[-1]).stop)
                for part in numbers
            ]
        case Action.RESTART_GROUP:
            return [group.ranks]
        case _:
            return [range(transition.policy.size)]


def begin(
    transition: Transition, action: Action, failure: Failure, by: str, replicas: Sequence[int] = ()
) -> None:
    """Restart the scope of an action. by: a phrase that names the rule or budget that allows it.
    replicas: see `scope`."""
    number = transition.run.last_incarnation + 1
    transition.update(last_incarnation=number, cause=cause.first(transition.run.failures))
    wait = _delay(transition, action, failure, replicas)
    group = transition.policy.group_of(failure.rank)
    why = cause_of_restart(failure, group) + (f"; {by}" if by else "")
    what = _scope_text(transition, action, failure, replicas)
    transition.log("restart", restart=number, what=what, why=why, wait=round(wait, 3))
    if action is Action.RESTART_RUN:
        transition.update(attempt=transition.run.attempt + 1, attempt_started_at=None)
        transition.log("attempt", attempt=transition.run.attempt, why=f"restart {number}")
    ranks = chain.from_iterable(scope(transition, action, failure, replicas))
    _restart_nodes(transition, ranks, number, transition.now + wait if wait else None)


def _delay(
    transition: Transition, action: Action, failure: Failure, replicas: Sequence[int]
) -> float:
    """Seconds until the restarted nodes may start. A replica of an array that is restarted alone is
    delayed for its own failures (Kubernetes: backoffLimitPerIndex)."""
    group = transition.policy.group_of(failure.rank)
    alone = action is Action.RESTART_NODE or (action is Action.RESTART_REPLICA and not replicas)
    if group.parallelism is None or not alone:
        return backoff.next_delay(transition)
    first = group.replica_ranks(group.replica_of(failure.rank))[0]
    streak = transition.nodes[first].retries - 1
    rules = transition.policy.backoff
    return backoff.delay(rules, max(0, streak), transition.run.last_incarnation)


def _restart_nodes(
    transition: Transition, ranks: Iterable[int], number: int, not_before: float | None
) -> None:
    leaving: list[int] = []
    for node, alike in transition.alike(ranks):
        if node.scaled_down:
            continue
        if node.alive:
            leaving += alike
        else:
            fresh = NodeStatus(incarnation=number, not_before=not_before, retries=node.retries)
            transition.set_alike(alike, node, fresh)
    stopping.terminate(
        transition,
        leaving,
        lambda node: replace(node, next_incarnation=number, not_before=not_before),
    )


def _scope_text(
    transition: Transition, action: Action, failure: Failure, replicas: Sequence[int]
) -> str:
    group = transition.policy.group_of(failure.rank)
    match action:
        case Action.RESTART_NODE:
            return f"node-{failure.rank}"
        case Action.RESTART_REPLICA if replicas:
            noun = "replica" if len(replicas) == 1 else "replicas"
            return f"the failed {noun} {shortened_ranks(replicas)} of group {group.name}"
        case Action.RESTART_REPLICA:
            return f"replica {group.replica_of(failure.rank)} of group {group.name}"
        case Action.RESTART_GROUP:
            return f"group {group.name}"
        case _:
            return "the run"
