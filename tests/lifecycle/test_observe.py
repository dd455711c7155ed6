"""Events of nodes into facts."""

from __future__ import annotations

from muster.lifecycle.policy import Action
from support.life import begun, policy


def test_the_clock_of_an_attempt_starts_with_a_node_of_its_own() -> None:
    """That one of the attempt before came up on its way out says nothing of this one."""
    life = begun(policy((1, 2, None), max_restarts=1, action=Action.RESTART_RUN))
    first = life.end(0, 1).now
    life.tell(life.started(1))
    assert (life.status.attempt_at, life.status.going_since) == (None, first + 1)
    life.obey().up(0)
    assert (life.status.attempt_at, life.status.going_since) == (life.now, first + 1)
