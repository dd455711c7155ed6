"""Events of nodes into facts."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.events import Event, NodeEnded, NodeReady, NodeStarted
from muster.lifecycle.policy import Action
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason, RunStatus
from support.life import Life, begun, policy, running

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
    life = Life(policy((2, 1, 0), in_order=True))
    life.status = RunStatus((node, NodeStatus(N.READY)), state=RunState.IN_PROGRESS)
    return life.tell(event).status.nodes[0]


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
def test_news(before: str, event: Event, state: NodeState) -> None:
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
def test_no_news(before: str, event: Event) -> None:
    assert observed(NODES[before], event) == NODES[before]


@pytest.mark.parametrize("kind", [NodeStarted, NodeReady])
def test_what_was_not_handed_over_does_not_start(kind: Any) -> None:
    """Its group's turn comes in the same step; a word from before says nothing of it."""
    assert observed(NODES["pending"], kind(0, 2)).state is N.STARTING


LEAVING = NodeStatus(N.READY, kill_at=9e9)
ENDS: Any = [
    ("more", "code", "reason", "state", "remembered"),
    [
        # of its own
        ({}, 1, Reason.EXIT, N.FAILED, True),
        ({}, 143, Reason.EXIT, N.FAILED, True),
        ({}, 0, Reason.EXIT, N.SUCCEEDED, False),
        ({}, 137, Reason.NODE_LOST, N.FAILED, True),
        ({}, 137, Reason.HANG, N.FAILED, True),
        ({}, 0, Reason.OUTPUT_LOST, N.FAILED, True),
        # told to end
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
        # found at fault, and told to end for it
        ({"kill_at": 9e9, "fault": Reason.DEADLINE}, 143, Reason.EXIT, N.FAILED, False),
        ({"kill_at": 9e9, "fault": Reason.DEADLINE}, 0, Reason.EXIT, N.FAILED, False),
        ({"kill_at": 9e9, "fault": Reason.DEADLINE}, 1, Reason.EXIT, N.FAILED, False),
    ],
]


@pytest.mark.parametrize(*ENDS)
def test_how_a_node_ends(
    more: dict[str, Any], code: int | None, reason: Reason, state: NodeState, remembered: bool
) -> None:
    """remembered: as a failure, or one that another has brought about."""
    life = running(policy((1, 3, None), max_restarts=0)).end(2, 9)
    nodes = (NodeStatus(N.READY, **more), *life.status.nodes[1:])
    life.status = RunStatus(nodes, state=RunState.IN_PROGRESS, failures=life.status.failures)
    life.tell(NodeEnded(0, code, reason=reason, message="last words"))
    assert life.states()[0] is state
    assert (0 in [failure.rank for failure in life.status.failures]) is remembered


def test_a_signal_says_more_than_the_code() -> None:
    life = running(policy((1, 2, None))).end(1, 9)
    life.tell(NodeEnded(0, 255, signal=15))
    assert [failure.rank for failure in life.status.failures] == [1]


def test_what_is_remembered_of_a_failure() -> None:
    life = running(policy((1, 1, None))).end(
        0, 139, signal=11, message="a\nb", raised_at=7.0, reason=Reason.OUT_OF_MEMORY
    )
    assert life.status.cause is not None
    told = life.status.cause
    assert (told.rank, told.group, told.incarnation, told.at) == (0, "g0", 0, life.now)
    assert (told.exit_code, told.signal, told.message, told.raised_at) == (139, 11, "a\nb", 7.0)
    assert told.reason is Reason.OUT_OF_MEMORY


def test_a_failure_is_one_of_the_life_it_ended() -> None:
    life = running(policy((1, 2, None), max_restarts=2)).end(0, 1).end(1, 1)
    assert [f["rank"] for f in life.notes("failure")] == [0, 1]
    life.up(0, 1).end(0, 2)
    assert [failure.incarnation for failure in life.status.failures] == [1]


def test_so_is_one_that_is_told_on_its_way_out() -> None:
    life = running(policy((1, 3, None), max_restarts=2)).end(0, 1).end(1, 1)
    assert [(f.rank, f.incarnation) for f in life.status.failures] == [(0, 0), (1, 0)]


def test_what_dies_alone_on_its_way_out_is_no_failure() -> None:
    """There is no incident it could belong to; what it has lost is one of its own."""
    life = running(policy((1, 1, None), (2, 1, 0))).end(0)
    assert life.stops() == [1, 2]
    life.end(1, 5)
    assert life.status.failures == ()
    life.end(2, 1, reason=Reason.OUTPUT_LOST)
    assert life.status.state is RunState.FAILED


def test_the_run_is_in_progress_with_its_first_node() -> None:
    life = begun(policy((1, 2, None))).tell(NodeStarted(1))
    assert life.status.state is RunState.IN_PROGRESS
    assert life.status.started_at == life.status.attempt_at == life.status.going_since == life.now
    first = life.now
    life.up(0, 1)
    assert life.status.started_at == life.status.attempt_at == life.status.going_since == first
    assert life.node(1).started_at == first


def test_the_clock_of_an_attempt_starts_with_a_node_of_its_own() -> None:
    """That one of the attempt before came up on its way out says nothing of this one."""
    life = begun(policy((1, 2, None), max_restarts=1, action=Action.RESTART_RUN))
    first = life.end(0, 1).now
    life.tell(life.started(1))
    assert (life.status.attempt_at, life.status.going_since) == (None, first + 1)
    life.obey().up(0)
    assert (life.status.attempt_at, life.status.going_since) == (life.now, first + 1)
