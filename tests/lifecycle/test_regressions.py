"""What simulation found to go wrong, by hand."""

from __future__ import annotations

from muster.lifecycle import outstanding
from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import StartNodes
from muster.lifecycle.events import NodeStarted, RunBegan, SupervisorLost, Tick
from muster.lifecycle.policy import Backoff
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


def test_a_deadline_of_others_is_that_of_a_node_that_starts_again_too() -> None:
    """Its replica's time has begun before its own."""
    node = (1, 2, None, {"retries": 1, "timeout": 30.0})
    life = begun(policy(node)).up(0, 1)
    began = life.node(0).since
    assert began is not None
    life.end(1, 7)
    assert life.starts() == [1]
    assert wake_at(life.status) == began + 30


def test_the_time_of_an_attempt_goes_on_while_nodes_wait_to_start_again() -> None:
    rules = {"max_restarts": 2, "action": "restart_node", "attempt_timeout": 30.0}
    life = begun(policy((1, 1, None), **rules, backoff=Backoff(initial=50.0))).up(0)
    began = life.status.attempt_at
    assert began is not None
    life.end(0, 7).up(0).end(0, 7)
    assert life.starts() == [], "it waits"
    assert life.tell(Tick(), after=50).starts() == [0]
    assert wake_at(life.status) == began + 30, "at once"


def test_who_takes_over_gives_nodes_that_were_starting_their_time() -> None:
    life = begun(policy((1, 2, None, {"ready_timeout": 60.0}))).tell(NodeStarted(0))
    life.tell(RunBegan(), after=100)
    assert life.node(1).since == life.now, "it is handed over once more"
    assert life.node(0).since != life.now
