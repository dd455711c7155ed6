"""What simulation found to go wrong, by hand."""

from __future__ import annotations

import pytest

from muster.lifecycle import outstanding
from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import SignalNodes, StartNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    NodeStarted,
    RunBegan,
    ScaleRequested,
    SupervisorLost,
    SuspendRequested,
    Tick,
)
from muster.lifecycle.policy import Backoff, Checkpoint, Success
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from support.life import Life, begun, policy, refs, running


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


SUSPEND = SuspendRequested("wait")


def finishing() -> Life:
    """A run that has what it was for, of which the others may finish."""
    rules = policy(
        (1, 1, None),
        (1, 3, None),
        success=Success((0,), wait=True),
        checkpoint=Checkpoint(10, 30),
    )
    return running(rules).end(0)


def test_a_failure_told_with_a_suspend_leaves_the_others_their_time_to_save() -> None:
    life = finishing()
    life.tell(life.ended(1, 7), SUSPEND)
    assert life.effects == (SignalNodes(refs(2, 3), 10),)
    assert [life.node(rank).term_at for rank in (2, 3)] == [life.now + 30] * 2
    assert wake_at(life.status) == life.now + 30
    assert life.tick(after=30).effects == (StopNodes(refs(2, 3)),)
    assert life.obey().status.state is RunState.SUSPENDED


def test_a_failure_before_a_suspend_still_ends_its_replica() -> None:
    life = finishing().end(1, 7)
    assert life.effects == (StopNodes(refs(2, 3)),)
    assert life.tell(SUSPEND).effects == (), "they are ending already"


def test_a_failure_told_with_a_cancel_has_its_node_ended_once() -> None:
    life = finishing()
    life.tell(life.ended(1, 7), CancelRequested("enough"))
    assert life.effects == (StopNodes(refs(2, 3)),)
    assert life.obey().status.state is RunState.CANCELED


def sized(*sizes: int, group: str = "g1") -> list[ScaleRequested]:
    return [ScaleRequested(group, size, "by its owner") for size in sizes]


def served(wanted: int) -> Life:
    """One node for which all is done, and as many of four that serve it."""
    life = begun(policy((1, 1, None), (4, 1, 0, {"wanted": wanted})))
    return life.up(*life.starts())


@pytest.mark.parametrize("wanted", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("sizes", [(1, 4), (4, 1), (0, 3), (1, 3, 3), (4, 0, 2), (0, 4, 0, 4)])
def test_of_several_sizes_told_at_once_only_the_last_counts(
    wanted: int, sizes: tuple[int, ...]
) -> None:
    once = served(wanted).tell(*sized(sizes[-1]))
    life = served(wanted).tell(*sized(*sizes))
    assert (life.status, life.effects, life.entries) == (once.status, once.effects, once.entries)


def test_the_last_size_of_each_group_counts() -> None:
    shape = (3, 1, 0, {"wanted": 1})
    life = begun(policy((1, 1, None), shape, shape)).up(0, 1, 4)
    life.tell(*sized(0), *sized(3, group="g2"), *sized(2), *sized(2, group="g2"))
    assert (life.stops(), life.starts()) == ([], [2, 5])


def test_a_size_that_was_told_before_a_cancel_does_not_count_after_it() -> None:
    life = served(1).tell(CancelRequested("enough"), *sized(4))
    assert life.states()[2:] == [NodeState.PARKED] * 3


def test_a_size_that_was_told_before_a_cancel_counts_although_it_is_told_again() -> None:
    life = served(1).tell(*sized(3), CancelRequested("enough"), *sized(3))
    assert life.states()[2:] == [NodeState.STOPPED] * 2 + [NodeState.PARKED]


def test_a_restart_is_not_put_down_to_a_node_that_was_scaled_away_in_the_same_step() -> None:
    """One that was ending anyway, and has lost its output."""
    life = begun(policy((2, 2, 1), max_restarts=1)).up(0, 1, 2, 3).end(2, 7)
    assert life.effects == (StopNodes(refs(3)),)
    lost = life.ended(3, 0, reason=Reason.OUTPUT_LOST, message="cannot write")
    life.tell(lost, life.ended(0, 2), *sized(1, group="g0"))
    assert life.status.cause is not None
    assert life.status.cause.rank == 0
