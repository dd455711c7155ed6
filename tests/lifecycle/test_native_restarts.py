"""Runs that their engine restarts by itself, while nobody decides."""

from __future__ import annotations

import pytest

from muster.lifecycle.effects import ReleaseNodes, SignalNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    NodeEnded,
    NodeReady,
    NodeStarted,
    ResumeRequested,
    RunRestarted,
    ScaleRequested,
    SuspendRequested,
)
from muster.lifecycle.incarnations import BLOCK, of_native_restart
from muster.lifecycle.policy import Action, Checkpoint, Rule
from muster.lifecycle.replay import replay
from muster.lifecycle.states import NodeState, RunState
from support.run_driver import RunDriver, policy, refs, running

N = NodeState
FREE = Rule("free", Action.RESTART_RUN, exit_codes=(9,), counted=False)


def restarted(run: RunDriver, restarts: int = 1, **more: object) -> RunDriver:
    """The run's next controller hears that the engine has restarted the run."""
    return run.step(ControllerStarted(attaches=True), RunRestarted(restarts, **more))  # type: ignore[arg-type]


# --- the attempt


def test_the_engines_attempt_is_that_of_the_run() -> None:
    run = restarted(running(policy((1, 2, None), max_restarts=3)), why="node-1 exited with 3")
    assert (run.states(), run.effects) == ([N.STARTING] * 2, ())
    assert {node.incarnation for node in run.status.nodes} == {BLOCK}
    assert (run.status.attempt, run.status.native_restarts) == (1, 1)
    assert run.notes("attempt") == [{"attempt": 1, "by": "engine"}]
    assert run.notes("restart") == [
        {"restart": BLOCK, "what": "the run", "by": "engine", "why": "node-1 exited with 3"}
    ]
    assert run.notes("failure") == []
    run.up(0, 1)
    assert run.status.attempt_started_at == run.now
    run.end(0).end(1)
    assert run.status.state is RunState.SUCCEEDED


def test_each_of_several_restarts_is_an_attempt() -> None:
    run = restarted(running(policy((1, 1, None), max_restarts=3)).end(0, 1).up(0), 2)
    assert run.notes("attempt")[1:] == [
        {"attempt": 2, "by": "engine"},
        {"attempt": 3, "by": "engine"},
    ]
    replayed = replay((entry.kind, entry.data) for entry in run.log)
    assert (replayed.attempt, replayed.nodes[0]) == (3, (N.STARTING, 2 * BLOCK))
    assert run.status.spent.run == 3


def test_a_restart_that_is_told_again_or_late_changes_nothing() -> None:
    run = restarted(running(policy((1, 1, None), max_restarts=9)), 2).up(0)
    before = run.status
    assert run.step(RunRestarted(2), RunRestarted(1)).status == before
    assert run.entries == ()


def test_the_controllers_next_incarnations_are_newer_and_older_than_the_engines_next() -> None:
    run = restarted(running(policy((1, 1, None), max_restarts=9))).up(0).end(0, 1)
    assert of_native_restart(1) < run.node(0).incarnation < of_native_restart(2)


def test_what_ended_before_is_known_and_not_handled_again() -> None:
    run = running(policy((1, 2, None), max_restarts=1))
    run.step(run.ended(1, 3), RunRestarted(1))
    assert [data["exit_code"] for data in run.notes("failure")] == [3]
    assert run.status.cause is not None and run.status.cause.exit_code == 3
    assert (run.status.failures, run.status.spent.run) == ((), 1)
    assert run.step(NodeEnded(0, 3)).states() == [N.STARTING] * 2


def test_what_has_happened_to_the_new_nodes_is_applied_in_the_same_step() -> None:
    run = running(policy((1, 2, None), max_restarts=2))
    new = [NodeStarted(0, BLOCK), NodeReady(0, BLOCK), NodeEnded(1, 3, incarnation=BLOCK)]
    run.step(RunRestarted(1), *new)
    assert (run.status.attempt, run.status.spent.run) == (2, 2)
    assert run.stops() == [0]
    assert run.node(1).incarnation == BLOCK + 1


def test_nodes_that_the_engine_has_not_started_start_in_their_order() -> None:
    run = running(policy((1, 1, None), (1, 1, None), in_order=True, max_restarts=1))
    restarted(run, ranks=(0,))
    assert (run.states(), run.starts()) == ([N.STARTING, N.PENDING], [])
    assert run.up(0).starts() == [1]
    assert run.node(1).incarnation == BLOCK


# --- budgets


@pytest.mark.parametrize(
    ("counted", "spent", "state"),
    [(None, 3, RunState.FAILED), (2, 2, RunState.IN_PROGRESS), (0, 0, RunState.IN_PROGRESS)],
)
def test_the_budget_counts_what_the_engine_has_counted(
    counted: int | None, spent: int, state: RunState
) -> None:
    run = restarted(running(policy((1, 1, None), max_restarts=2)), 3, counted=counted)
    assert run.status.spent.run == spent
    assert run.end_stopping().status.state is state
    assert run.status.attempt == 3


def test_a_run_that_its_engine_restarts_too_often_fails_for_that() -> None:
    run = running(policy((1, 2, None), max_restarts=1)).end(0, 1).end_stopping().up(0, 1)
    assert restarted(run).stops() == [0, 1]
    run.end_stopping()
    assert run.status.details == (
        "the engine has restarted the run by itself, and the only restart is used up "
        "(failure.max_restarts)"
    )
    assert (run.status.cause, run.status.broken) == (None, True)


def test_a_known_failure_is_the_cause_when_the_engine_restarts_too_often() -> None:
    run = running(policy((1, 1, None), max_restarts=0))
    run.step(run.ended(0, 3), RunRestarted(1)).end_stopping()
    assert (run.status.state, run.status.exit_code) == (RunState.FAILED, 3)
    assert run.status.details.startswith("node-0 (group g0, rank 0) failed with exit code 3\n")


def test_a_restart_that_the_engine_replaces_is_counted_once() -> None:
    """Whichever was first: the engine's attempt is the one that has nodes."""
    run = running(policy((1, 2, None), max_restarts=1)).end(1, 1)
    assert run.node(0).next_incarnation == 1
    restarted(run)
    assert (run.status.spent.run, run.states()) == (1, [N.STARTING] * 2)
    assert run.node(0).next_incarnation is None
    assert run.step(NodeEnded(0, 143, 15)).up(0, 1).end(0).end(1).status.attempt == 2
    assert run.status.state is RunState.SUCCEEDED


def test_a_restart_that_is_over_or_does_not_count_is_no_reason_to_count_less() -> None:
    run = running(policy((1, 1, None), max_restarts=9, rules=(FREE,))).end(0, 1).up(0)
    assert restarted(run.end(0, 9)).status.spent.run == 2


def test_a_restart_that_does_not_count_is_never_one_too_many() -> None:
    run = restarted(running(policy((1, 1, None), max_restarts=1)).step(SuspendRequested("wait")), 2)
    run.end_stopping().step(ResumeRequested("continue")).up(0)
    assert run.status.spent.run == 2
    assert restarted(run, 3, counted=2).status.stopping is None


def test_restarts_that_are_over_are_forgotten_in_time() -> None:
    run = running(policy((9, 1, None), max_restarts=99, action=Action.RESTART_NODE))
    run.step(*(run.ended(rank, 1) for rank in range(9)))
    assert run.status.counted_restarts == tuple(range(1, 10))
    run.up(*range(9))
    for _ in range(8):
        run.end(0, 1).up(0)
    assert run.status.counted_restarts == (17,)
    assert restarted(run).status.counted_restarts == ()


# --- runs that are ending, and scaled ones


def test_a_run_that_is_canceled_stops_what_the_engine_has_started() -> None:
    run = running(policy((1, 2, None), max_restarts=9)).end(1).step(CancelRequested("enough"))
    restarted(run)
    assert run.states() == [N.STARTING, N.SUCCEEDED]
    assert run.effects == (StopNodes(refs(0, incarnation=BLOCK)),)
    assert run.end_stopping().status.state is RunState.CANCELED


def test_a_run_that_is_suspended_lets_the_engines_nodes_save() -> None:
    run = running(policy((1, 1, None), checkpoint=Checkpoint(10, 30), max_restarts=9))
    restarted(run.step(SuspendRequested("wait")))
    assert run.effects == (SignalNodes(refs(0, incarnation=BLOCK), 10),)
    run.end(0, 0)
    assert run.status.state is RunState.SUSPENDED
    assert restarted(run, 2).status.native_restarts == 1


def test_nodes_that_are_scaled_down_are_not_kept() -> None:
    run = running(policy((3, 1, 1), max_restarts=9)).step(ScaleRequested("g0", 1, "by ana"))
    restarted(run, ranks=(0, 1))
    assert run.states() == [N.STARTING, N.STARTING, N.SCALED_DOWN]
    assert run.effects[0] == StopNodes(refs(1, incarnation=BLOCK))
    assert isinstance(run.effects[1], ReleaseNodes)
    run.step(run.ended(1, 143, signal=15))
    assert run.states() == [N.STARTING, N.SCALED_DOWN, N.SCALED_DOWN]
    run.step(ScaleRequested("g0", 3, "by ana"))
    assert run.starts() == [1, 2]
    assert all(node.incarnation > BLOCK for node in run.status.nodes[1:])
