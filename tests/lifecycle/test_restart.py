"""Restarts: which nodes, and when."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import KillNodes, StartNodes, StopNodes
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.policy import Action, Dependency, Strategy
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus
from support.run_driver import RunDriver, policy, refs, running

N = NodeState
SHAPES: Any = ((2, 2, None), (1, 2, None))


@pytest.mark.shows("distributed-jobs/benefit-fault-tolerance")
@pytest.mark.parametrize(
    ("action", "scope", "what", "attempt"),
    [
        (Action.RESTART_NODE, [2], "node-2", 0),
        (Action.RESTART_REPLICA, [2, 3], "replica 1 of group g0", 0),
        (Action.RESTART_GROUP, [0, 1, 2, 3], "group g0", 0),
        (Action.RESTART_RUN, [0, 1, 2, 3, 4, 5], "the run", 1),
    ],
)
def test_scope_of_each_restart(action: Action, scope: list[int], what: str, attempt: int) -> None:
    run = running(policy(*SHAPES, max_restarts=1, action=action)).end(2, 1)
    others = [rank for rank in scope if rank != 2]
    assert run.stops() == others
    assert [r for r, node in enumerate(run.status.nodes) if node.next_incarnation == 1] == others
    if others:
        run.end_stopping()
    assert run.effects == (StartNodes(attempt, refs(*scope, incarnation=1)),)
    assert run.states() == [N.STARTING if r in scope else N.READY for r in range(6)]
    assert [node.incarnation for node in run.status.nodes] == [int(r in scope) for r in range(6)]
    assert (run.status.attempt, run.status.last_incarnation) == (attempt, 1)
    assert run.notes("restart")[0]["what"] == what
    assert run.notes("attempt") == [{"attempt": 1, "why": "restart 1"}] * attempt


@pytest.mark.parametrize(
    ("strategy", "starts"),
    [
        (Strategy.IN_PLACE, [[], [], [0, 1, 2, 3]]),
        (Strategy.BLOCKING_RECREATE, [[], [], [0, 1, 2, 3]]),
        (Strategy.RECREATE, [[], [0, 1], [2, 3]]),
    ],
)
def test_a_strategy_decides_when_replicas_start(
    strategy: Strategy, starts: list[list[int]]
) -> None:
    """JobSet: failurePolicy.restartStrategy. Of two replicas of two nodes the first one fails."""
    run = running(policy((2, 2, None), max_restarts=1, strategy=strategy)).end(0, 1)
    assert run.stops() == [1, 2, 3]
    assert run.end(2, 143, signal=15).starts() == starts[0]
    assert run.end(1, 143, signal=15).starts() == starts[1]
    assert run.end(3, 143, signal=15).starts() == starts[2]


def test_a_node_that_does_not_stop_is_killed_before_the_restart() -> None:
    run = running(policy((1, 2, None), max_restarts=1, grace_period=5)).end(0, 1)
    assert wake_at(run.status) == run.now + 5
    assert run.tick(after=5).effects == (KillNodes(refs(1)),)
    assert run.end(1, 137, signal=9).starts() == [0, 1]


def test_succeeded_nodes_restart_too() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).end(0).end(1, 1)
    assert run.starts() == [0, 1]


def test_a_restarted_node_has_a_new_status() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).end(0, 1).end(1, 0)
    assert run.node(1) == NodeStatus(N.STARTING, 1, since=run.now)
    assert run.status.cause is not None and run.status.cause.rank == 0


def test_a_wider_restart_includes_stopping_nodes() -> None:
    """It is stopped once, and starts as the later restart requires."""
    shapes: Any = ((1, 2, None), (1, 1, None))
    run = running(policy(*shapes, max_restarts=2, action=Action.RESTART_GROUP)).end(0, 1)
    assert run.stops() == [1]
    assert run.node(0).incarnation == run.node(1).next_incarnation == 1
    wider = running(policy(*shapes, max_restarts=2)).end(0, 1)
    assert wider.stops() == [1, 2]
    run.policy = wider.policy
    run.end(2, 1)
    assert run.effects == (), "it is stopping already"
    assert (run.node(0).incarnation, run.node(1).next_incarnation, run.node(2).incarnation) == (
        2,
        2,
        2,
    )
    assert run.end(1, 143, signal=15).starts() == [0, 1, 2]


def test_late_events_of_an_earlier_incarnation_are_ignored() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).end(0, 1).end_stopping()
    before = run.status
    assert run.step(NodeEnded(0, 1), NodeEnded(1, 1)).status is before


def test_a_failure_of_a_stopping_node_is_a_consequence() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).end(0, 1, message="x").end(1, 2)
    assert run.status.spent.run == 1
    assert run.notes("failure")[1]["rank"] == 1
    assert run.starts() == [0, 1]
    assert run.status.failures == (), "the incident is over"
    assert run.status.cause is not None and run.status.cause.exit_code == 1


def test_an_earlier_error_reported_late_is_the_cause() -> None:
    """The program recorded when its error was raised, which was earlier."""
    run = running(policy((1, 2, None), max_restarts=1)).end(0, 1, message="x")
    run.end(1, 2, raised_at=run.now - 5)
    assert run.status.cause is not None and run.status.cause.exit_code == 2


def test_an_incident_lasts_until_the_restart() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).end(0, 1)
    assert [failure.rank for failure in run.status.failures] == [0]
    assert run.end_stopping().status.failures == ()


def test_a_first_start_ends_no_incident() -> None:
    """Another group becomes ready while old nodes of the first are stopping."""
    after = {"depends_on": (Dependency(1, complete=True),)}
    shapes: Any = ((1, 2, None), (1, 1, None), (1, 1, None, after))
    run = RunDriver(policy(*shapes, max_restarts=1, action=Action.RESTART_GROUP)).step().up(0, 1, 2)
    assert run.end(0, 1).stops() == [1]
    assert run.end(2).starts() == [3]
    assert [failure.rank for failure in run.status.failures] == [0]


def test_stops_name_the_incarnation() -> None:
    run = running(policy((1, 2, None), max_restarts=2)).end(0, 1).end_stopping().up(0, 1)
    assert run.end(0, 1).effects == (StopNodes(refs(1, incarnation=1)),)
    assert run.end_stopping().effects == (StartNodes(2, refs(0, 1, incarnation=2)),)
