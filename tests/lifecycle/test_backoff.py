"""How long a restart waits."""

from __future__ import annotations

from zlib import crc32

import pytest

from muster.lifecycle.backoff import delay
from muster.lifecycle.decide import wake_at
from muster.lifecycle.policy import Action, Backoff
from muster.lifecycle.states import NodeState
from support.run_driver import RunDriver, policy, running

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
def test_delays_grow_up_to_the_longest(rules: Backoff, streak: int, wait: float) -> None:
    assert delay(rules, streak, 1) == pytest.approx(wait)


def test_jitter_lengthens_each_delay_by_its_own_random_share() -> None:
    rules = Backoff(initial=100, jitter=0.5)
    waits = [delay(rules, 1, restart) for restart in range(1, 100)]
    assert all(100 <= wait <= 150 for wait in waits)
    assert max(waits) > 145 and min(waits) < 105
    assert waits == [delay(rules, 1, restart) for restart in range(1, 100)], "the same each time"
    other = Backoff(initial=100, jitter=0.5, seed=1)
    assert delay(other, 1, 1) != delay(rules, 1, 1)
    share = crc32(b"0:1") / 2**32
    assert delay(rules, 1, 1) == pytest.approx(100 * (1 + 0.5 * share))


@pytest.mark.parametrize("initial", [80, 100, 400])
@pytest.mark.parametrize("streak", [1, 2, 9])
def test_jitter_does_not_exceed_the_longest_delay(initial: float, streak: int) -> None:
    rules = Backoff(initial=initial, longest=100, jitter=1)
    made = [delay(rules, streak, restart) for restart in range(1, 100)]
    assert all(min(initial, 100) <= wait <= 100 for wait in made)
    assert max(made) == 100


def waits(run: RunDriver) -> list[float]:
    return [note["wait"] for note in run.notes("restart")]


def test_each_consecutive_restart_waits_longer() -> None:
    run = running(policy((1, 1, None), max_restarts=9, backoff=STEADY))
    run.end(0, 1)
    assert (run.starts(), run.states()) == ([0], [NodeState.STARTING])
    run.up(0).end(0, 1)
    assert (run.starts(), run.states()) == ([], [NodeState.PENDING])
    assert wake_at(run.status) == run.now + 10
    assert run.tick(after=9.5).starts() == []
    assert run.tick(after=0.5).starts() == [0]
    assert run.node(0).not_before is None
    run.up(0).end(0, 1).tick(after=30).up(0).end(0, 1)
    assert waits(run) == [0, 10, 30, 90]
    assert run.status.streak == 4


def test_only_time_up_counts_as_stable() -> None:
    """The delay before the start does not count, however long it was."""
    rules = Backoff(initial=100, reset_after=60)
    run = running(policy((1, 1, None), max_restarts=9, backoff=rules))
    run.end(0, 1).up(0).end(0, 1).tick(after=100).up(0).end(0, 1, after=58.5)
    assert waits(run) == [0, 100, 200]
    run.tick(after=200).up(0).end(0, 1, after=59)
    assert waits(run) == [0, 100, 200, 0]
    assert run.status.streak == 1


def test_retries_wait_as_well() -> None:
    run = running(policy((1, 2, None, {"retries": 2}), backoff=STEADY))
    run.end(0, 1).up(0).end(0, 1)
    assert waits(run) == [0, 10]
    assert run.states() == [NodeState.PENDING, NodeState.READY]


def test_delayed_and_stopping_nodes_restart_together() -> None:
    run = running(policy((1, 2, None), max_restarts=2, backoff=STEADY))
    run.end(0, 1).end_stopping().up(0, 1).end(0, 1)
    assert run.tick(after=20).starts() == [], "the other node's old incarnation still runs"
    assert run.end_stopping().starts() == [0, 1]


def test_a_node_that_stops_early_still_waits_for_its_delay() -> None:
    run = running(policy((1, 2, None), max_restarts=2, backoff=STEADY))
    run.end(0, 1).end_stopping().up(0, 1).end(0, 1).end_stopping()
    assert run.states() == [NodeState.PENDING, NodeState.PENDING]
    assert run.tick(after=8.5).starts() == []
    assert run.tick(after=0.5).starts() == [0, 1]


def test_a_first_restart_has_no_delay() -> None:
    run = running(policy((1, 2, None), max_restarts=2, backoff=STEADY)).end(0, 1)
    assert [node.not_before for node in run.status.nodes] == [None, None]


def test_each_restart_has_its_own_jitter() -> None:
    rules = Backoff(initial=10, factor=1, jitter=1, seed=3)
    run = running(policy((1, 1, None), max_restarts=3, backoff=rules))
    run.end(0, 1).up(0).end(0, 1).tick(after=20).up(0).end(0, 1)
    assert waits(run) == [0, *(pytest.approx(delay(rules, 1, n), abs=1e-3) for n in (2, 3))]
    assert waits(run)[1] != waits(run)[2]


def test_delays_are_rounded_to_milliseconds() -> None:
    rules = Backoff(initial=1.23456)
    run = running(policy((1, 1, None), max_restarts=2, backoff=rules, action=Action.RESTART_NODE))
    run.end(0, 1).up(0).end(0, 1)
    assert waits(run) == [0, 1.235]
