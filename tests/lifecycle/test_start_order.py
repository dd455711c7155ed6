"""Startup order, at first and after a restart."""

from __future__ import annotations

import pytest

from muster.lifecycle.policy import Action, Dependency, Strategy
from muster.lifecycle.states import NodeState
from support.run_driver import policy, running, starting

N = NodeState


@pytest.mark.parametrize("strategy", Strategy)
def test_the_startup_order_is_kept_after_a_restart(strategy: Strategy) -> None:
    """Nodes that are ready but stopping do not count, with any strategy."""
    run = running(
        policy((1, 1, None), (1, 1, None), in_order=True, max_restarts=1, strategy=strategy)
    )
    run.up(1)
    assert run.end(1, 1).starts() == []
    assert run.end_stopping().starts() == [0]
    assert run.step(run.started(0)).starts() == []
    assert run.step(run.ready(0)).starts() == [1]


def test_a_stopping_group_does_not_count_as_up() -> None:
    """The second waits for both; while the first restarts, the third completes."""
    both = (Dependency(0, complete=False), Dependency(2, complete=True))
    run = starting(
        policy(
            (1, 2, None, {"timeout": 10}),
            (1, 1, None, {"depends_on": both}),
            (1, 1, None),
            max_restarts=1,
            action=Action.RESTART_GROUP,
        )
    ).up(0, 1, 3)
    run.tick(after=10)
    assert [run.node(rank).next_incarnation for rank in (0, 1)] == [1, 1]
    assert run.end(3).starts() == []
    assert run.end_stopping().starts() == [0, 1]
    assert run.up(0, 1).starts() == [2]
