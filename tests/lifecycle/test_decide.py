"""Whole lives of runs, told as events, with what must follow."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import KillNodes, StartNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    NodeEnded,
    NodeReady,
    NodeStarted,
    RunBegan,
    SupervisorLost,
    Tick,
)
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from support.life import Life, begun, policy, refs


@pytest.mark.shows(
    "distributed-jobs/capability-parallel", "distributed-jobs/parallel-or-in-sequence"
)
def test_all_groups_start_together_by_default() -> None:
    life = begun(policy((1, 2, None), (1, 1, None)))
    assert life.effects == (StartNodes(0, refs(0, 1, 2)),)
    assert life.status.state is RunState.ACCEPTED


def test_run_is_in_progress_with_its_first_node() -> None:
    life = begun(policy((1, 2, None))).tell(NodeStarted(1))
    assert life.status.state is RunState.IN_PROGRESS
    assert life.status.started_at == life.now
    assert life.states() == [NodeState.STARTING, NodeState.RUNNING]


@pytest.mark.shows("distributed-jobs/capability-sequential")
def test_in_order_waits_for_the_whole_group_to_be_ready() -> None:
    life = begun(policy((1, 2, None), (1, 1, None), in_order=True))
    assert life.effects == (StartNodes(0, refs(0, 1)),)
    assert life.tell(NodeStarted(0), NodeStarted(1), NodeReady(0)).effects == ()
    assert life.tell(NodeReady(1)).effects == (StartNodes(0, refs(2)),)


def test_in_order_goes_on_after_a_group_that_has_ended() -> None:
    life = begun(policy((1, 1, None), (1, 1, None), in_order=True)).tell(NodeStarted(0))
    assert life.end(0).effects == (StartNodes(0, refs(1)),)


@pytest.mark.shows("jobs/ends-with-process")
def test_run_succeeds_when_every_node_has() -> None:
    life = begun(policy((1, 2, None))).up(0, 1).end(0)
    assert life.status.state is RunState.IN_PROGRESS
    life.end(1)
    assert life.status.state is RunState.SUCCEEDED
    assert (life.status.exit_code, life.status.finished_at) == (0, life.now)


def test_first_failure_ends_the_gang_and_names_the_cause() -> None:
    life = begun(policy((1, 3, None), (1, 1, None))).up(0, 1, 2, 3)
    life.end(2, 21, message="ValueError: boom")
    assert life.effects == (StopNodes(refs(0, 1, 3)),)
    assert life.status.state is RunState.IN_PROGRESS
    life.tell(*(NodeEnded(r, 143, signal=15) for r in (0, 1, 3)))
    assert life.status.state is RunState.FAILED
    assert life.status.exit_code == 21
    expected = "node-2 (group g0, rank 2) failed with exit code 21:\nValueError: boom"
    assert life.status.details == expected
    assert life.states()[2] is NodeState.FAILED
    assert life.states()[3] is NodeState.STOPPED


def test_consequences_do_not_replace_the_cause() -> None:
    life = begun(policy((1, 3, None))).up(0, 1, 2)
    life.tell(NodeEnded(1, 21), NodeEnded(0, 1, message="connection reset"))
    assert life.status.cause is not None
    assert (life.status.cause.rank, life.status.cause.exit_code) == (1, 21)


@pytest.mark.parametrize(
    ("event", "details"),
    [
        (NodeEnded(0, 3), "node-0 (group g0, rank 0) failed with exit code 3"),
        (
            NodeEnded(0, 137, signal=9),
            "node-0 (group g0, rank 0) failed with exit code 137 (signal 9)",
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
def test_details_say_what_happened(event: NodeEnded, details: str) -> None:
    life = begun(policy((1, 1, None))).up(0).tell(event)
    assert life.status.state is RunState.FAILED
    assert life.status.details == details


def test_minimum_of_successful_replicas_tolerates_the_rest() -> None:
    life = begun(policy((3, 1, 2))).up(0, 1, 2).end(0, 1)
    assert life.effects == ()
    life.end(1).end(2)
    assert life.status.state is RunState.SUCCEEDED
    assert life.status.exit_code == 0


def test_one_failure_too_many_fails_the_group() -> None:
    life = begun(policy((3, 1, 2))).up(0, 1, 2).end(0, 1).end(1, 2)
    assert life.effects == (StopNodes(refs(2)),)
    life.end(2, 143, signal=15)
    assert life.status.state is RunState.FAILED
    assert life.status.exit_code == 2, "the first one was not, for its group"


def test_a_tolerated_replica_fails_as_one() -> None:
    life = begun(policy((2, 2, 1))).up(0, 1, 2, 3).end(0, 1)
    assert life.effects == (StopNodes(refs(1)),)
    assert life.tell(Tick()).effects == (), "told once"
    assert life.tell(Tick(), after=10).effects == (KillNodes(refs(1)),)
    life.end(1, 137, signal=9).end(2).end(3)
    assert life.status.state is RunState.SUCCEEDED


def test_group_with_minimum_zero_serves_the_others() -> None:
    life = begun(policy((2, 1, None), (1, 1, 0))).up(0, 1, 2).end(0).end(1)
    assert life.effects == (StopNodes(refs(2)),)
    life.end(2, 143, signal=15)
    assert life.status.state is RunState.SUCCEEDED


def test_run_of_minimum_zero_waits_for_all() -> None:
    life = begun(policy((2, 1, 0))).up(0, 1).end(0, 1)
    assert life.status.state is RunState.IN_PROGRESS
    assert life.end(1).status.state is RunState.SUCCEEDED


@pytest.mark.shows("distributed-jobs/capability-cancel")
def test_cancel_stops_then_kills_and_is_final() -> None:
    life = begun(policy((1, 2, None))).up(0, 1).tell(CancelRequested("enough"))
    assert life.status.state is RunState.CANCELING
    assert life.effects == (StopNodes(refs(0, 1)),)
    assert wake_at(life.status) == life.now + 10
    assert life.tell(Tick(), after=10).effects == (KillNodes(refs(0, 1)),)
    assert wake_at(life.status) is None
    assert life.tell(Tick(), after=10).effects == (), "killed once"
    life.tell(NodeEnded(0, 137, signal=9), NodeEnded(1, 0))
    assert (life.status.state, life.status.details) == (RunState.CANCELED, "enough")
    assert life.status.exit_code is None
    before = life.status
    assert life.tell(NodeEnded(0, 1), CancelRequested("again")).status is before


def test_cancel_before_anything_started_ends_at_once() -> None:
    life = Life(policy((1, 2, None))).tell(RunBegan(), CancelRequested("never mind"))
    assert life.status.state is RunState.CANCELED
    assert life.effects == ()
    assert life.states() == [NodeState.STOPPED] * 2


def test_cancel_while_later_groups_wait() -> None:
    life = begun(policy((1, 1, None), (1, 1, None), in_order=True)).tell(NodeStarted(0))
    life.tell(CancelRequested("stop"))
    assert life.effects == (StopNodes(refs(0)),)
    assert life.end(0, 143, signal=15).status.state is RunState.CANCELED


def test_cancel_of_a_failing_run_leaves_it_failed() -> None:
    life = begun(policy((1, 2, None))).up(0, 1).end(0, 5).tell(CancelRequested("late"))
    assert life.end(1, 143, signal=15).status.state is RunState.FAILED


def test_maximum_runtime_cancels() -> None:
    life = Life(replace(policy((1, 1, None)), max_runtime=60)).tell(RunBegan())
    assert wake_at(life.status) is None, "the clock starts with the first node"
    life.up(0)
    assert wake_at(life.status) == life.now + 60
    assert life.tell(Tick(), after=59.5).effects == ()
    assert life.tell(Tick(), after=0.5).effects == (StopNodes(refs(0)),)
    life.end(0, 143, signal=15)
    assert life.status.state is RunState.CANCELED
    assert life.status.details == "maximum runtime of 60 s exceeded"


def test_lost_supervisor_fails_the_run() -> None:
    life = begun(policy((1, 2, None))).up(0, 1).end(0).tell(SupervisorLost("killed"))
    assert (life.status.state, life.status.details) == (
        RunState.FAILED,
        "node-1 (group g0, rank 1) was lost:\nkilled",
    )
    assert life.states() == [NodeState.SUCCEEDED, NodeState.FAILED]


def test_lost_supervisor_of_a_canceling_run_leaves_it_canceled() -> None:
    life = begun(policy((1, 1, None))).up(0).tell(CancelRequested("enough"))
    life.tell(SupervisorLost("killed"))
    assert (life.status.state, life.status.details) == (RunState.CANCELED, "enough")
