"""Handing a run over, decided by its controller alone: no session, no store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from muster.control.awaited_causes import LONGEST_WAIT
from muster.control.controller import Controller, Step
from muster.lifecycle.effects import (
    CloseSession,
    KillNodes,
    LeaveSession,
    SignalNodes,
    StartNodes,
    StopNodes,
)
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    DiskExceeded,
    Event,
    HandOverRequested,
    NodeEnded,
    NodeStarted,
    NodeUnreachable,
    ResourcesLeft,
    RunQueued,
    ScaleRequested,
    SessionClosed,
    SupervisorLost,
    SuspendRequested,
    Tick,
)
from muster.lifecycle.policy import Checkpoint, Policy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeRef, Reason, new_status
from support.run_driver import policy

LEAVE = HandOverRequested("terminated")
BOTH = (NodeRef(0, 0), NodeRef(1, 0))


class Driven:
    """A controller whose records succeed. `kinds` has the kinds of all recorded entries."""

    def __init__(self, rules: Policy, *, detached: bool = False) -> None:
        self.policy = rules
        status = new_status(rules.first_nodes())
        self.controller = Controller(rules, status, detached=detached)
        self.kinds: list[str] = []

    def step(self, *events: Event, at: float = 0.0) -> Sequence[object]:
        """The effects of a step, once it is recorded."""
        step = self.controller.step(events, 1000.0 + at)
        self.record(step)
        return step.effects

    def record(self, step: Step) -> None:
        if step.record is not None:
            self.kinds += [entry.kind for entry in step.record.entries]
            self.controller.recorded(step.record)


def running(rules: Policy, *, detached: bool = False) -> Driven:
    run = Driven(rules, detached=detached)
    assert run.step(ControllerStarted()) == (StartNodes(0, BOTH),)
    run.step(NodeStarted(0), NodeStarted(1))
    return run


def test_nodes_are_stopped_and_the_run_is_handed_over_when_the_session_has_closed() -> None:
    run = running(policy((1, 2, None), max_restarts=1))
    assert run.step(LEAVE) == (StopNodes(BOTH),)
    before = run.controller.status
    assert run.step(NodeEnded(0, 143, 15)) == ()
    assert run.step(LEAVE, Tick()) == (), "requested already"
    assert run.step(NodeEnded(1, 0)) == (CloseSession(),)
    assert run.step(Tick()) == ()
    assert not run.controller.finished
    assert run.controller.status is before, "the next controller learns that the nodes are lost"
    run.step(SessionClosed())
    assert (run.controller.finished, run.controller.handed_over) == (True, True)
    assert run.kinds[-1] == "handed_over"
    assert run.controller.status.state is RunState.IN_PROGRESS


def test_the_next_controller_restarts_the_nodes_by_the_policy() -> None:
    run = running(policy((1, 2, None), max_restarts=1))
    for events in ((LEAVE,), (NodeEnded(0, 143, 15), NodeEnded(1, 143, 15)), (SessionClosed(),)):
        run.step(*events)
    run.controller = Controller(run.policy, run.controller.status)
    run.step(SupervisorLost("it was killed"))
    assert run.controller.status.cause is not None
    assert run.controller.status.cause.message == "terminated"
    assert run.controller.status.handed_over == ""
    assert {node.state for node in run.controller.status.nodes} == {NodeState.STARTING}
    assert not run.controller.finished


def test_the_cause_of_a_failure_is_waited_for() -> None:
    """By default, a node that was preempted restarts the run, and its peers that fail end it."""
    run = running(policy((1, 2, None)), detached=True)
    run.step(NodeUnreachable(0, 0, "its pod is being deleted"))
    assert run.step(NodeEnded(1, 1, message="Connection reset by peer"), at=1.0) == ()
    assert run.controller.wake_at() == 1001.0 + LONGEST_WAIT
    effects = run.step(NodeEnded(0, None, 0, Reason.PREEMPTED, "it was evicted"), at=2.0)
    assert [type(effect) for effect in effects] == [StartNodes]
    status = run.controller.status
    assert status.cause is not None and status.cause.reason is Reason.PREEMPTED
    assert status.spent.run == 0


def test_a_cause_that_does_not_come_is_not_waited_for_any_longer() -> None:
    run = running(policy((1, 2, None)), detached=True)
    run.step(NodeUnreachable(0, 0, "no answer"), NodeEnded(1, 1, message="Connection reset"))
    assert run.controller.status.stopping is None
    run.step(Tick(), at=LONGEST_WAIT)
    assert run.controller.status.stopping is not None


def test_nodes_that_do_not_end_are_killed_after_the_grace_period() -> None:
    run = running(policy((1, 2, None)))
    run.step(LEAVE)
    alarm = run.controller.wake_at()
    assert alarm == 1000.0 + run.policy.grace_period
    assert run.step(Tick(), at=run.policy.grace_period) == (KillNodes(BOTH),)


def test_nodes_can_save_as_before_a_suspension() -> None:
    run = running(policy((1, 2, None), checkpoint=Checkpoint(signal=10, grace=5.0)))
    assert run.step(LEAVE) == (SignalNodes(BOTH, 10),)
    assert run.step(Tick(), at=5.0) == (StopNodes(BOTH),)


def test_what_nodes_report_with_the_request_is_not_recorded() -> None:
    """At a shutdown they get SIGTERM as well, and many programs then exit with 0."""
    run = running(policy((1, 2, None)))
    before = run.controller.status
    assert run.step(NodeEnded(0, 0), LEAVE) == (StopNodes(BOTH[1:]),)
    assert run.step(NodeEnded(1, 0)) == (CloseSession(),)
    run.step(SessionClosed())
    assert run.controller.handed_over
    assert run.controller.status.nodes == before.nodes


def test_a_run_that_has_succeeded_is_not_handed_over() -> None:
    run = running(policy((1, 2, None)))
    assert run.step(NodeEnded(0, 0), NodeEnded(1, 0)) == (CloseSession(),)
    assert run.step(LEAVE) == ()
    run.step(SessionClosed())
    assert run.controller.status.state is RunState.SUCCEEDED
    assert not run.controller.handed_over


def test_what_could_not_be_recorded_before_is_not_recorded() -> None:
    run = running(policy((1, 2, None)))
    step = run.controller.step((NodeEnded(0, 0),), 1001.0)  # the store is busy
    assert step.record is not None
    assert run.step(LEAVE) == (StopNodes(BOTH[1:]),)


def test_a_run_that_is_ending_ends() -> None:
    run = running(policy((1, 2, None)))
    run.step(CancelRequested("by user"), LEAVE)
    assert run.step(NodeEnded(0, 0), NodeEnded(1, 0)) == (CloseSession(),)
    run.step(SessionClosed())
    assert run.controller.status.state is RunState.CANCELED


def test_a_cancel_during_the_hand_over_is_left_to_the_next_controller() -> None:
    run = running(policy((1, 2, None)))
    run.step(LEAVE)
    assert run.step(CancelRequested("by user")) == ()
    assert run.step(NodeEnded(0, 0), NodeEnded(1, 0)) == (CloseSession(),)
    run.step(CancelRequested("by user"), SessionClosed())
    assert run.controller.status.state is RunState.IN_PROGRESS
    assert run.controller.handed_over


def test_a_run_that_waits_for_resources_is_handed_over_at_once() -> None:
    run = Driven(policy((1, 2, None)))
    run.step(ControllerStarted(), RunQueued("2 GPUs"))
    assert CloseSession() in run.step(LEAVE)
    run.step(SessionClosed())
    assert run.controller.handed_over
    assert run.controller.status.state is RunState.QUEUED


def test_nodes_of_a_session_that_is_about_to_close_are_not_released() -> None:
    run = Driven(policy((2, 1, 1)))
    run.step(ControllerStarted())
    run.step(NodeStarted(0), NodeStarted(1))
    assert run.step(ScaleRequested(run.policy.groups[0].name, 1, "by user")) == (
        StopNodes((NodeRef(1, 0),)),
    )
    assert run.step(LEAVE) == (StopNodes((NodeRef(0, 0),)),)
    assert run.step(NodeEnded(1, 143, 15)) == ()


def test_an_event_is_decided_once() -> None:
    run = running(policy((1, 2, None), max_restarts=1))
    run.step(DiskExceeded(0, 2, 1))
    run.step(NodeEnded(0, 3))
    run.step(NodeEnded(1, 3))
    run.step(Tick())
    assert run.kinds.count("disk") == 1
    assert run.controller.status.spent.run == 1


@pytest.mark.parametrize("times", [1, 3])
def test_a_hand_over_that_cannot_be_recorded_is_recorded_later(times: int) -> None:
    run = running(policy((1, 2, None)))
    run.step(LEAVE)
    run.step(NodeEnded(0, 0), NodeEnded(1, 0))
    steps = [run.controller.step((SessionClosed(),), 1000.0)]
    steps += [run.controller.step((Tick(),), 1000.0 + n) for n in range(times)]
    assert all(step.record is not None and not step.effects for step in steps)
    run.record(steps[-1])
    assert run.controller.handed_over


def test_detached_nodes_are_left_as_they_are() -> None:
    run = running(policy((1, 2, None), max_restarts=1), detached=True)
    before = run.controller.status
    assert run.step(NodeEnded(0, 1), LEAVE) == (LeaveSession(),), "its end is reported again"
    assert run.controller.wake_at() is None
    assert run.step(LEAVE, NodeEnded(1, 1), Tick()) == ()
    assert not run.controller.finished
    run.step(SessionClosed())
    assert (run.controller.finished, run.controller.handed_over) == (True, True)
    assert run.controller.status is before
    assert run.kinds[-1] == "handed_over"


def test_detached_nodes_of_a_run_that_is_ending_are_left_as_well() -> None:
    """They may not be reachable for days."""
    run = running(policy((1, 2, None)), detached=True)
    assert run.step(CancelRequested("by user")) == (StopNodes(BOTH),)
    assert run.step(CancelRequested("by user"), LEAVE) == (LeaveSession(),)
    run.step(SessionClosed())
    assert run.controller.handed_over
    assert run.controller.status.state is RunState.CANCELING
    assert all(node.kill_at is not None for node in run.controller.status.nodes)


def test_ends_of_detached_nodes_are_recorded_before_their_session_closes() -> None:
    """When it has closed, nobody else knows of them."""
    run = running(policy((1, 2, None)), detached=True)
    assert run.step(NodeEnded(0, 0), NodeEnded(1, 0)) == ()
    ended = run.controller.status
    assert [node.state for node in ended.nodes] == [NodeState.SUCCEEDED] * 2
    assert (ended.state, run.controller.finished) == (RunState.IN_PROGRESS, False)
    assert run.controller.wake_at() == 1000.0, "at once"
    run.controller = Controller(run.policy, ended, detached=True)  # the first one was killed
    assert run.step(ControllerStarted(attaches=True)) == (CloseSession(),)
    run.step(SessionClosed())
    assert run.controller.status.state is RunState.SUCCEEDED
    assert (run.kinds.count("nodes"), run.kinds.count("stopping")) == (3, 1)


def test_a_run_with_detached_nodes_that_has_ended_is_not_handed_over() -> None:
    run = running(policy((1, 2, None)), detached=True)
    assert run.step(NodeEnded(0, 0), NodeEnded(1, 0)) == ()
    assert run.step(Tick()) == (CloseSession(),)
    assert run.step(LEAVE) == ()
    run.step(SessionClosed())
    assert run.controller.status.state is RunState.SUCCEEDED
    assert not run.controller.handed_over


def test_a_cancel_of_a_run_that_was_suspended_before_it_is_handed_over_is_applied() -> None:
    run = running(policy((1, 2, None)), detached=True)
    run.step(SuspendRequested("by user"))
    run.step(NodeEnded(0, 143, 15), NodeEnded(1, 143, 15))
    assert run.step(Tick()) == (CloseSession(),)
    assert run.step(LEAVE) == ()
    run.step(SessionClosed())
    assert run.controller.status.state is RunState.SUSPENDED
    run.step(CancelRequested("by user"))
    assert run.controller.status.state is RunState.CANCELED
    assert "handed_over" not in run.kinds


# --- what a session that closes cannot remove


LEFT = "JobSet demo is left in the cluster: ana may not delete jobsets"
LATER = "JobSet demo cannot be deleted: 401; this is tried again"


def closing(*request: Event) -> Driven:
    """A run with detached nodes that is ending, whose nodes have ended."""
    run = running(policy((1, 2, None)), detached=True)
    run.step(*request)
    run.step(NodeEnded(0, 0), NodeEnded(1, 0))
    assert run.step(Tick()) == (CloseSession(),)
    return run


ENDS = [
    ((CancelRequested("canceled by user"),), "CANCELED", f"canceled by user\n{LEFT}"),
    ((SuspendRequested("suspended by user"),), "SUSPENDED", f"suspended by user\n{LEFT}"),
    ((), "SUCCEEDED", LEFT),
]


@pytest.mark.parametrize(("request_", "state", "details"), ENDS)
def test_what_is_left_is_part_of_the_runs_details(
    request_: Sequence[Event], state: str, details: str
) -> None:
    run = closing(*request_)
    run.step(ResourcesLeft(LEFT), SessionClosed())
    assert run.controller.finished
    assert (run.controller.status.state, run.controller.status.details) == (state, details)
    assert run.kinds[-2:] == ["left", "run"]


@pytest.mark.parametrize(("request_", "state", "details"), ENDS)
def test_what_is_not_removed_yet_is_recorded_while_that_is_tried_again(
    request_: Sequence[Event], state: str, details: str
) -> None:
    run = closing(*request_)
    before = run.controller.status
    assert run.step(ResourcesLeft(LATER)) == ()
    assert LATER in run.controller.status.details
    assert run.controller.status.state is before.state and not run.controller.finished
    kinds = [*run.kinds]
    run.step(Tick())
    assert run.kinds == kinds, "it is said once"
    run.step(ResourcesLeft(""))
    assert LATER not in run.controller.status.details
    run.step(SessionClosed())
    assert run.controller.status.state == state
    assert run.controller.status.details == details.removesuffix(LEFT).rstrip()


def test_what_could_not_be_recorded_while_the_session_closes_is_recorded_later() -> None:
    run = closing(CancelRequested("canceled by user"))
    assert run.controller.step((ResourcesLeft(LATER),), 1001.0).record is not None
    run.step(Tick())
    assert run.controller.status.details == f"canceled by user\n{LATER}"


def test_the_next_controller_does_not_repeat_what_was_not_removed() -> None:
    run = closing(CancelRequested("canceled by user"))
    run.step(ResourcesLeft(LATER))
    run.controller = Controller(run.policy, run.controller.status, detached=True)
    run.step(ControllerStarted(attaches=True))
    run.step(ResourcesLeft(f"{LATER}!"))
    assert run.controller.status.details == f"canceled by user\n{LATER}!"
    run.step(ResourcesLeft(LEFT), SessionClosed())
    assert run.controller.status.details == f"canceled by user\n{LEFT}"
