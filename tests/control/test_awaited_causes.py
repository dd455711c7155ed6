"""Which ends of nodes wait for what may have caused them, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.control import awaited_causes
from muster.control.awaited_causes import LONGEST_WAIT, AwaitedCauses
from muster.lifecycle.events import (
    CancelRequested,
    Event,
    NodeEnded,
    NodeReachable,
    NodeReady,
    NodeUnreachable,
    RunEnded,
    SupervisorLost,
    Tick,
)
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason, RunStatus, Stopping
from support.run_driver import policy

LOST = NodeUnreachable(0, 0, "its pod is being deleted")
#: As of a peer whose connection was closed.
BROKEN = NodeEnded(1, 1, message="ConnectionResetError: [Errno 104] Connection reset by peer")
OTHER = replace(BROKEN, rank=2)
OWN = NodeEnded(2, 1, message="ValueError: bad batch")
GONE = NodeEnded(0, None, 0, Reason.PREEMPTED, "pod p was evicted")
READY = NodeStatus(NodeState.READY)
THREE = (READY, READY, READY)


class Held:
    """The ends of a run that are held back."""

    def __init__(self, nodes: Sequence[NodeStatus] = THREE, rules: Policy | None = None) -> None:
        self.status = RunStatus(nodes, state=RunState.IN_PROGRESS)
        self.causes = AwaitedCauses(rules or policy((1, len(nodes), None)), self.status)

    def take(self, *events: Event, at: float = 0.0) -> list[Event]:
        return self.causes.take(self.status, events, 1000.0 + at)


def test_a_consequence_waits_until_the_node_that_may_be_its_cause_has_ended() -> None:
    held = Held()
    assert held.take(LOST, BROKEN) == [LOST]
    assert held.causes.due == 1000.0 + LONGEST_WAIT
    assert held.take(OTHER, at=1.0) == []
    assert held.causes.due == 1000.0 + LONGEST_WAIT, "the wait is for all of them"
    assert held.take(GONE, at=2.0) == [BROKEN, OTHER, GONE]
    assert held.causes.due is None
    assert held.take(Tick(), at=3.0) == [Tick()]


@pytest.mark.parametrize(
    "event",
    [
        NodeReachable(0),
        NodeEnded(0, 0),
        OWN,
        CancelRequested("enough"),
        SupervisorLost("it was killed"),
        RunEnded(RunState.FAILED, "its JobSet has failed"),
    ],
)
def test_what_ends_the_wait(event: Event) -> None:
    held = Held()
    held.take(LOST, BROKEN)
    assert held.take(event) == [BROKEN, event]


def test_the_wait_has_a_limit() -> None:
    held = Held()
    held.take(LOST, BROKEN)
    assert held.take(Tick(), at=LONGEST_WAIT - 0.1) == [Tick()]
    assert held.take(Tick(), at=LONGEST_WAIT) == [BROKEN, Tick()]


@pytest.mark.parametrize(
    "end",
    [
        NodeEnded(1, 0),
        replace(OWN, rank=1),
        NodeEnded(1, None, 9, Reason.OUT_OF_MEMORY, "connection reset by peer"),
        replace(BROKEN, incarnation=7),
    ],
    ids=["success", "an error of its own", "a cause", "of an old incarnation"],
)
def test_others_do_not_wait(end: NodeEnded) -> None:
    assert Held().take(LOST, end) == [LOST, end]


@pytest.mark.parametrize(
    "node",
    [
        READY,
        NodeStatus(NodeState.SUCCEEDED),
        NodeStatus(NodeState.READY, 1, unreachable_since=5.0),
        NodeStatus(NodeState.READY, kill_at=2000.0, unreachable_since=5.0),
        NodeStatus(NodeState.QUEUED, unreachable_since=5.0),
    ],
    ids=["reached", "ended", "another incarnation", "to end", "queued"],
)
def test_only_a_node_that_may_have_ended_is_waited_for(node: NodeStatus) -> None:
    held = Held((node, READY, READY))
    held.status = replace(held.status, nodes=(replace(node, incarnation=0), READY, READY))
    assert held.take(BROKEN) == [BROKEN]


def test_a_controller_that_starts_knows_who_cannot_be_reached() -> None:
    held = Held((replace(READY, unreachable_since=5.0), READY, READY))
    assert held.take(BROKEN) == []


def test_a_node_that_is_to_end_does_not_wait() -> None:
    held = Held((READY, replace(READY, kill_at=2000.0), READY))
    assert held.take(LOST, BROKEN) == [LOST, BROKEN]


def test_nothing_waits_in_a_run_that_is_ending() -> None:
    held = Held()
    held.take(LOST, BROKEN)
    held.status = replace(held.status, stopping=Stopping(RunState.CANCELED, "enough"))
    assert held.take(Tick()) == [BROKEN, Tick()]


def test_nothing_waits_beyond_a_deadline() -> None:
    """It may be that of a node that has ended, which would be blamed for missing it."""
    held = Held()
    held.status = replace(held.status, alarm=1002.0)
    assert held.take(LOST, BROKEN, at=1.0) == [LOST]
    assert held.take(Tick(), at=2.0) == [BROKEN, Tick()]


def test_nodes_of_arrays_do_not_wait() -> None:
    rules = policy((2, 2, None))
    rules = replace(rules, groups=(replace(rules.groups[0], parallelism=2),))
    assert Held((READY,) * 4, rules).take(LOST, BROKEN) == [LOST, BROKEN]


def test_a_text_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of nodes may fail together, in as many steps."""
    searched: list[object] = []
    real = awaited_causes.cause.is_consequence

    def is_consequence(end: NodeEnded) -> bool:
        searched.append(end)
        return real(end)

    monkeypatch.setattr(awaited_causes.cause, "is_consequence", is_consequence)
    held = Held()
    for event in (LOST, BROKEN, Tick(), OTHER, Tick()):
        held.take(event)
    assert searched == [BROKEN, OTHER]


@given(
    st.lists(
        st.sampled_from(
            [LOST, BROKEN, OTHER, OWN, GONE, NodeReachable(0), NodeReady(1), Tick()]
        ).map(replace),  # each is an object of its own
        max_size=12,
    ),
    st.lists(st.integers(1, 4), max_size=12),
)
def test_each_event_counts_once_and_none_is_lost(events: list[Event], sizes: list[int]) -> None:
    held, counted, rest = Held(), list[Event](), [*events]
    for number, size in enumerate(sizes):
        counted += held.take(*rest[:size], at=float(number))
        del rest[:size]
    counted += held.take(*rest, at=50.0)
    counted += held.take(Tick(), at=50.0 + LONGEST_WAIT)[:-1]
    assert sorted(map(id, counted)) == sorted(map(id, events))
    of_one = [event for event in counted if isinstance(event, NodeEnded) and event.rank == 1]
    assert of_one == [e for e in events if isinstance(e, NodeEnded) and e.rank == 1], "in order"
