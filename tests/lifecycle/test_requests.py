"""What people ask of a run, and what is left when its supervisor is lost."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.decide import wake_at
from muster.lifecycle.effects import SignalNodes, StartNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    ResumeRequested,
    RunBegan,
    RunBroken,
    SupervisorLost,
    SuspendRequested,
)
from muster.lifecycle.policy import Action, Checkpoint, Success
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus
from support.life import Life, begun, policy, refs, running

N = NodeState
CANCEL = CancelRequested("enough")
SUSPEND = SuspendRequested("wait")
RESUME = ResumeRequested("go on")


# --- cancel


def test_cancel_ends_what_runs_and_what_would() -> None:
    life = begun(policy((1, 1, None), (1, 1, None), in_order=True)).tell(CANCEL)
    assert life.effects == (StopNodes(refs(0)),)
    assert (life.status.state, life.status.details) == (RunState.CANCELING, "enough")
    assert life.states() == [N.STARTING, N.STOPPED]
    life.obey()
    assert (life.status.state, life.status.details) == (RunState.CANCELED, "enough")
    assert (life.status.exit_code, life.status.finished_at) == (None, life.now)


def test_cancel_needs_no_saving() -> None:
    life = running(policy((1, 1, None), checkpoint=Checkpoint(10, 30))).tell(CANCEL)
    assert life.effects == (StopNodes(refs(0)),)


def test_canceled_once_is_canceled() -> None:
    life = running(policy((1, 1, None))).tell(CANCEL)
    before = life.status
    assert life.tell(CANCEL, CancelRequested("again"), SUSPEND, RESUME).status is before


def test_the_first_reason_to_end_wins() -> None:
    life = running(policy((2, 1, None), success=Success((0,), any_replica=True))).end(0)
    life.tell(CANCEL).obey()
    assert life.status.state is RunState.SUCCEEDED


def test_nothing_restarts_in_a_run_that_is_canceled() -> None:
    life = running(policy((1, 2, None), max_restarts=1)).end(0, 1)
    assert life.node(1).again == 1
    life.tell(CANCEL)
    assert life.effects == (), "told to end already"
    assert (life.node(1).again, life.status.census is None) == (None, False)
    assert life.states() == [N.STOPPED, N.READY]
    life.obey()
    assert (life.status.state, life.states()) == (RunState.CANCELED, [N.STOPPED, N.STOPPED])


# --- suspend and resume


def test_suspend_leaves_nothing_but_what_has_succeeded() -> None:
    """JobSet: a Job that has succeeded is kept."""
    life = running(policy((2, 2, None), (1, 1, 0))).end(0).end(1).end(2).tell(SUSPEND)
    assert life.effects == (StopNodes(refs(3, 4)),)
    assert life.status.state is RunState.IN_PROGRESS
    life.obey()
    assert (life.status.state, life.status.details) == (RunState.SUSPENDED, "wait")
    assert life.states() == [N.SUCCEEDED, N.SUCCEEDED, N.PENDING, N.PENDING, N.PENDING]
    assert [node.incarnation for node in life.status.nodes] == [0, 0, 1, 1, 1]
    assert (life.status.restarts, life.status.attempt) == (1, 0)
    assert life.status.finished_at is None and life.status.stopping is None
    assert life.notes("nodes")[-1]["why"] == "suspended"


def test_resume_goes_on_as_the_next_attempt() -> None:
    life = running(policy((2, 1, None))).end(0).tell(SUSPEND).obey().tell(RESUME)
    assert life.effects == (StartNodes(1, refs(1, incarnation=1)),)
    assert (life.status.state, life.status.details) == (RunState.ACCEPTED, "")
    assert life.notes("resumed") == [{"why": "go on", "attempt": 1}]
    life.up(1)
    assert life.status.state is RunState.IN_PROGRESS
    assert life.status.started_at == 1002.0, "since the very first"
    assert life.status.attempt_at == life.status.going_since == life.now
    assert (life.status.attempt, life.status.resumes) == (1, 1)
    assert life.end(1).status.state is RunState.SUCCEEDED
    assert life.status.spent.run == 0


def test_a_run_that_was_to_begin_suspended_begins_with_its_first_attempt() -> None:
    life = Life(policy((2, 1, None)), suspended=True).tell(RESUME)
    assert (life.status.attempt, life.status.resumes) == (0, 0)


def test_a_run_may_begin_suspended() -> None:
    life = Life(policy((1, 1, None)), suspended=True).tell(RunBegan()).tick(after=1000)
    assert (life.effects, life.status.state) == ((), RunState.SUSPENDED)
    life.tell(RESUME)
    assert life.effects == (StartNodes(0, refs(0)),)
    assert life.status.attempt == 0, "nothing of it has run"


def test_what_was_never_touched_is_not_counted_as_started_again() -> None:
    life = begun(policy((1, 1, None), (1, 1, None), in_order=True)).tell(SUSPEND).obey()
    assert life.status.nodes == (NodeStatus(incarnation=1), NodeStatus())
    assert life.status.ran == 0


def test_suspend_saves_first() -> None:
    life = running(policy((1, 2, None), checkpoint=Checkpoint(10, 30))).tell(SUSPEND)
    assert life.effects == (SignalNodes(refs(0, 1), 10),)
    assert wake_at(life.status) == life.now + 30
    assert life.end(0).status.state is RunState.IN_PROGRESS
    assert life.states() == [N.STOPPED, N.READY], "of our signal, not of an end of its own"
    assert life.tick(after=28.5).effects == ()
    assert life.tick(after=0.5).effects == (StopNodes(refs(1)),)
    assert life.obey().states() == [N.PENDING, N.PENDING]


def test_only_who_was_not_told_to_end_can_save() -> None:
    shape = (2, 2, 1)
    life = running(policy(shape, checkpoint=Checkpoint(10, 30))).end(0, 1)
    assert life.stops() == [1]
    life.tell(SUSPEND)
    assert life.effects == (SignalNodes(refs(2, 3), 10),)
    assert life.node(1).term_at is None


def test_nothing_restarts_in_a_run_that_is_suspended() -> None:
    save = Checkpoint(10, 30)
    life = running(policy((1, 2, None), max_restarts=1, checkpoint=save)).end(0, 1)
    life.tell(SUSPEND)
    assert (life.effects, life.node(1).again) == ((), None)
    life.obey()
    assert (life.status.state, life.states()) == (RunState.SUSPENDED, [N.PENDING, N.PENDING])
    assert life.status.failures == ()


def test_a_run_that_is_being_suspended_can_be_canceled() -> None:
    life = running(policy((1, 2, None), checkpoint=Checkpoint(10, 30))).tell(SUSPEND).tell(CANCEL)
    assert life.effects == (StopNodes(refs(0, 1)),)
    assert life.status.state is RunState.CANCELING
    assert [node.term_at for node in life.status.nodes] == [None, None]
    assert life.obey().status.state is RunState.CANCELED


def test_a_suspended_run_can_be_canceled() -> None:
    life = running(policy((2, 1, None))).end(0).tell(SUSPEND).obey().tell(CANCEL)
    assert (life.effects, life.status.state) == ((), RunState.CANCELED)
    assert life.states() == [N.SUCCEEDED, N.STOPPED]


def test_suspended_once_is_suspended() -> None:
    life = running(policy((1, 1, None))).tell(SUSPEND)
    before = life.status
    assert life.tell(SUSPEND, RESUME).status is before, "there is nothing yet to resume"
    before = life.obey().status
    assert life.tell(SUSPEND).status is before


def test_what_is_asked_is_done_in_order() -> None:
    life = running(policy((1, 1, None))).tell(SUSPEND).obey().tell(RESUME, SUSPEND)
    assert (life.status.state, life.status.attempt) == (RunState.SUSPENDED, 1)
    assert life.tell(RESUME, CANCEL).status.state is RunState.CANCELED


def test_a_failure_in_the_moment_of_a_suspend_is_forgotten() -> None:
    """What failed starts anew in any case when the run goes on."""
    life = running(policy((1, 2, None)))
    life.tell(life.ended(0, 1), SUSPEND).obey()
    assert (life.status.state, life.status.failures) == (RunState.SUSPENDED, ())
    assert life.tell(RESUME).starts() == [0, 1]


def test_success_in_the_moment_of_a_suspend_is_found_on_resuming() -> None:
    life = running(policy((1, 1, None)))
    life.tell(life.ended(0), SUSPEND)
    assert (life.status.state, life.states()) == (RunState.SUSPENDED, [N.SUCCEEDED])
    assert life.tell(RESUME).status.state is RunState.SUCCEEDED


# --- a lost supervisor


LOST: Any = [
    ("node", "begun", "state"),
    [
        pytest.param(NodeStatus(N.READY, started_at=5.0), {0}, N.FAILED, id="ran"),
        pytest.param(NodeStatus(N.STARTING, since=5.0), {0}, N.FAILED, id="had begun"),
        pytest.param(NodeStatus(N.STARTING, since=5.0), None, N.FAILED, id="nobody knows"),
        pytest.param(NodeStatus(N.STARTING, since=5.0), {1}, N.STARTING, id="never began"),
        pytest.param(NodeStatus(N.RUNNING, since=5.0), {1}, N.FAILED, id="said to have run"),
        pytest.param(NodeStatus(N.STARTING, kill_at=9e9), {1}, N.STOPPED, id="was to end"),
        pytest.param(NodeStatus(N.READY, kill_at=9e9), {0}, N.STOPPED, id="was ending"),
        pytest.param(NodeStatus(N.SUCCEEDED), {0}, N.SUCCEEDED, id="had ended"),
        pytest.param(NodeStatus(N.STOPPED), {1}, N.STOPPED, id="never would"),
    ],
]


@pytest.mark.parametrize(*LOST)
def test_what_had_begun_went_with_its_supervisor(
    node: NodeStatus, begun: set[int] | None, state: NodeState
) -> None:
    life = Life(policy((2, 1, 0)))
    life.status = type(life.status)((node, NodeStatus(N.SUCCEEDED)), state=RunState.IN_PROGRESS)
    life.tell(SupervisorLost("killed", None if begun is None else frozenset(begun)))
    assert life.states()[0] is state
    assert life.notes("supervisor_lost") == [{"why": "killed"}]
    assert [note["rank"] for note in life.notes("failure")] == [0] * (state is N.FAILED)
    if state is N.STARTING:
        assert life.effects == (StartNodes(0, refs(0)),)
        assert life.node(0).since == life.now


def test_what_never_began_waits_for_its_turn_again() -> None:
    """The group it follows went with the supervisor, and has to come up first."""
    shapes: Any = ((1, 1, None), (1, 1, None))
    options: Any = {"max_restarts": 1, "action": Action.RESTART_GROUP}
    life = begun(policy(*shapes, in_order=True, **options)).up(0)
    life.tell(SupervisorLost("killed", frozenset({0})))
    assert life.starts() == [0]
    assert life.node(1) == NodeStatus()


def test_a_run_may_outlive_its_supervisor() -> None:
    life = running(policy((1, 2, None), max_restarts=1)).tell(SupervisorLost("killed"))
    assert life.effects == (StartNodes(1, refs(0, 1, incarnation=1)),)
    assert life.status.cause is not None and life.status.cause.message == "killed"


def test_what_was_to_start_again_does() -> None:
    life = running(policy((1, 2, None), max_restarts=1)).end(0, 1).tell(SupervisorLost("killed"))
    assert life.effects == (StartNodes(1, refs(0, 1, incarnation=1)),)
    assert life.status.spent.run == 1


def test_a_lost_supervisor_of_a_canceled_run_ends_it() -> None:
    life = running(policy((1, 2, None))).tell(CANCEL).tell(SupervisorLost("killed"))
    assert (life.status.state, life.status.details) == (RunState.CANCELED, "enough")


# --- a run that cannot go on


def test_a_broken_run_fails_whatever_its_policy() -> None:
    life = begun(policy((1, 3, None, {"retries": 9}), max_restarts=9)).up(0, 1).end(0)
    life.tell(RunBroken("its folder is gone"))
    assert (life.status.state, life.status.details) == (RunState.FAILED, "its folder is gone")
    assert life.states() == [N.SUCCEEDED, N.STOPPED, N.STOPPED]
    assert [node.finished_at for node in life.status.nodes[1:]] == [life.now, None]
    assert life.effects == ()
    assert life.notes("nodes")[-1]["why"] == "its folder is gone"


@pytest.mark.parametrize(
    ("ending", "state", "details"),
    [
        (CANCEL, RunState.CANCELED, "enough"),
        (SUSPEND, RunState.FAILED, "gone"),
    ],
)
def test_a_cancel_is_final(ending: Any, state: RunState, details: str) -> None:
    life = running(policy((1, 2, None))).tell(ending).tell(RunBroken("gone"))
    assert (life.status.state, life.status.details) == (state, details)


def test_a_cause_is_a_cause() -> None:
    life = running(policy((1, 2, None))).end(0, 3).tell(RunBroken("gone"))
    assert (life.status.state, life.status.exit_code) == (RunState.FAILED, 3)
    assert len(life.notes("stopping")) == 1, "and what it ends of is told once"


def test_a_broken_run_that_was_about_to_succeed_has_not() -> None:
    life = running(policy((1, 1, None), (1, 1, 0))).end(0).tell(RunBroken("gone"))
    assert (life.status.state, life.status.details) == (RunState.FAILED, "gone")


def test_a_broken_run_starts_nothing_again() -> None:
    life = running(policy((1, 2, None), max_restarts=1)).end(0, 1).tell(RunBroken("gone"))
    assert life.states() == [N.STOPPED, N.STOPPED]
    assert life.node(1).again is None
    assert life.status.census is not None and life.status.census.awaited == {}


def test_a_suspended_run_can_break() -> None:
    life = running(policy((1, 1, None))).tell(SUSPEND).obey().tell(RunBroken("gone"))
    assert (life.status.state, life.status.details) == (RunState.FAILED, "gone")
