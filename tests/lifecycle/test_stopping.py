"""Stopping: checkpoint signal, SIGTERM, grace period, SIGKILL, and the final state."""

from __future__ import annotations

import pytest

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import KillNodes, StopNodes
from muster.lifecycle.events import CancelRequested, Event, SuspendRequested
from muster.lifecycle.policy import Backoff, Checkpoint, Success
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from support.run_driver import policy, refs, running, starting

N = NodeState


def test_a_pending_restart_of_a_node_ends_when_its_replica_fails() -> None:
    """The node was too slow and would be retried; then another node of the replica fails."""
    run = starting(policy((2, 2, 1, {"retries": 1, "ready_timeout": 10}))).up(1, 2, 3)
    run.tick(after=10)
    assert run.node(0).next_incarnation == 1
    run.end(1, 1)
    assert run.node(0).next_incarnation is None
    run.end_stopping()
    assert run.states() == [N.FAILED, N.FAILED, N.READY, N.READY]


@pytest.mark.parametrize("grace", [0.0, 7.0])
def test_a_node_that_does_not_stop_is_killed_once(grace: float) -> None:
    run = running(policy((1, 3, None), grace_period=grace)).end(0, 1)
    assert run.effects == (StopNodes(refs(1, 2)),)
    assert wake_at(run.status) == run.now + grace
    run.end(1, 143, signal=15, after=grace / 2)
    if grace:
        assert run.effects == ()
        run.tick(after=grace / 2)
    assert run.effects == (KillNodes(refs(2)),)
    assert run.tick(after=100).effects == ()
    assert wake_at(run.status) is None, "nothing more can be done"
    assert run.end(2, 137, signal=9).states() == [N.FAILED, N.STOPPED, N.STOPPED]


def test_each_node_has_its_own_grace_period() -> None:
    run = running(policy((3, 2, 1))).end(0, 1).end(2, 1, after=4)
    assert wake_at(run.status) == run.now + 6
    assert run.tick(after=6).effects == (KillNodes(refs(1)),)
    assert wake_at(run.status) == run.now + 4
    assert run.tick(after=4).effects == (KillNodes(refs(3)),)


def test_an_early_wakeup_does_not_end_a_grace_period() -> None:
    """An event for something else arrives."""
    run = running(policy((2, 2, 1, {"timeout": 15}))).end(0, 1, after=5)
    assert run.tick(after=9).effects == (StopNodes(refs(2, 3)),)
    assert run.tick(after=1).effects == (KillNodes(refs(1)),)


@pytest.mark.parametrize(
    ("code", "signal", "state"),
    [
        (143, 15, N.STOPPED),
        (137, 9, N.STOPPED),
        (1, 0, N.STOPPED),
        (None, 0, N.STOPPED),
        (0, 0, N.SUCCEEDED),
    ],
)
def test_final_state_of_a_stopped_node(code: int | None, signal: int, state: NodeState) -> None:
    run = running(policy((1, 1, None))).step(CancelRequested("enough"))
    run.end(0, code, signal=signal)
    assert run.states() == [state]
    assert (run.node(0).exit_code, run.node(0).signal) == (code, signal)
    assert run.status.state is RunState.CANCELED


def test_a_program_that_ends_while_the_run_is_suspended_runs_again() -> None:
    run = running(policy((1, 1, None))).step(SuspendRequested("wait")).end(0, 0)
    assert run.states() == [N.PENDING]


def test_a_run_that_has_succeeded_fails_if_its_output_is_lost() -> None:
    """The output of a node could not be copied back while the run ended."""
    run = running(policy((2, 1, None), success=Success((0,), any_replica=True))).end(0)
    run.end(1, 1, reason=Reason.OUTPUT_LOST, message="no such bucket")
    assert (run.status.state, run.status.exit_code) == (RunState.FAILED, 1)
    expected = (
        "the files that node-1 (group g0, rank 1) wrote could not be copied back:\nno such bucket"
    )
    assert run.status.details == expected
    assert run.status.cause is not None and run.status.cause.rank == 1
    assert run.states() == [N.SUCCEEDED, N.FAILED]


def test_a_run_that_has_succeeded_does_not_fail_otherwise() -> None:
    run = running(policy((2, 1, None), success=Success((0,), any_replica=True))).end(0)
    run.end(1, 5)
    assert (run.status.state, run.status.exit_code) == (RunState.SUCCEEDED, 0)
    assert run.states() == [N.SUCCEEDED, N.STOPPED]


def test_a_canceled_run_that_lost_output_is_canceled() -> None:
    run = running(policy((1, 1, None))).step(CancelRequested("enough"))
    run.end(0, 1, reason=Reason.OUTPUT_LOST)
    assert (run.status.state, run.status.exit_code) == (RunState.CANCELED, None)
    assert run.states() == [N.FAILED]


def test_a_node_waiting_for_its_restart_is_not_started() -> None:
    save, slow = Checkpoint(10, 30), Backoff(initial=90)
    run = running(
        policy((1, 2, None), max_restarts=2, max_runtime=60, checkpoint=save, backoff=slow)
    )
    run.end(0, 1).end_stopping().up(0, 1).end(0, 1, after=54).tick(after=3)
    assert (run.status.state, run.states()) == (RunState.CANCELING, [N.PENDING, N.READY])
    assert run.node(0).not_before is not None and run.node(1).not_before is None
    run.end_stopping()
    assert (run.status.state, run.states()) == (RunState.CANCELED, [N.STOPPED, N.STOPPED])
    assert run.node(0).not_before is None


def test_a_stopped_node_has_no_restart_delay() -> None:
    run = running(policy((1, 2, None), max_restarts=2, backoff=Backoff(initial=90)))
    run.end(0, 1).end_stopping().up(0, 1).end(0, 1)
    assert run.node(1).not_before is not None
    run.step(CancelRequested("enough"))
    assert [node.not_before for node in run.status.nodes] == [None, None]
    assert run.notes("nodes")[-1]["why"] == "enough"


def test_the_log_has_the_final_state_and_the_reason() -> None:
    run = running(policy((1, 2, None))).step(CancelRequested("enough"))
    assert run.notes("stopping") == [{"towards": "CANCELED", "why": "enough"}]
    assert run.notes("run")[-1] == {"state": "CANCELING", "details": "enough"}


def test_service_nodes_stop_when_the_others_have_saved() -> None:
    save = Checkpoint(10, 300)
    run = running(policy((1, 2, None), (1, 2, 0, {"serves": True}), checkpoint=save))
    run.step(SuspendRequested("a pause"))
    assert run.stops() == []
    assert run.end(0).stops() == [], "rank 1 may need them"
    assert run.end(1).stops() == [2, 3]
    assert run.end_stopping().status.state is RunState.SUSPENDED


def test_service_nodes_are_stopped_once() -> None:
    save = Checkpoint(10, 300)
    run = running(policy((1, 1, None), (1, 2, 0, {"serves": True}), checkpoint=save))
    run.step(SuspendRequested("a pause")).end(0)
    assert run.tick().stops() == []
    assert run.end(1, 143, signal=15).stops() == []


@pytest.mark.parametrize("again", [CancelRequested("enough"), SuspendRequested("wait")])
def test_a_second_stop_does_not_extend_the_grace_period(again: Event) -> None:
    run = running(policy((1, 2, None), max_restarts=1, grace_period=10)).end(0, 1)
    kill_at = run.node(1).kill_at
    run.step(again, after=6)
    assert (run.node(1).kill_at, run.effects) == (kill_at, ())
    assert run.tick(after=4).effects == (KillNodes(refs(1)),)
