"""Ending: save, SIGTERM, a grace period, SIGKILL, and the outcome when nothing is left."""

from __future__ import annotations

from muster.lifecycle.states import NodeState
from support.life import begun, policy

N = NodeState


def test_a_node_that_was_to_start_again_ends_with_its_replica() -> None:
    """It was too slow and would have been tried again; then another node of it has failed."""
    life = begun(policy((2, 2, 1, {"retries": 1, "ready_timeout": 10}))).up(1, 2, 3)
    life.tick(after=10)
    assert life.node(0).again == 1
    life.end(1, 1)
    assert life.node(0).again is None
    life.obey()
    assert life.states() == [N.FAILED, N.FAILED, N.READY, N.READY]
