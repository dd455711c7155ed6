"""Starting nodes again: how much of the run, and when."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import KillNodes, StartNodes, StopNodes
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.policy import Action, Dependency, Strategy
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus
from support.life import Life, policy, refs, running

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
def test_how_much_starts_again(action: Action, scope: list[int], what: str, attempt: int) -> None:
    life = running(policy(*SHAPES, max_restarts=1, action=action)).end(2, 1)
    others = [rank for rank in scope if rank != 2]
    assert life.stops() == others
    assert [r for r, node in enumerate(life.status.nodes) if node.again == 1] == others
    if others:
        life.obey()
    assert life.effects == (StartNodes(attempt, refs(*scope, incarnation=1)),)
    assert life.states() == [N.STARTING if r in scope else N.READY for r in range(6)]
    assert [node.incarnation for node in life.status.nodes] == [int(r in scope) for r in range(6)]
    assert (life.status.attempt, life.status.restarts) == (attempt, 1)
    assert life.notes("restart")[0]["what"] == what
    assert life.notes("attempt") == [{"attempt": 1, "why": "restart 1"}] * attempt


@pytest.mark.parametrize(
    ("strategy", "starts"),
    [
        (Strategy.IN_PLACE, [[], [], [0, 1, 2, 3]]),
        (Strategy.BLOCKING_RECREATE, [[], [], [0, 1, 2, 3]]),
        (Strategy.RECREATE, [[], [0, 1], [2, 3]]),
    ],
)
def test_strategies(strategy: Strategy, starts: list[list[int]]) -> None:
    """JobSet: failurePolicy.restartStrategy. Of two replicas of two nodes the first one fails."""
    life = running(policy((2, 2, None), max_restarts=1, strategy=strategy)).end(0, 1)
    assert life.stops() == [1, 2, 3]
    assert life.end(2, 143, signal=15).starts() == starts[0]
    assert life.end(1, 143, signal=15).starts() == starts[1]
    assert life.end(3, 143, signal=15).starts() == starts[2]


def test_who_does_not_end_is_killed_and_awaited() -> None:
    life = running(policy((1, 2, None), max_restarts=1, grace_period=5)).end(0, 1)
    assert wake_at(life.status) == life.now + 5
    assert life.tick(after=5).effects == (KillNodes(refs(1)),)
    assert life.end(1, 137, signal=9).starts() == [0, 1]


def test_who_has_succeeded_starts_again_too() -> None:
    life = running(policy((1, 2, None), max_restarts=1)).end(0).end(1, 1)
    assert life.starts() == [0, 1]


def test_what_starts_again_starts_from_nothing() -> None:
    life = running(policy((1, 2, None), max_restarts=1)).end(0, 1).end(1, 0)
    assert life.node(1) == NodeStatus(N.STARTING, 1, since=life.now)
    assert life.status.cause is not None and life.status.cause.rank == 0


def test_a_wider_restart_takes_in_what_is_on_its_way_out() -> None:
    """Told once, it comes back as what the later restart wants."""
    shapes: Any = ((1, 2, None), (1, 1, None))
    life = running(policy(*shapes, max_restarts=2, action=Action.RESTART_GROUP)).end(0, 1)
    assert life.stops() == [1]
    assert life.node(0).incarnation == life.node(1).again == 1
    wider = running(policy(*shapes, max_restarts=2)).end(0, 1)
    assert wider.stops() == [1, 2]
    life.policy = wider.policy
    life.end(2, 1)
    assert life.effects == (), "told already"
    assert (life.node(0).incarnation, life.node(1).again, life.node(2).incarnation) == (2, 2, 2)
    assert life.end(1, 143, signal=15).starts() == [0, 1, 2]


def test_late_news_of_an_old_life_is_no_news() -> None:
    life = running(policy((1, 2, None), max_restarts=1)).end(0, 1).obey()
    before = life.status
    assert life.tell(NodeEnded(0, 1), NodeEnded(1, 1)).status is before


def test_what_failed_while_it_was_told_to_end_is_a_consequence() -> None:
    life = running(policy((1, 2, None), max_restarts=1)).end(0, 1, message="x").end(1, 2)
    assert life.status.spent.run == 1
    assert life.notes("failure")[1]["rank"] == 1
    assert life.starts() == [0, 1]
    assert life.status.failures == (), "the incident is over"
    assert life.status.cause is not None and life.status.cause.exit_code == 1


def test_a_cause_that_is_told_of_late_is_one() -> None:
    """A program noted when it saw its error, and that was before."""
    life = running(policy((1, 2, None), max_restarts=1)).end(0, 1, message="x")
    life.end(1, 2, raised_at=life.now - 5)
    assert life.status.cause is not None and life.status.cause.exit_code == 2


def test_an_incident_lasts_until_something_starts_again() -> None:
    life = running(policy((1, 2, None), max_restarts=1)).end(0, 1)
    assert [failure.rank for failure in life.status.failures] == [0]
    assert life.obey().status.failures == ()


def test_a_first_start_ends_no_incident() -> None:
    """Another group comes up while the old nodes of the first are awaited."""
    after = {"depends_on": (Dependency(1, complete=True),)}
    shapes: Any = ((1, 2, None), (1, 1, None), (1, 1, None, after))
    life = Life(policy(*shapes, max_restarts=1, action=Action.RESTART_GROUP)).tell().up(0, 1, 2)
    assert life.end(0, 1).stops() == [1]
    assert life.end(2).starts() == [3]
    assert [failure.rank for failure in life.status.failures] == [0]


def test_stops_name_the_lives_they_mean() -> None:
    life = running(policy((1, 2, None), max_restarts=2)).end(0, 1).obey().up(0, 1)
    assert life.end(0, 1).effects == (StopNodes(refs(1, incarnation=1)),)
    assert life.obey().effects == (StartNodes(2, refs(0, 1, incarnation=2)),)
