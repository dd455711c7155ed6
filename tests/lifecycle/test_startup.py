"""Startup: whose turn it is, at first and after a restart."""

from __future__ import annotations

import pytest

from muster.lifecycle.policy import Action, Dependency, Strategy
from muster.lifecycle.states import NodeState
from support.life import begun, policy, running

N = NodeState


@pytest.mark.parametrize("strategy", Strategy)
def test_the_order_is_walked_again_after_a_restart(strategy: Strategy) -> None:
    """What is up but on its way out does not count, whatever the strategy."""
    life = running(
        policy((1, 1, None), (1, 1, None), in_order=True, max_restarts=1, strategy=strategy)
    )
    life.up(1)
    assert life.end(1, 1).starts() == []
    assert life.obey().starts() == [0]
    assert life.tell(life.started(0)).starts() == []
    assert life.tell(life.ready(0)).starts() == [1]


def test_a_group_on_its_way_out_is_not_up() -> None:
    """The second waits for both; while the first restarts, the third completes."""
    both = (Dependency(0, complete=False), Dependency(2, complete=True))
    life = begun(
        policy(
            (1, 2, None, {"timeout": 10}),
            (1, 1, None, {"depends_on": both}),
            (1, 1, None),
            max_restarts=1,
            action=Action.RESTART_GROUP,
        )
    ).up(0, 1, 3)
    life.tick(after=10)
    assert [life.node(rank).again for rank in (0, 1)] == [1, 1]
    assert life.end(3).starts() == []
    assert life.obey().starts() == [0, 1]
    assert life.up(0, 1).starts() == [2]
