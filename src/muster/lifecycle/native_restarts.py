"""Restarts of the whole run by the engine's infrastructure itself, while nobody decides.

JobSet: failurePolicy.maxRestarts of a compiled manifest. Slurm: `scontrol requeue` by the batch
script. A node whose program has failed, and whose supervisor does not answer, exits with the
program's code, and the infrastructure does what it was given to do. A supervisor that hears of it
adopts what it finds: the infrastructure's attempt is that of the run, and all older incarnations
have ended. Whatever the supervisor had decided about these, a restart included, is replaced by it:
only one of the two can have nodes, and the infrastructure's has them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from muster.lifecycle import budget, cause, incarnations, start_order, stopping
from muster.lifecycle.events import RunRestarted
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus
from muster.lifecycle.transition import Transition

_BY_ENGINE = "the engine has restarted the run by itself"


def adopt(transition: Transition, events: Iterable[RunRestarted]) -> None:
    """Apply that the infrastructure has restarted the run. A restart that is reported again, or
    after a later one, changes nothing."""
    latest = max(events, key=lambda event: event.restarts)
    if latest.restarts <= transition.run.native_restarts or transition.run.state.at_rest:
        return
    _count(transition, latest)
    _log(transition, latest)
    number = incarnations.of_native_restart(latest.restarts)
    run = transition.run
    transition.update(
        attempt=run.attempt + latest.restarts - run.native_restarts,
        native_restarts=latest.restarts,
        last_incarnation=number,
        counted_restarts=(),
        attempt_started_at=None,
    )
    _replace_nodes(transition, number, latest)
    transition.new_failures.clear()  # they are those of the attempt before
    if transition.run.failures and not (transition.stopping or _is_over_budget(transition)):
        transition.update(cause=cause.first(transition.run.failures), failures=())


def _count(transition: Transition, event: RunRestarted) -> None:
    """Count towards the budget of the run what the infrastructure has counted. Restarts that it
    replaces while they are in progress were counted before."""
    spent = transition.run.spent
    counted = event.restarts if event.counted is None else event.counted
    new = max(0, counted - spent.native - len(budget.restarts_in_progress(transition)))
    budget.renew_retries(transition, [transition.all_ranks])
    spent = transition.run.spent
    transition.update(spent=replace(spent, run=spent.run + new, native=counted))


def _log(transition: Transition, event: RunRestarted) -> None:
    """One entry for each restart. Only why the last one happened is known."""
    run = transition.run
    for number in range(run.native_restarts + 1, event.restarts + 1):
        why = event.why if number == event.restarts else ""
        given = {"by": "engine", "why": why} if why else {"by": "engine"}
        transition.log(
            "restart", restart=incarnations.of_native_restart(number), what="the run", **given
        )
        attempt = run.attempt + number - run.native_restarts
        transition.log("attempt", attempt=attempt, by="engine")


def _replace_nodes(transition: Transition, number: int, event: RunRestarted) -> None:
    """All nodes have ended. Of those that are desired, the infrastructure has started some; the
    others start in their order. If the run is ending, how its nodes have ended is not forgotten:
    what was started again of these ends with the session."""
    desired = [rank for rank in transition.all_ranks if not transition.nodes[rank].scaled_down]
    begun = frozenset(desired if event.ranks is None else event.ranks)
    fresh = NodeStatus(NodeState.STARTING, number, since=transition.now)
    for node, ranks in transition.alike(transition.all_ranks):
        started = [rank for rank in ranks if rank in begun]
        others = [rank for rank in ranks if rank not in begun]
        if node.scaled_down:
            _scale_down(transition, node, started, others, number)
        elif not (transition.stopping and node.state.ended):
            transition.set_alike(started, node, fresh, event.why)
            transition.set_alike(others, node, NodeStatus(incarnation=number), event.why)
    starting = transition.alive_ranks(transition.all_ranks)
    start_order.schedule_deadlines(transition, list(starting))


def _scale_down(
    transition: Transition, node: NodeStatus, started: list[int], others: list[int], number: int
) -> None:
    """Apply a restart to nodes that are not desired. started: those of them that run again, and
    have to be stopped."""
    transition.update(last_incarnation=number + 1)
    for rank in others:
        transition.scale_down(rank, number + 1)
    again = NodeStatus(
        NodeState.STARTING,
        number,
        since=transition.now,
        retries=node.retries,
        next_incarnation=number + 1,
        scaling_down=True,
    )
    transition.set_alike(started, node, again)


def _is_over_budget(transition: Transition) -> bool:
    """Whether the infrastructure has restarted the run, as is known since this step, more often
    than its budget allows."""
    spent = transition.run.spent.run
    return spent > max(transition.before.spent.run, transition.policy.max_restarts)


def apply(transition: Transition) -> None:
    """Decide about nodes that the infrastructure has started, as is known since this step: those
    that are not desired are stopped; all are if the run was ending, or has no restarts left."""
    run = transition.run
    if run.native_restarts == transition.before.native_restarts:
        return
    alive = transition.alive_ranks(transition.all_ranks)
    undesired = [rank for rank in alive if transition.nodes[rank].scaling_down]
    stopping.terminate(transition, undesired, lambda node: node)
    ending = transition.before.stopping
    if ending is not None:
        stopping.end_nodes(transition, ending.outcome, ending.details)
    elif _is_over_budget(transition):
        left = budget.none_left(transition.policy.max_restarts, "failure.max_restarts")
        text = f"{_BY_ENGINE}, and {left}"
        transition.update(cause=None, broken=not run.failures)
        stopping.begin(transition, RunState.FAILED, text, note=text)
