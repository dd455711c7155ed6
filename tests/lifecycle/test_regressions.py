"""Defects that the simulation has found."""

from __future__ import annotations

import pytest

from muster.lifecycle import outstanding
from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import SignalNodes, StartNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    NodeStarted,
    ScaleRequested,
    SupervisorLost,
    SuspendRequested,
    Tick,
)
from muster.lifecycle.policy import Backoff, Checkpoint, Success
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from support.run_driver import RunDriver, policy, refs, running, starting


def test_nodes_that_never_started_are_not_awaited() -> None:
    run = starting(policy((1, 3, None))).step(NodeStarted(1))
    run.step(SupervisorLost("killed", frozenset({1})))
    assert run.status.state is RunState.FAILED, "nodes 0 and 2 need not be stopped"
    assert run.states() == [NodeState.STOPPED, NodeState.FAILED, NodeState.STOPPED]


def test_a_node_that_never_started_is_started_by_the_next_supervisor() -> None:
    run = starting(policy((1, 3, None))).step(SupervisorLost("killed", frozenset()))
    assert run.states() == [NodeState.STARTING] * 3
    again = outstanding.effects(run.policy, run.status)
    assert again == (StartNodes(0, refs(0, 1, 2)),)


def test_a_restarted_node_keeps_the_deadline_of_its_replica() -> None:
    """The timeout of its replica started before it did."""
    node = (1, 2, None, {"retries": 1, "timeout": 30.0})
    run = starting(policy(node)).up(0, 1)
    since = run.node(0).since
    assert since is not None
    run.end(1, 7)
    assert run.starts() == [1]
    assert wake_at(run.status) == since + 30


def test_the_attempt_timeout_continues_while_nodes_wait_to_restart() -> None:
    rules = {"max_restarts": 2, "action": "restart_node", "attempt_timeout": 30.0}
    run = starting(policy((1, 1, None), **rules, backoff=Backoff(initial=50.0))).up(0)
    since = run.status.attempt_started_at
    assert since is not None
    run.end(0, 7).up(0).end(0, 7)
    assert run.starts() == [], "it waits"
    assert run.step(Tick(), after=50).starts() == [0]
    assert wake_at(run.status) == since + 30, "due at once"


def test_the_next_supervisor_restarts_the_ready_timeout_of_starting_nodes() -> None:
    run = starting(policy((1, 2, None, {"ready_timeout": 60.0}))).step(NodeStarted(0))
    run.step(ControllerStarted(), after=100)
    assert run.node(1).since == run.now, "it is launched again"
    assert run.node(0).since != run.now


SUSPEND = SuspendRequested("wait")


def finishing() -> RunDriver:
    """A run that has succeeded, whose other nodes may finish."""
    rules = policy(
        (1, 1, None),
        (1, 3, None),
        success=Success((0,), wait=True),
        checkpoint=Checkpoint(10, 30),
    )
    return running(rules).end(0)


def test_a_failure_reported_with_a_suspend_leaves_the_others_time_to_save() -> None:
    run = finishing()
    run.step(run.ended(1, 7), SUSPEND)
    assert run.effects == (SignalNodes(refs(2, 3), 10),)
    assert [run.node(rank).term_at for rank in (2, 3)] == [run.now + 30] * 2
    assert wake_at(run.status) == run.now + 30
    assert run.tick(after=30).effects == (StopNodes(refs(2, 3)),)
    assert run.end_stopping().status.state is RunState.SUSPENDED


def test_a_failure_before_a_suspend_still_ends_its_replica() -> None:
    run = finishing().end(1, 7)
    assert run.effects == (StopNodes(refs(2, 3)),)
    assert run.step(SUSPEND).effects == (), "they are stopping already"


def test_a_failure_reported_with_a_cancel_stops_each_node_once() -> None:
    run = finishing()
    run.step(run.ended(1, 7), CancelRequested("enough"))
    assert run.effects == (StopNodes(refs(2, 3)),)
    assert run.end_stopping().status.state is RunState.CANCELED


def sized(*sizes: int, group: str = "g1") -> list[ScaleRequested]:
    return [ScaleRequested(group, size, "by user") for size in sizes]


def served(desired: int) -> RunDriver:
    """One required node, and some of four nodes that serve it."""
    run = starting(policy((1, 1, None), (4, 1, 0, {"desired": desired})))
    return run.up(*run.starts())


@pytest.mark.parametrize("desired", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("sizes", [(1, 4), (4, 1), (0, 3), (1, 3, 3), (4, 0, 2), (0, 4, 0, 4)])
def test_of_several_sizes_requested_at_once_only_the_last_counts(
    desired: int, sizes: tuple[int, ...]
) -> None:
    once = served(desired).step(*sized(sizes[-1]))
    run = served(desired).step(*sized(*sizes))
    assert (run.status, run.effects, run.entries) == (once.status, once.effects, once.entries)


def test_the_last_requested_size_of_each_group_counts() -> None:
    shape = (3, 1, 0, {"desired": 1})
    run = starting(policy((1, 1, None), shape, shape)).up(0, 1, 4)
    run.step(*sized(0), *sized(3, group="g2"), *sized(2), *sized(2, group="g2"))
    assert (run.stops(), run.starts()) == ([], [2, 5])


def test_a_size_requested_before_a_cancel_is_not_applied_after_it() -> None:
    run = served(1).step(CancelRequested("enough"), *sized(4))
    assert run.states()[2:] == [NodeState.SCALED_DOWN] * 3


def test_a_size_requested_before_and_after_a_cancel_is_applied_once() -> None:
    run = served(1).step(*sized(3), CancelRequested("enough"), *sized(3))
    assert run.states()[2:] == [NodeState.STOPPED] * 2 + [NodeState.SCALED_DOWN]


def test_a_restart_is_not_blamed_on_a_node_scaled_down_in_the_same_step() -> None:
    """A node that was stopping, and has lost its output."""
    run = starting(policy((2, 2, 1), max_restarts=1)).up(0, 1, 2, 3).end(2, 7)
    assert run.effects == (StopNodes(refs(3)),)
    lost = run.ended(3, 0, reason=Reason.OUTPUT_LOST, message="cannot write")
    run.step(lost, run.ended(0, 2), *sized(1, group="g0"))
    assert run.status.cause is not None
    assert run.status.cause.rank == 0
