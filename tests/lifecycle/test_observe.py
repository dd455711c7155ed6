"""Events of nodes change their recorded state."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.events import Event, NodeEnded, NodeReady, NodeStarted
from muster.lifecycle.policy import Action
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason, RunStatus
from support.run_driver import RunDriver, policy, running, starting

N = NodeState
NODES = {
    "pending": NodeStatus(incarnation=2),
    "starting": NodeStatus(N.STARTING, 2),
    "running": NodeStatus(N.RUNNING, 2, started_at=5.0),
    "ready": NodeStatus(N.READY, 2, started_at=5.0),
    "succeeded": NodeStatus(N.SUCCEEDED, 2, 0, 0, 5.0, 6.0),
    "failed": NodeStatus(N.FAILED, 2, 1, 0, 5.0, 6.0),
    "stopped": NodeStatus(N.STOPPED, 2, 143, 15, 5.0, 6.0),
}


def observed(node: NodeStatus, event: Event) -> NodeStatus:
    run = RunDriver(policy((2, 1, 0), in_order=True))
    run.status = RunStatus((node, NodeStatus(N.READY)), state=RunState.IN_PROGRESS)
    return run.step(event).status.nodes[0]


@pytest.mark.parametrize(
    ("before", "event", "state"),
    [
        ("starting", NodeStarted(0, 2), N.RUNNING),
        ("starting", NodeReady(0, 2), N.READY),
        ("running", NodeReady(0, 2), N.READY),
        ("starting", NodeEnded(0, 0, incarnation=2), N.SUCCEEDED),
        ("running", NodeEnded(0, 0, incarnation=2), N.SUCCEEDED),
        ("ready", NodeEnded(0, 1, incarnation=2), N.FAILED),
        ("ready", NodeEnded(0, None, incarnation=2), N.FAILED),
    ],
)
def test_events_change_the_state_of_a_node(before: str, event: Event, state: NodeState) -> None:
    node = observed(NODES[before], event)
    assert node.state is state
    assert node.started_at == (
        1001.0 if before == "starting" and not state.ended else NODES[before].started_at
    )
    assert node.finished_at == (1001.0 if state.ended else None)


@pytest.mark.parametrize(
    ("before", "event"),
    [
        ("running", NodeStarted(0, 2)),
        ("ready", NodeStarted(0, 2)),
        ("ready", NodeReady(0, 2)),
        *[
            (state, event)
            for state in ("succeeded", "failed", "stopped")
            for event in (NodeStarted(0, 2), NodeReady(0, 2), NodeEnded(0, 7, incarnation=2))
        ],
        *[
            ("starting", event)
            for number in (1, 3)
            for event in (
                NodeStarted(0, number),
                NodeReady(0, number),
                NodeEnded(0, 7, incarnation=number),
            )
        ],
    ],
)
def test_late_events_do_not_change_the_state_of_a_node(before: str, event: Event) -> None:
    assert observed(NODES[before], event) == NODES[before]


@pytest.mark.parametrize("kind", [NodeStarted, NodeReady])
def test_an_event_of_a_node_that_was_not_started_is_ignored(kind: Any) -> None:
    """Its group may start in the same step; an earlier event does not concern it."""
    assert observed(NODES["pending"], kind(0, 2)).state is N.STARTING


LEAVING = NodeStatus(N.READY, kill_at=9e9)
ENDS: Any = [
    ("more", "code", "reason", "state", "remembered"),
    [
        # ended by itself
        ({}, 1, Reason.EXIT, N.FAILED, True),
        ({}, 143, Reason.EXIT, N.FAILED, True),
        ({}, 0, Reason.EXIT, N.SUCCEEDED, False),
        ({}, 137, Reason.NODE_LOST, N.FAILED, True),
        ({}, 137, Reason.HANG, N.FAILED, True),
        ({}, 0, Reason.OUTPUT_LOST, N.FAILED, True),
        # stopped
        ({"kill_at": 9e9}, 143, Reason.EXIT, N.STOPPED, False),
        ({"kill_at": 9e9}, 137, Reason.EXIT, N.STOPPED, False),
        ({"kill_at": 9e9}, 0, Reason.EXIT, N.SUCCEEDED, False),
        ({"kill_at": 9e9}, 1, Reason.EXIT, N.STOPPED, True),
        ({"kill_at": 9e9}, 139, Reason.EXIT, N.STOPPED, True),
        ({"kill_at": 9e9}, None, Reason.EXIT, N.STOPPED, True),
        ({"kill_at": 9e9}, None, Reason.NODE_LOST, N.STOPPED, False),
        ({"kill_at": 9e9}, 137, Reason.OUT_OF_MEMORY, N.STOPPED, True),
        ({"kill_at": 9e9}, 1, Reason.OUTPUT_LOST, N.FAILED, True),
        ({"term_at": 9e9}, 143, Reason.EXIT, N.STOPPED, False),
        # stopped because it was at fault
        ({"kill_at": 9e9, "fault": Reason.DEADLINE}, 143, Reason.EXIT, N.FAILED, False),
        ({"kill_at": 9e9, "fault": Reason.DEADLINE}, 0, Reason.EXIT, N.FAILED, False),
        ({"kill_at": 9e9, "fault": Reason.DEADLINE}, 1, Reason.EXIT, N.FAILED, False),
    ],
]


@pytest.mark.parametrize(*ENDS)
def test_state_and_failure_of_a_node_that_has_ended(
    more: dict[str, Any], code: int | None, reason: Reason, state: NodeState, remembered: bool
) -> None:
    """remembered: whether it is recorded as a failure or as a consequence."""
    run = running(policy((1, 3, None), max_restarts=0)).end(2, 9)
    nodes = (NodeStatus(N.READY, **more), *run.status.nodes[1:])
    run.status = RunStatus(nodes, state=RunState.IN_PROGRESS, failures=run.status.failures)
    run.step(NodeEnded(0, code, reason=reason, message="a message"))
    assert run.states()[0] is state
    assert (0 in [failure.rank for failure in run.status.failures]) is remembered


@pytest.mark.parametrize("code", [1, 143])
@pytest.mark.parametrize(
    ("error", "remembered"),
    [
        ("torch.distributed.elastic.multiprocessing.api.SignalException: got signal: 15", False),
        ("KeyboardInterrupt", False),
        ("ConnectionResetError: closed", True),
        ("ValueError: bad batch", True),
    ],
)
def test_an_exception_that_our_signal_raised_is_no_failure(
    error: str, remembered: bool, code: int
) -> None:
    run = running(policy((1, 2, None))).end(1, 9)
    run.step(NodeEnded(0, code, message=f"Traceback (most recent call last):\n  x\n{error}"))
    assert run.states() == [N.STOPPED, N.FAILED]
    assert (0 in [failure.rank for failure in run.status.failures]) is remembered
    assert len(run.notes("failure")) == 1 + remembered


def test_an_exception_that_another_signal_raised_is_a_failure() -> None:
    message = "Traceback (most recent call last):\n  x\nKeyboardInterrupt"
    run = running(policy((1, 2, None))).end(1, 1, message=message)
    assert [failure.rank for failure in run.status.failures] == [1]


def test_the_signal_takes_precedence_over_the_exit_code() -> None:
    run = running(policy((1, 2, None))).end(1, 9)
    run.step(NodeEnded(0, 255, signal=15))
    assert [failure.rank for failure in run.status.failures] == [1]


def test_a_failure_is_recorded_with_its_details() -> None:
    run = running(policy((1, 1, None))).end(
        0, 139, signal=11, message="a\nb", raised_at=7.0, reason=Reason.OUT_OF_MEMORY
    )
    assert run.status.cause is not None
    cause = run.status.cause
    assert (cause.rank, cause.group, cause.incarnation, cause.at) == (0, "g0", 0, run.now)
    assert (cause.exit_code, cause.signal, cause.message, cause.raised_at) == (139, 11, "a\nb", 7.0)
    assert cause.reason is Reason.OUT_OF_MEMORY


def test_a_failure_belongs_to_the_incarnation_that_it_ended() -> None:
    run = running(policy((1, 2, None), max_restarts=2)).end(0, 1).end(1, 1)
    assert [f["rank"] for f in run.notes("failure")] == [0, 1]
    run.up(0, 1).end(0, 2)
    assert [failure.incarnation for failure in run.status.failures] == [1]


def test_a_failure_of_a_stopping_node_belongs_to_its_incarnation() -> None:
    run = running(policy((1, 3, None), max_restarts=2)).end(0, 1).end(1, 1)
    assert [(f.rank, f.incarnation) for f in run.status.failures] == [(0, 0), (1, 0)]


def test_a_node_that_fails_while_it_is_stopped_has_not_failed() -> None:
    """It belongs to no incident; lost output is a separate incident."""
    run = running(policy((1, 1, None), (2, 1, 0))).end(0)
    assert run.stops() == [1, 2]
    run.end(1, 5)
    assert run.status.failures == ()
    run.end(2, 1, reason=Reason.OUTPUT_LOST)
    assert run.status.state is RunState.FAILED


def test_the_run_is_in_progress_with_its_first_node() -> None:
    run = starting(policy((1, 2, None))).step(NodeStarted(1))
    assert run.status.state is RunState.IN_PROGRESS
    assert run.states() == [N.STARTING, N.RUNNING]
    assert (
        run.status.started_at
        == run.status.attempt_started_at
        == run.status.running_since
        == run.now
    )
    first = run.now
    run.up(0, 1)
    assert (
        run.status.started_at == run.status.attempt_started_at == run.status.running_since == first
    )
    assert run.node(1).started_at == first


def test_the_clock_of_an_attempt_starts_with_its_own_first_node() -> None:
    """A node of the attempt before that became ready while stopping does not count."""
    run = starting(policy((1, 2, None), max_restarts=1, action=Action.RESTART_RUN))
    first = run.end(0, 1).now
    run.step(run.started(1))
    assert (run.status.attempt_started_at, run.status.running_since) == (None, first + 1)
    run.end_stopping().up(0)
    assert (run.status.attempt_started_at, run.status.running_since) == (run.now, first + 1)
