"""What simulation found to go wrong, by hand."""

from __future__ import annotations

from muster.lifecycle import outstanding
from muster.lifecycle.effects import StartNodes
from muster.lifecycle.events import NodeStarted, SupervisorLost
from muster.lifecycle.states import NodeState, RunState
from support.life import begun, policy, refs


def test_nothing_waits_for_the_end_of_a_node_that_never_began() -> None:
    life = begun(policy((1, 3, None))).tell(NodeStarted(1))
    life.tell(SupervisorLost("killed", frozenset({1})))
    assert life.status.state is RunState.FAILED, "of nodes 0 and 2 there is nothing to stop"
    assert life.states() == [NodeState.STOPPED, NodeState.FAILED, NodeState.STOPPED]


def test_a_node_that_never_began_starts_under_who_takes_over() -> None:
    life = begun(policy((1, 3, None))).tell(SupervisorLost("killed", frozenset()))
    assert life.states() == [NodeState.STARTING] * 3
    again = outstanding.effects(life.policy, life.status)
    assert again == (StartNodes(0, refs(0, 1, 2)),)
