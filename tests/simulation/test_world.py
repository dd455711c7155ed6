"""Simulated nodes keep the engine contract, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from muster.engines.simulated.agenda import Agenda
from muster.engines.simulated.life import KILLED, TERMINATED, End, Life
from muster.engines.simulated.session import SimulatedSession, Standstill
from muster.engines.simulated.world import World
from muster.lifecycle.events import NodeEnded, NodeReady, NodeStarted
from muster.lifecycle.status import NodeRef, Reason

ONE = (NodeRef(0, 0),)


def opened(lives: Mapping[NodeRef, Life], grain: float = 0.0) -> tuple[Agenda, SimulatedSession]:
    agenda = Agenda()
    world = World(agenda, lambda ref, _attempt, _kept: lives[ref], grain=grain)
    return agenda, SimulatedSession(agenda, world)


def test_a_life_from_start_to_end() -> None:
    agenda, session = opened({ONE[0]: Life(start=2, ready=3, run=10, end=End(7), tell=1)})
    session.start(0, ONE)
    assert session.events(None, -1) == [NodeStarted(0)]
    assert session.events(None, -1) == [NodeReady(0)]
    assert agenda.now == 5
    assert session.events(None, -1) == [NodeEnded(0, 7)]
    assert agenda.now == 13
    with pytest.raises(Standstill):
        session.events(None, -1)


def test_waiting_passes_time() -> None:
    agenda, session = opened({ONE[0]: Life(start=2)})
    session.start(0, ONE)
    assert session.events(1, -1) == []
    assert agenda.now == pytest.approx(1.001)


def test_what_is_up_stays_and_what_is_no_more_is_not_asked() -> None:
    _, session = opened({ONE[0]: Life(run=1), NodeRef(0, 1): Life()})
    session.start(0, ONE)
    session.start(0, ONE)
    assert session.events(None, -1) == [NodeStarted(0), NodeReady(0)]
    assert session.events(None, -1) == [NodeEnded(0, 0)]
    session.start(0, [NodeRef(0, 1)])
    session.start(0, ONE)
    session.kill(ONE)
    assert session.events(None, -1) == [NodeStarted(0, 1), NodeReady(0, 1)]
    assert session.events(1, -1) == []


def test_one_ends_once_however_often_it_is_told_to() -> None:
    deaf, polite = NodeRef(0, 0), NodeRef(1, 0)
    agenda, session = opened({deaf: Life(stop=None), polite: Life(stop=1)})
    session.start(0, [deaf, polite])
    session.events(None, -1)
    for _ in range(2):
        session.stop([deaf, polite])
    ended = NodeEnded(1, TERMINATED.exit_code, TERMINATED.signal)
    assert session.events(None, -1) == [ended]
    session.kill([deaf, polite])
    assert session.events(5, -1) == [NodeEnded(0, KILLED.exit_code, KILLED.signal)]
    assert agenda.now == 1


def test_what_has_not_begun_ends_at_once() -> None:
    agenda, session = opened({ONE[0]: Life(start=60, stop=30)})
    session.start(0, ONE)
    session.stop(ONE)
    assert session.events(None, -1) == [NodeEnded(0, 143, 15)]
    assert session.events(99, -1) == []
    assert agenda.now > 99


def test_what_cannot_start_says_so() -> None:
    why = End(None, reason=Reason.NOT_STARTED, message="no such image")
    _, session = opened({ONE[0]: Life(start=3, unable=why)})
    session.start(0, ONE)
    expected = NodeEnded(0, None, reason=Reason.NOT_STARTED, message="no such image")
    assert session.events(None, -1) == [expected]


def test_who_comes_later_is_told_what_there_is() -> None:
    agenda = Agenda()
    lives = {0: Life(run=1, end=End(3)), 1: Life(ready=None), 2: Life(start=9)}
    world = World(agenda, lambda ref, _attempt, _kept: lives[ref.rank])
    SimulatedSession(agenda, world).start(0, [NodeRef(rank, 4) for rank in range(3)])
    agenda.advance(0)
    agenda.advance(5)
    expected = [NodeEnded(0, 3, incarnation=4), NodeStarted(1, 4)]
    assert SimulatedSession(agenda, world).events(0, -1) == expected


def test_ten_thousand_nodes_are_two_happenings() -> None:
    refs = [NodeRef(rank, 0) for rank in range(10_000)]
    agenda, session = opened({ref: Life(start=ref.rank % 7 / 10, stop=0.3) for ref in refs}, 1.0)
    session.start(0, refs)
    assert len(session.events(None, -1)) == 2 * sum(rank % 7 == 0 for rank in range(10_000))
    assert len(session.events(None, -1)) == 2 * sum(rank % 7 > 0 for rank in range(10_000))
    session.stop(refs)
    assert len(session.events(None, -1)) == 10_000
    assert agenda.now == 2


def test_somebody_who_rings_is_heard_at_once() -> None:
    agenda, session = opened({})
    agenda.at(7, session.ring)
    assert session.events(None, -1) == []
    assert agenda.now == 7
