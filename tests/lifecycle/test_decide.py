"""Runs from start to end: events, and the effects and states that follow."""

from __future__ import annotations

import pytest

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import KillNodes, StartNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    NodeEnded,
    NodeReady,
    NodeStarted,
    SupervisorLost,
    Tick,
)
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from support.run_driver import RunDriver, policy, refs, starting


@pytest.mark.shows(
    "distributed-jobs/capability-parallel", "distributed-jobs/parallel-or-in-sequence"
)
def test_all_groups_start_together_by_default() -> None:
    run = starting(policy((1, 2, None), (1, 1, None)))
    assert run.effects == (StartNodes(0, refs(0, 1, 2)),)
    assert run.status.state is RunState.ACCEPTED


@pytest.mark.shows("distributed-jobs/capability-sequential")
def test_in_order_waits_for_the_whole_group_to_be_ready() -> None:
    run = starting(policy((1, 2, None), (1, 1, None), in_order=True))
    assert run.effects == (StartNodes(0, refs(0, 1)),)
    assert run.step(NodeStarted(0), NodeStarted(1), NodeReady(0)).effects == ()
    assert run.step(NodeReady(1)).effects == (StartNodes(0, refs(2)),)


def test_in_order_continues_after_a_group_that_has_ended() -> None:
    run = starting(policy((1, 1, None), (1, 1, None), in_order=True)).step(NodeStarted(0))
    assert run.end(0).effects == (StartNodes(0, refs(1)),)


@pytest.mark.shows("jobs/ends-with-process")
def test_run_succeeds_when_every_node_has_succeeded() -> None:
    run = starting(policy((1, 2, None))).up(0, 1).end(0)
    assert run.status.state is RunState.IN_PROGRESS
    run.end(1)
    assert run.status.state is RunState.SUCCEEDED
    assert (run.status.exit_code, run.status.finished_at) == (0, run.now)


def test_first_failure_stops_all_nodes_and_is_the_cause() -> None:
    run = starting(policy((1, 3, None), (1, 1, None))).up(0, 1, 2, 3)
    run.end(2, 21, message="ValueError: boom")
    assert run.effects == (StopNodes(refs(0, 1, 3)),)
    assert run.status.state is RunState.IN_PROGRESS
    run.step(*(NodeEnded(r, 143, signal=15) for r in (0, 1, 3)))
    assert run.status.state is RunState.FAILED
    assert run.status.exit_code == 21
    expected = "node-2 (group g0, rank 2) failed with exit code 21:\nValueError: boom"
    assert run.status.details == expected
    assert run.states()[2] is NodeState.FAILED
    assert run.states()[3] is NodeState.STOPPED


def test_consequences_do_not_replace_the_cause() -> None:
    run = starting(policy((1, 3, None))).up(0, 1, 2)
    run.step(NodeEnded(1, 21), NodeEnded(0, 1, message="connection reset"))
    assert run.status.cause is not None
    assert (run.status.cause.rank, run.status.cause.exit_code) == (1, 21)


@pytest.mark.parametrize(
    ("event", "details"),
    [
        (NodeEnded(0, 3), "node-0 (group g0, rank 0) failed with exit code 3"),
        (
            NodeEnded(0, 137, signal=9),
            "node-0 (group g0, rank 0) failed with exit code 137 (signal 9, SIGKILL)",
        ),
        (
            NodeEnded(0, 137, signal=9, reason=Reason.OUT_OF_MEMORY),
            "node-0 (group g0, rank 0) ran out of memory and was ended, exit code 137",
        ),
        (
            NodeEnded(0, None, reason=Reason.NOT_STARTED, message="no such mount"),
            "node-0 (group g0, rank 0) could not be started:\nno such mount",
        ),
        (
            NodeEnded(0, 137, signal=9, reason=Reason.NODE_LOST),
            "node-0 (group g0, rank 0) was lost",
        ),
        (
            NodeEnded(0, None, reason=Reason.STARTUP_TIMEOUT, message="port 80"),
            "node-0 (group g0, rank 0) did not become ready:\nport 80",
        ),
    ],
)
def test_details_describe_the_failure(event: NodeEnded, details: str) -> None:
    run = starting(policy((1, 1, None))).up(0).step(event)
    assert run.status.state is RunState.FAILED
    assert run.status.details == details


def test_minimum_of_successful_replicas_tolerates_the_rest() -> None:
    run = starting(policy((3, 1, 2))).up(0, 1, 2).end(0, 1)
    assert run.effects == ()
    run.end(1).end(2)
    assert run.status.state is RunState.SUCCEEDED
    assert run.status.exit_code == 0


def test_one_failure_too_many_fails_the_group() -> None:
    run = starting(policy((3, 1, 2))).up(0, 1, 2).end(0, 1).end(1, 2)
    assert run.effects == (StopNodes(refs(2)),)
    run.end(2, 143, signal=15)
    assert run.status.state is RunState.FAILED
    assert run.status.exit_code == 2, "the first failure was tolerated"


def test_a_tolerated_replica_fails_as_one() -> None:
    run = starting(policy((2, 2, 1))).up(0, 1, 2, 3).end(0, 1)
    assert run.effects == (StopNodes(refs(1)),)
    assert run.step(Tick()).effects == (), "stopped once"
    assert run.step(Tick(), after=10).effects == (KillNodes(refs(1)),)
    run.end(1, 137, signal=9).end(2).end(3)
    assert run.status.state is RunState.SUCCEEDED


def test_group_with_minimum_zero_serves_the_others() -> None:
    run = starting(policy((2, 1, None), (1, 1, 0))).up(0, 1, 2).end(0).end(1)
    assert run.effects == (StopNodes(refs(2)),)
    run.end(2, 143, signal=15)
    assert run.status.state is RunState.SUCCEEDED


def test_run_of_minimum_zero_waits_for_all() -> None:
    run = starting(policy((2, 1, 0))).up(0, 1).end(0, 1)
    assert run.status.state is RunState.IN_PROGRESS
    assert run.end(1).status.state is RunState.SUCCEEDED


@pytest.mark.shows("distributed-jobs/capability-cancel")
def test_cancel_stops_then_kills_and_is_final() -> None:
    run = starting(policy((1, 2, None))).up(0, 1).step(CancelRequested("enough"))
    assert run.status.state is RunState.CANCELING
    assert run.effects == (StopNodes(refs(0, 1)),)
    assert wake_at(run.status) == run.now + 10
    assert run.step(Tick(), after=10).effects == (KillNodes(refs(0, 1)),)
    assert wake_at(run.status) is None
    assert run.step(Tick(), after=10).effects == (), "killed once"
    run.step(NodeEnded(0, 137, signal=9), NodeEnded(1, 0))
    assert (run.status.state, run.status.details) == (RunState.CANCELED, "enough")
    assert run.status.exit_code is None
    before = run.status
    assert run.step(NodeEnded(0, 1), CancelRequested("again")).status is before


def test_cancel_before_anything_started_ends_at_once() -> None:
    run = RunDriver(policy((1, 2, None))).step(ControllerStarted(), CancelRequested("never mind"))
    assert run.status.state is RunState.CANCELED
    assert run.effects == ()
    assert run.states() == [NodeState.STOPPED] * 2


def test_cancel_while_later_groups_wait() -> None:
    run = starting(policy((1, 1, None), (1, 1, None), in_order=True)).step(NodeStarted(0))
    run.step(CancelRequested("stop"))
    assert run.effects == (StopNodes(refs(0)),)
    assert run.end(0, 143, signal=15).status.state is RunState.CANCELED


def test_cancel_of_a_failing_run_leaves_it_failed() -> None:
    run = starting(policy((1, 2, None))).up(0, 1).end(0, 5).step(CancelRequested("late"))
    assert run.end(1, 143, signal=15).status.state is RunState.FAILED


def test_lost_supervisor_fails_the_run() -> None:
    run = starting(policy((1, 2, None))).up(0, 1).end(0).step(SupervisorLost("killed"))
    assert (run.status.state, run.status.details) == (
        RunState.FAILED,
        "node-1 (group g0, rank 1) was lost:\nkilled",
    )
    assert run.states() == [NodeState.SUCCEEDED, NodeState.FAILED]


def test_lost_supervisor_of_a_canceling_run_leaves_it_canceled() -> None:
    run = starting(policy((1, 1, None))).up(0).step(CancelRequested("enough"))
    run.step(SupervisorLost("killed"))
    assert (run.status.state, run.status.details) == (RunState.CANCELED, "enough")
