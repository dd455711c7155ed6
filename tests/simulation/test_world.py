"""Simulated nodes keep the engine contract, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import pytest

from muster.engines.loop import Participant
from muster.forecast.event_queue import EventQueue
from muster.lifecycle.events import (
    EngineEvent,
    NodeEnded,
    NodeReady,
    NodeStarted,
    SessionClosed,
)
from muster.lifecycle.status import NodeRef, Reason
from simulation.harness.behavior import KILLED, TERMINATED, Behavior, Exit
from simulation.harness.session import Deadlock, SimulatedSession, VirtualLoop
from simulation.harness.world import World

ONE = (NodeRef(0, 0),)


class Session(SimulatedSession):
    """A session that is asked for its events."""

    def __init__(self, queue: EventQueue, world: World) -> None:
        self._received: list[EngineEvent] = []
        self._time = queue
        super().__init__(queue, world, self._received.extend)

    def events(self, timeout: float | None = None) -> list[EngineEvent]:
        """The events that come first. timeout: seconds to wait for them."""
        with closing(VirtualLoop(self._time)) as loop:
            participant = loop.add(lambda _: None)
            participant.wake_at(None if timeout is None else self._time.now + timeout)
            self._world.deliver = lambda events: self._deliver(events, participant)
            if not self._received:
                loop.run_once()
        received, self._received = self._received, []
        return received

    def _deliver(self, events: Sequence[EngineEvent], participant: Participant) -> None:
        self._received += events
        participant.notify()


def opened(behaviors: Mapping[NodeRef, Behavior], grain: float = 0.0) -> tuple[EventQueue, Session]:
    queue = EventQueue()
    world = World(queue, lambda ref, _attempt, _kept: behaviors[ref], grain=grain)
    return queue, Session(queue, world)


def test_an_incarnation_from_start_to_end() -> None:
    queue, session = opened(
        {ONE[0]: Behavior(start=2, ready=3, run=10, end=Exit(7), report_delay=1)}
    )
    session.start(0, ONE)
    assert session.events() == [NodeStarted(0)]
    assert session.events() == [NodeReady(0)]
    assert queue.now == 5
    assert session.events() == [NodeEnded(0, 7)]
    assert queue.now == 13
    with pytest.raises(Deadlock):
        session.events()


def test_waiting_passes_time() -> None:
    queue, session = opened({ONE[0]: Behavior(start=2)})
    session.start(0, ONE)
    assert session.events(1) == []
    assert queue.now == pytest.approx(1.001)


def test_repeated_starts_and_commands_to_older_incarnations_are_ignored() -> None:
    _, session = opened({ONE[0]: Behavior(run=1), NodeRef(0, 1): Behavior()})
    session.start(0, ONE)
    session.start(0, ONE)
    assert session.events() == [NodeStarted(0), NodeReady(0)]
    assert session.events() == [NodeEnded(0, 0)]
    session.start(0, [NodeRef(0, 1)])
    session.start(0, ONE)
    session.kill(ONE)
    assert session.events() == [NodeStarted(0, 1), NodeReady(0, 1)]
    assert session.events(1) == []


def test_a_node_ends_once_after_repeated_stops() -> None:
    stubborn, obedient = NodeRef(0, 0), NodeRef(1, 0)
    queue, session = opened({stubborn: Behavior(stop=None), obedient: Behavior(stop=1)})
    session.start(0, [stubborn, obedient])
    session.events()
    for _ in range(2):
        session.stop([stubborn, obedient])
    ended = NodeEnded(1, TERMINATED.exit_code, TERMINATED.signal)
    assert session.events() == [ended]
    session.kill([stubborn, obedient])
    assert session.events(5) == [NodeEnded(0, KILLED.exit_code, KILLED.signal)]
    assert queue.now == 1


def test_a_node_that_has_not_started_stops_at_once() -> None:
    queue, session = opened({ONE[0]: Behavior(start=60, stop=30)})
    session.start(0, ONE)
    session.stop(ONE)
    assert session.events() == [NodeEnded(0, 143, 15)]
    assert session.events(99) == []
    assert queue.now > 99


def test_a_node_that_cannot_start_reports_why() -> None:
    why = Exit(None, reason=Reason.NOT_STARTED, message="no such image")
    _, session = opened({ONE[0]: Behavior(start=3, start_error=why)})
    session.start(0, ONE)
    expected = NodeEnded(0, None, reason=Reason.NOT_STARTED, message="no such image")
    assert session.events() == [expected]


def test_a_new_session_receives_the_present_state() -> None:
    queue = EventQueue()
    behaviors = {0: Behavior(run=1, end=Exit(3)), 1: Behavior(ready=None), 2: Behavior(start=9)}
    world = World(queue, lambda ref, _attempt, _kept: behaviors[ref.rank])
    Session(queue, world).start(0, [NodeRef(rank, 4) for rank in range(3)])
    queue.advance(0)
    queue.advance(5)
    expected = [NodeEnded(0, 3, incarnation=4), NodeStarted(1, 4)]
    assert Session(queue, world).events(0) == expected


def test_ten_thousand_nodes_start_at_two_moments() -> None:
    refs = [NodeRef(rank, 0) for rank in range(10_000)]
    queue, session = opened({ref: Behavior(start=ref.rank % 7 / 10, stop=0.3) for ref in refs}, 1.0)
    session.start(0, refs)
    assert len(session.events()) == 2 * sum(rank % 7 == 0 for rank in range(10_000))
    assert len(session.events()) == 2 * sum(rank % 7 > 0 for rank in range(10_000))
    session.stop(refs)
    assert len(session.events()) == 10_000
    assert queue.now == 2


def test_a_session_closes_after_a_while() -> None:
    queue = EventQueue()
    reported: list[EngineEvent] = []
    world = World(queue, lambda *_: Behavior())
    session = SimulatedSession(queue, world, reported.extend, closing=3)
    session.start(0, ONE)
    queue.advance(0)
    reported.clear()
    for _ in range(2):
        session.close()
    assert world.alive() == []
    queue.advance(9)
    assert (reported, queue.now) == ([SessionClosed()], 3)
