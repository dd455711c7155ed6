"""Simulated nodes keep the engine contract, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from muster.forecast.event_queue import EventQueue
from muster.lifecycle.events import NodeEnded, NodeReady, NodeStarted
from muster.lifecycle.status import NodeRef, Reason
from simulation.harness.behavior import KILLED, TERMINATED, Behavior, Exit
from simulation.harness.session import Deadlock, SimulatedSession
from simulation.harness.world import World

ONE = (NodeRef(0, 0),)


def opened(
    behaviors: Mapping[NodeRef, Behavior], grain: float = 0.0
) -> tuple[EventQueue, SimulatedSession]:
    queue = EventQueue()
    world = World(queue, lambda ref, _attempt, _kept: behaviors[ref], grain=grain)
    return queue, SimulatedSession(queue, world)


def test_an_incarnation_from_start_to_end() -> None:
    queue, session = opened(
        {ONE[0]: Behavior(start=2, ready=3, run=10, end=Exit(7), report_delay=1)}
    )
    session.start(0, ONE)
    assert session.events(None, -1) == [NodeStarted(0)]
    assert session.events(None, -1) == [NodeReady(0)]
    assert queue.now == 5
    assert session.events(None, -1) == [NodeEnded(0, 7)]
    assert queue.now == 13
    with pytest.raises(Deadlock):
        session.events(None, -1)


def test_waiting_passes_time() -> None:
    queue, session = opened({ONE[0]: Behavior(start=2)})
    session.start(0, ONE)
    assert session.events(1, -1) == []
    assert queue.now == pytest.approx(1.001)


def test_repeated_starts_and_commands_to_older_incarnations_are_ignored() -> None:
    _, session = opened({ONE[0]: Behavior(run=1), NodeRef(0, 1): Behavior()})
    session.start(0, ONE)
    session.start(0, ONE)
    assert session.events(None, -1) == [NodeStarted(0), NodeReady(0)]
    assert session.events(None, -1) == [NodeEnded(0, 0)]
    session.start(0, [NodeRef(0, 1)])
    session.start(0, ONE)
    session.kill(ONE)
    assert session.events(None, -1) == [NodeStarted(0, 1), NodeReady(0, 1)]
    assert session.events(1, -1) == []


def test_a_node_ends_once_after_repeated_stops() -> None:
    stubborn, obedient = NodeRef(0, 0), NodeRef(1, 0)
    queue, session = opened({stubborn: Behavior(stop=None), obedient: Behavior(stop=1)})
    session.start(0, [stubborn, obedient])
    session.events(None, -1)
    for _ in range(2):
        session.stop([stubborn, obedient])
    ended = NodeEnded(1, TERMINATED.exit_code, TERMINATED.signal)
    assert session.events(None, -1) == [ended]
    session.kill([stubborn, obedient])
    assert session.events(5, -1) == [NodeEnded(0, KILLED.exit_code, KILLED.signal)]
    assert queue.now == 1


def test_a_node_that_has_not_started_stops_at_once() -> None:
    queue, session = opened({ONE[0]: Behavior(start=60, stop=30)})
    session.start(0, ONE)
    session.stop(ONE)
    assert session.events(None, -1) == [NodeEnded(0, 143, 15)]
    assert session.events(99, -1) == []
    assert queue.now > 99


def test_a_node_that_cannot_start_reports_why() -> None:
    why = Exit(None, reason=Reason.NOT_STARTED, message="no such image")
    _, session = opened({ONE[0]: Behavior(start=3, start_error=why)})
    session.start(0, ONE)
    expected = NodeEnded(0, None, reason=Reason.NOT_STARTED, message="no such image")
    assert session.events(None, -1) == [expected]


def test_a_new_session_receives_the_present_state() -> None:
    queue = EventQueue()
    behaviors = {0: Behavior(run=1, end=Exit(3)), 1: Behavior(ready=None), 2: Behavior(start=9)}
    world = World(queue, lambda ref, _attempt, _kept: behaviors[ref.rank])
    SimulatedSession(queue, world).start(0, [NodeRef(rank, 4) for rank in range(3)])
    queue.advance(0)
    queue.advance(5)
    expected = [NodeEnded(0, 3, incarnation=4), NodeStarted(1, 4)]
    assert SimulatedSession(queue, world).events(0, -1) == expected


def test_ten_thousand_nodes_start_at_two_moments() -> None:
    refs = [NodeRef(rank, 0) for rank in range(10_000)]
    queue, session = opened({ref: Behavior(start=ref.rank % 7 / 10, stop=0.3) for ref in refs}, 1.0)
    session.start(0, refs)
    assert len(session.events(None, -1)) == 2 * sum(rank % 7 == 0 for rank in range(10_000))
    assert len(session.events(None, -1)) == 2 * sum(rank % 7 > 0 for rank in range(10_000))
    session.stop(refs)
    assert len(session.events(None, -1)) == 10_000
    assert queue.now == 2


def test_wake_ends_a_wait_at_once() -> None:
    queue, session = opened({})
    queue.at(7, session.wake)
    assert session.events(None, -1) == []
    assert queue.now == 7
