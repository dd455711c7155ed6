"""The state of a run as its event log tells it."""

from __future__ import annotations

from muster.lifecycle.events import CancelRequested, ResumeRequested, SuspendRequested
from muster.lifecycle.fold import Told, fold
from muster.lifecycle.states import NodeState, RunState
from support.life import Life, policy, running

N = NodeState


def test_nothing_told_is_a_run_just_accepted() -> None:
    assert fold([]) == Told(RunState.ACCEPTED, "", 0, {})


def test_the_last_word_counts() -> None:
    told = fold(
        [
            ("run", {"state": "IN_PROGRESS"}),
            ("nodes", {"ranks": "0-2,5", "state": "RUNNING"}),
            ("attempt", {"attempt": 1, "why": "restart 1"}),
            ("nodes", {"ranks": "1", "state": "PENDING", "restart": 1}),
            ("something else", {"state": "SUCCEEDED", "ranks": "0", "attempt": 9}),
            ("resumed", {"attempt": 2}),
            ("run", {"state": "FAILED", "details": "why"}),
        ]
    )
    assert (told.state, told.details, told.attempt) == (RunState.FAILED, "why", 2)
    assert told.nodes == {
        0: (N.RUNNING, 0),
        1: (N.PENDING, 1),
        2: (N.RUNNING, 0),
        5: (N.RUNNING, 0),
    }


def test_each_word_counts() -> None:
    assert fold([("run", {"state": "IN_PROGRESS"})]) == Told(RunState.IN_PROGRESS, "", 0, {})
    assert fold([("attempt", {"attempt": 3})]).attempt == 3


def as_told(life: Life) -> Told:
    return fold((entry.kind, entry.data) for entry in life.told)


def test_a_whole_life() -> None:
    life = running(policy((1, 2, None), max_restarts=1))
    life.end(0, 1).obey().up(0, 1).tell(SuspendRequested("wait")).obey()
    assert as_told(life).state is RunState.SUSPENDED
    life.tell(ResumeRequested("go on"))
    assert (as_told(life).state, as_told(life).attempt) == (RunState.ACCEPTED, 2)
    life.up(0, 1).end(1).tell(CancelRequested("enough")).obey()
    told = as_told(life)
    assert (told.state, told.details, told.attempt) == (RunState.CANCELED, "enough", 2)
    assert told.nodes == {0: (N.STOPPED, 2), 1: (N.SUCCEEDED, 2)}
