"""How long a restart waits."""

from __future__ import annotations

from zlib import crc32

import pytest

from muster.lifecycle.backoff import delay
from muster.lifecycle.decide import wake_at
from muster.lifecycle.policy import Action, Backoff
from muster.lifecycle.states import NodeState
from support.life import Life, policy, running

STEADY = Backoff(initial=10, factor=3, longest=200)


@pytest.mark.parametrize(
    ("rules", "streak", "wait"),
    [
        (STEADY, 0, 0),
        (STEADY, 1, 10),
        (STEADY, 2, 30),
        (STEADY, 3, 90),
        (STEADY, 4, 200),
        (STEADY, 5000, 200),
        (Backoff(initial=0, factor=3), 7, 0),
        (Backoff(initial=7, factor=1), 7, 7),
        (Backoff(initial=400, longest=300), 1, 300),
        (Backoff(initial=1, factor=1e10, longest=300), 500, 300),
    ],
)
def test_delay(rules: Backoff, streak: int, wait: float) -> None:
    assert delay(rules, streak, 1) == pytest.approx(wait)


def test_jitter_makes_each_wait_longer_by_a_share_of_its_own() -> None:
    rules = Backoff(initial=100, jitter=0.5)
    waits = [delay(rules, 1, restart) for restart in range(1, 100)]
    assert all(100 <= wait <= 150 for wait in waits)
    assert max(waits) > 145 and min(waits) < 105
    assert waits == [delay(rules, 1, restart) for restart in range(1, 100)], "decided twice alike"
    other = Backoff(initial=100, jitter=0.5, seed=1)
    assert delay(other, 1, 1) != delay(rules, 1, 1)
    share = crc32(b"0:1") / 2**32
    assert delay(rules, 1, 1) == pytest.approx(100 * (1 + 0.5 * share))


@pytest.mark.parametrize("initial", [80, 100, 400])
@pytest.mark.parametrize("streak", [1, 2, 9])
def test_no_jitter_goes_beyond_the_longest(initial: float, streak: int) -> None:
    rules = Backoff(initial=initial, longest=100, jitter=1)
    made = [delay(rules, streak, restart) for restart in range(1, 100)]
    assert all(min(initial, 100) <= wait <= 100 for wait in made)
    assert max(made) == 100


def waits(life: Life) -> list[float]:
    return [note["wait"] for note in life.notes("restart")]


def test_each_restart_in_a_row_waits_longer() -> None:
    life = running(policy((1, 1, None), max_restarts=9, backoff=STEADY))
    life.end(0, 1)
    assert (life.starts(), life.states()) == ([0], [NodeState.STARTING])
    life.up(0).end(0, 1)
    assert (life.starts(), life.states()) == ([], [NodeState.PENDING])
    assert wake_at(life.status) == life.now + 10
    assert life.tick(after=9.5).starts() == []
    assert life.tick(after=0.5).starts() == [0]
    assert life.node(0).not_before is None
    life.up(0).end(0, 1).tick(after=30).up(0).end(0, 1)
    assert waits(life) == [0, 10, 30, 90]
    assert life.status.streak == 4


def test_a_stable_time_is_a_time_that_it_was_up() -> None:
    """The time it waited is none, however long."""
    rules = Backoff(initial=100, reset_after=60)
    life = running(policy((1, 1, None), max_restarts=9, backoff=rules))
    life.end(0, 1).up(0).end(0, 1).tick(after=100).up(0).end(0, 1, after=58.5)
    assert waits(life) == [0, 100, 200]
    life.tick(after=200).up(0).end(0, 1, after=59)
    assert waits(life) == [0, 100, 200, 0]
    assert life.status.streak == 1


def test_retries_wait_as_well() -> None:
    life = running(policy((1, 2, None, {"retries": 2}), backoff=STEADY))
    life.end(0, 1).up(0).end(0, 1)
    assert waits(life) == [0, 10]
    assert life.states() == [NodeState.PENDING, NodeState.READY]


def test_what_waits_and_what_is_on_its_way_out_start_together() -> None:
    life = running(policy((1, 2, None), max_restarts=2, backoff=STEADY))
    life.end(0, 1).obey().up(0, 1).end(0, 1)
    assert life.tick(after=20).starts() == [], "the old one of the other still runs"
    assert life.obey().starts() == [0, 1]


def test_what_waits_and_ends_early_waits_all_the_same() -> None:
    life = running(policy((1, 2, None), max_restarts=2, backoff=STEADY))
    life.end(0, 1).obey().up(0, 1).end(0, 1).obey()
    assert life.states() == [NodeState.PENDING, NodeState.PENDING]
    assert life.tick(after=8.5).starts() == []
    assert life.tick(after=0.5).starts() == [0, 1]


def test_what_need_not_wait_has_no_time_to_wait_for() -> None:
    life = running(policy((1, 2, None), max_restarts=2, backoff=STEADY)).end(0, 1)
    assert [node.not_before for node in life.status.nodes] == [None, None]


def test_each_restart_has_a_jitter_of_its_own() -> None:
    rules = Backoff(initial=10, factor=1, jitter=1, seed=3)
    life = running(policy((1, 1, None), max_restarts=3, backoff=rules))
    life.end(0, 1).up(0).end(0, 1).tick(after=20).up(0).end(0, 1)
    assert waits(life) == [0, *(pytest.approx(delay(rules, 1, n), abs=1e-3) for n in (2, 3))]
    assert waits(life)[1] != waits(life)[2]


def test_a_wait_is_noted_to_the_millisecond() -> None:
    rules = Backoff(initial=1.23456)
    life = running(policy((1, 1, None), max_restarts=2, backoff=rules, action=Action.RESTART_NODE))
    life.end(0, 1).up(0).end(0, 1)
    assert waits(life) == [0, 1.235]
