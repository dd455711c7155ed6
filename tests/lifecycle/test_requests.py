"""Requests of users, and recovery after the supervisor was lost."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import SignalNodes, StartNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    ResumeRequested,
    RunBroken,
    SupervisorLost,
    SuspendRequested,
)
from muster.lifecycle.policy import Action, Checkpoint, Success
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus
from support.run_driver import RunDriver, policy, refs, running, starting

N = NodeState
CANCEL = CancelRequested("enough")
SUSPEND = SuspendRequested("wait")
RESUME = ResumeRequested("continue")


# --- cancel


def test_cancel_stops_running_nodes_and_nodes_that_would_start() -> None:
    run = starting(policy((1, 1, None), (1, 1, None), in_order=True)).step(CANCEL)
    assert run.effects == (StopNodes(refs(0)),)
    assert (run.status.state, run.status.details) == (RunState.CANCELING, "enough")
    assert run.states() == [N.STARTING, N.STOPPED]
    run.end_stopping()
    assert (run.status.state, run.status.details) == (RunState.CANCELED, "enough")
    assert (run.status.exit_code, run.status.finished_at) == (None, run.now)


def test_cancel_does_not_save_a_checkpoint() -> None:
    run = running(policy((1, 1, None), checkpoint=Checkpoint(10, 30))).step(CANCEL)
    assert run.effects == (StopNodes(refs(0)),)


def test_a_second_cancel_changes_nothing() -> None:
    run = running(policy((1, 1, None))).step(CANCEL)
    before = run.status
    assert run.step(CANCEL, CancelRequested("again"), SUSPEND, RESUME).status is before


def test_the_first_reason_to_end_wins() -> None:
    run = running(policy((2, 1, None), success=Success((0,), any_replica=True))).end(0)
    run.step(CANCEL).end_stopping()
    assert run.status.state is RunState.SUCCEEDED


def test_nothing_restarts_in_a_run_that_is_canceled() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).end(0, 1)
    assert run.node(1).next_incarnation == 1
    run.step(CANCEL)
    assert run.effects == (), "it is stopping already"
    assert (run.node(1).next_incarnation, run.status.counts is None) == (None, False)
    assert run.states() == [N.STOPPED, N.READY]
    run.end_stopping()
    assert (run.status.state, run.states()) == (RunState.CANCELED, [N.STOPPED, N.STOPPED])


# --- suspend and resume


def test_suspend_keeps_only_succeeded_nodes() -> None:
    """JobSet: a Job that has succeeded is kept."""
    run = running(policy((2, 2, None), (1, 1, 0))).end(0).end(1).end(2).step(SUSPEND)
    assert run.effects == (StopNodes(refs(3, 4)),)
    assert run.status.state is RunState.IN_PROGRESS
    run.end_stopping()
    assert (run.status.state, run.status.details) == (RunState.SUSPENDED, "wait")
    assert run.states() == [N.SUCCEEDED, N.SUCCEEDED, N.PENDING, N.PENDING, N.PENDING]
    assert [node.incarnation for node in run.status.nodes] == [0, 0, 1, 1, 1]
    assert (run.status.last_incarnation, run.status.attempt) == (1, 0)
    assert run.status.finished_at is None and run.status.stopping is None
    assert run.notes("nodes")[-1]["why"] == "suspended"


def test_resume_starts_the_next_attempt() -> None:
    run = running(policy((2, 1, None))).end(0).step(SUSPEND).end_stopping().step(RESUME)
    assert run.effects == (StartNodes(1, refs(1, incarnation=1)),)
    assert (run.status.state, run.status.details) == (RunState.ACCEPTED, "continue")
    assert run.notes("resumed") == [{"why": "continue", "attempt": 1}]
    run.up(1)
    assert run.status.state is RunState.IN_PROGRESS
    assert run.status.started_at == 1002.0, "since the first attempt"
    assert run.status.attempt_started_at == run.status.running_since == run.now
    assert (run.status.attempt, run.status.resumes) == (1, 1)
    assert run.end(1).status.state is RunState.SUCCEEDED
    assert run.status.spent.run == 0


def test_a_run_submitted_suspended_resumes_with_its_first_attempt() -> None:
    run = RunDriver(policy((2, 1, None)), suspended=True).step(RESUME)
    assert (run.status.attempt, run.status.resumes) == (0, 0)


def test_a_run_can_be_submitted_suspended() -> None:
    run = RunDriver(policy((1, 1, None)), suspended=True).step(ControllerStarted()).tick(after=1000)
    assert (run.effects, run.status.state) == ((), RunState.SUSPENDED)
    run.step(RESUME)
    assert run.effects == (StartNodes(0, refs(0)),)
    assert run.status.attempt == 0, "no node has run"


def test_nodes_that_never_started_are_not_counted_as_restarted() -> None:
    run = starting(policy((1, 1, None), (1, 1, None), in_order=True)).step(SUSPEND).end_stopping()
    assert run.status.nodes == (NodeStatus(incarnation=1), NodeStatus())
    assert run.status.ran_before == 0


def test_suspend_saves_a_checkpoint_first() -> None:
    run = running(policy((1, 2, None), checkpoint=Checkpoint(10, 30))).step(SUSPEND)
    assert run.effects == (SignalNodes(refs(0, 1), 10),)
    assert wake_at(run.status) == run.now + 30
    assert run.end(0).status.state is RunState.IN_PROGRESS
    assert run.states() == [N.STOPPED, N.READY], "ended by the checkpoint signal, not by itself"
    assert run.tick(after=28.5).effects == ()
    assert run.tick(after=0.5).effects == (StopNodes(refs(1)),)
    assert run.end_stopping().states() == [N.PENDING, N.PENDING]


def test_only_nodes_that_are_not_stopping_can_save() -> None:
    shape = (2, 2, 1)
    run = running(policy(shape, checkpoint=Checkpoint(10, 30))).end(0, 1)
    assert run.stops() == [1]
    run.step(SUSPEND)
    assert run.effects == (SignalNodes(refs(2, 3), 10),)
    assert run.node(1).term_at is None


def test_nothing_restarts_in_a_run_that_is_suspended() -> None:
    save = Checkpoint(10, 30)
    run = running(policy((1, 2, None), max_restarts=1, checkpoint=save)).end(0, 1)
    run.step(SUSPEND)
    assert (run.effects, run.node(1).next_incarnation) == ((), None)
    run.end_stopping()
    assert (run.status.state, run.states()) == (RunState.SUSPENDED, [N.PENDING, N.PENDING])
    assert run.status.failures == ()


def test_a_run_that_is_being_suspended_can_be_canceled() -> None:
    run = running(policy((1, 2, None), checkpoint=Checkpoint(10, 30))).step(SUSPEND).step(CANCEL)
    assert run.effects == (StopNodes(refs(0, 1)),)
    assert run.status.state is RunState.CANCELING
    assert [node.term_at for node in run.status.nodes] == [None, None]
    assert run.end_stopping().status.state is RunState.CANCELED


def test_a_suspended_run_can_be_canceled() -> None:
    run = running(policy((2, 1, None))).end(0).step(SUSPEND).end_stopping().step(CANCEL)
    assert (run.effects, run.status.state) == ((), RunState.CANCELED)
    assert run.states() == [N.SUCCEEDED, N.STOPPED]


def test_a_second_suspend_changes_nothing() -> None:
    run = running(policy((1, 1, None))).step(SUSPEND)
    before = run.status
    assert run.step(SUSPEND, RESUME).status is before, "it is not suspended yet"
    before = run.end_stopping().status
    assert run.step(SUSPEND).status is before


def test_requests_are_handled_in_order() -> None:
    run = running(policy((1, 1, None))).step(SUSPEND).end_stopping().step(RESUME, SUSPEND)
    assert (run.status.state, run.status.attempt) == (RunState.SUSPENDED, 1)
    assert run.step(RESUME, CANCEL).status.state is RunState.CANCELED


def test_a_failure_in_the_step_of_a_suspend_is_dropped() -> None:
    """A failed node is restarted in any case when the run is resumed."""
    run = running(policy((1, 2, None)))
    run.step(run.ended(0, 1), SUSPEND).end_stopping()
    assert (run.status.state, run.status.failures) == (RunState.SUSPENDED, ())
    assert run.step(RESUME).starts() == [0, 1]


def test_success_in_the_step_of_a_suspend_is_found_on_resume() -> None:
    run = running(policy((1, 1, None)))
    run.step(run.ended(0), SUSPEND)
    assert (run.status.state, run.states()) == (RunState.SUSPENDED, [N.SUCCEEDED])
    assert run.step(RESUME).status.state is RunState.SUCCEEDED


# --- a lost supervisor


LOST: Any = [
    ("node", "started", "state"),
    [
        pytest.param(NodeStatus(N.READY, started_at=5.0), {0}, N.FAILED, id="ran"),
        pytest.param(NodeStatus(N.STARTING, since=5.0), {0}, N.FAILED, id="had started"),
        pytest.param(NodeStatus(N.STARTING, since=5.0), None, N.FAILED, id="unknown"),
        pytest.param(NodeStatus(N.STARTING, since=5.0), {1}, N.STARTING, id="never started"),
        pytest.param(NodeStatus(N.RUNNING, since=5.0), {1}, N.FAILED, id="recorded as running"),
        pytest.param(
            NodeStatus(N.STARTING, kill_at=9e9), {1}, N.STOPPED, id="stopping, not started"
        ),
        pytest.param(NodeStatus(N.READY, kill_at=9e9), {0}, N.STOPPED, id="stopping"),
        pytest.param(NodeStatus(N.SUCCEEDED), {0}, N.SUCCEEDED, id="had ended"),
        pytest.param(NodeStatus(N.STOPPED), {1}, N.STOPPED, id="stopped"),
    ],
]


@pytest.mark.parametrize(*LOST)
def test_started_nodes_are_lost_with_the_supervisor(
    node: NodeStatus, started: set[int] | None, state: NodeState
) -> None:
    run = RunDriver(policy((2, 1, 0)))
    run.status = type(run.status)((node, NodeStatus(N.SUCCEEDED)), state=RunState.IN_PROGRESS)
    run.step(SupervisorLost("killed", None if started is None else frozenset(started)))
    assert run.states()[0] is state
    assert run.notes("supervisor_lost") == [{"why": "killed"}]
    assert [note["rank"] for note in run.notes("failure")] == [0] * (state is N.FAILED)
    if state is N.STARTING:
        assert run.effects == (StartNodes(0, refs(0)),)
        assert run.node(0).since == run.now


def test_nodes_that_never_started_wait_for_their_dependencies_again() -> None:
    """The group that it depends on was lost with the supervisor, and must be ready first."""
    shapes: Any = ((1, 1, None), (1, 1, None))
    options: Any = {"max_restarts": 1, "action": Action.RESTART_GROUP}
    run = starting(policy(*shapes, in_order=True, **options)).up(0)
    run.step(SupervisorLost("killed", frozenset({0})))
    assert run.starts() == [0]
    assert run.node(1) == NodeStatus()


def test_a_run_is_restarted_after_its_supervisor_was_lost() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).step(SupervisorLost("killed"))
    assert run.effects == (StartNodes(1, refs(0, 1, incarnation=1)),)
    assert run.status.cause is not None and run.status.cause.message == "killed"


def test_a_pending_restart_is_done_after_the_supervisor_was_lost() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).end(0, 1).step(SupervisorLost("killed"))
    assert run.effects == (StartNodes(1, refs(0, 1, incarnation=1)),)
    assert run.status.spent.run == 1


def test_a_canceled_run_ends_when_its_supervisor_is_lost() -> None:
    run = running(policy((1, 2, None))).step(CANCEL).step(SupervisorLost("killed"))
    assert (run.status.state, run.status.details) == (RunState.CANCELED, "enough")


# --- a run that cannot continue


def test_a_broken_run_fails_under_any_policy() -> None:
    run = starting(policy((1, 3, None, {"retries": 9}), max_restarts=9)).up(0, 1).end(0)
    run.step(RunBroken("its folder was deleted"))
    assert (run.status.state, run.status.details) == (RunState.FAILED, "its folder was deleted")
    assert run.status.broken
    assert run.states() == [N.SUCCEEDED, N.STOPPED, N.STOPPED]
    assert [node.finished_at for node in run.status.nodes[1:]] == [run.now, None]
    assert run.effects == ()
    assert run.notes("nodes")[-1]["why"] == "its folder was deleted"


@pytest.mark.parametrize(
    ("ending", "state", "details"),
    [
        (CANCEL, RunState.CANCELED, "enough"),
        (SUSPEND, RunState.FAILED, "broken"),
    ],
)
def test_a_cancel_is_final(ending: Any, state: RunState, details: str) -> None:
    run = running(policy((1, 2, None))).step(ending).step(RunBroken("broken"))
    assert (run.status.state, run.status.details) == (state, details)


def test_an_earlier_failure_remains_the_cause_of_a_broken_run() -> None:
    run = running(policy((1, 2, None))).end(0, 3).step(RunBroken("broken"))
    assert (run.status.state, run.status.exit_code) == (RunState.FAILED, 3)
    assert not run.status.broken
    assert len(run.notes("stopping")) == 1, "the reason is logged once"


def test_a_broken_run_does_not_succeed() -> None:
    run = running(policy((1, 1, None), (1, 1, 0))).end(0).step(RunBroken("broken"))
    assert (run.status.state, run.status.details) == (RunState.FAILED, "broken")


def test_a_broken_run_restarts_no_nodes() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).end(0, 1).step(RunBroken("broken"))
    assert run.states() == [N.STOPPED, N.STOPPED]
    assert run.node(1).next_incarnation is None
    assert run.status.counts is not None and run.status.counts.awaited == {}


def test_a_suspended_run_can_break() -> None:
    run = running(policy((1, 1, None))).step(SUSPEND).end_stopping().step(RunBroken("broken"))
    assert (run.status.state, run.status.details) == (RunState.FAILED, "broken")
