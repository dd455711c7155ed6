"""The state of a run, rebuilt from its event log."""

from __future__ import annotations

from muster.lifecycle.events import CancelRequested, ResumeRequested, SuspendRequested
from muster.lifecycle.replay import ReplayedRun, replay
from muster.lifecycle.states import NodeState, RunState
from support.run_driver import RunDriver, policy, running

N = NodeState


def test_without_events_the_run_is_accepted() -> None:
    assert replay([]) == ReplayedRun(RunState.ACCEPTED, "", 0, {})


def test_later_events_override_earlier_ones() -> None:
    replayed = replay(
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
    assert (replayed.state, replayed.details, replayed.attempt) == (RunState.FAILED, "why", 2)
    assert replayed.nodes == {
        0: (N.RUNNING, 0),
        1: (N.PENDING, 1),
        2: (N.RUNNING, 0),
        5: (N.RUNNING, 0),
    }


def test_each_kind_of_event_is_applied() -> None:
    assert replay([("run", {"state": "IN_PROGRESS"})]) == ReplayedRun(
        RunState.IN_PROGRESS, "", 0, {}
    )
    assert replay([("attempt", {"attempt": 3})]).attempt == 3


def replay_log(run: RunDriver) -> ReplayedRun:
    return replay((entry.kind, entry.data) for entry in run.log)


def test_a_run_is_replayed_from_start_to_end() -> None:
    run = running(policy((1, 2, None), max_restarts=1))
    run.end(0, 1).end_stopping().up(0, 1).step(SuspendRequested("wait")).end_stopping()
    assert replay_log(run).state is RunState.SUSPENDED
    run.step(ResumeRequested("continue"))
    assert (replay_log(run).state, replay_log(run).attempt) == (RunState.ACCEPTED, 2)
    run.up(0, 1).end(1).step(CancelRequested("enough")).end_stopping()
    replayed = replay_log(run)
    assert (replayed.state, replayed.details, replayed.attempt) == (RunState.CANCELED, "enough", 2)
    assert replayed.nodes == {0: (N.STOPPED, 2), 1: (N.SUCCEEDED, 2)}
