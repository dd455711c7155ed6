"""Runs whose infrastructure decides when they end."""

from __future__ import annotations

import pytest

from muster.lifecycle.effects import StartNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    NodeEnded,
    ResourcesLeft,
    RunEnded,
    RunRestarted,
)
from muster.lifecycle.incarnations import BLOCK
from muster.lifecycle.policy import Action, Rule, Strategy
from muster.lifecycle.states import NodeState, RunState
from support.run_driver import RunDriver, policy, refs, running

N, R = NodeState, RunState
REPLACED = Rule("replaced", Action.RESTART_NODE, counted=False, before_retries=True)


def observed(*shapes: object) -> RunDriver:
    """A run as of a JobSet that the cluster runs as it is: nodes are replaced, and that is all."""
    found = shapes or ((1, 3, None),)
    return running(policy(*found, rules=(REPLACED,), strategy=Strategy.RECREATE))


def test_a_success_stops_the_nodes_that_are_left() -> None:
    run = observed().end(0).step(RunEnded(R.SUCCEEDED))
    assert run.effects == (StopNodes(refs(1, 2)),)
    run.end(1).end(2, 143, signal=15)
    assert (run.status.state, run.status.exit_code) == (R.SUCCEEDED, 0)
    assert run.states() == [N.SUCCEEDED, N.SUCCEEDED, N.STOPPED]


def test_failures_that_are_reported_with_the_end_restart_nothing() -> None:
    late, first = NodeEnded(0, 1, raised_at=12.0), NodeEnded(2, 3, message="x", raised_at=11.0)
    run = observed().step(late, first, RunEnded(R.FAILED, "JobSet a has failed: reached (Max)"))
    assert not [one for one in run.effects if isinstance(one, StartNodes)]
    assert run.status.stopping is not None
    assert run.status.stopping.details.startswith("node-2 (group g0, rank 2) failed")
    run.end(1, 143, signal=15)
    assert (run.status.state, run.status.exit_code) == (R.FAILED, 3)
    headline, message, note = run.status.details.split("\n")
    assert headline == "node-2 (group g0, rank 2) failed with exit code 3:"
    assert (message, note) == ("x", "JobSet a has failed: reached (Max)")


def test_a_failure_without_a_failed_node_has_its_sentence() -> None:
    run = observed().step(RunEnded(R.FAILED, "JobSet a was deleted")).end(0).end(1).end(2)
    assert (run.status.state, run.status.details) == (R.FAILED, "JobSet a was deleted")
    assert run.status.exit_code is None


@pytest.mark.parametrize("outcome", [R.SUCCEEDED, R.FAILED])
def test_a_run_that_is_being_canceled_stays_canceled(outcome: RunState) -> None:
    run = observed((1, 1, None)).step(CancelRequested("canceled by user"))
    run.step(RunEnded(outcome, "JobSet a was deleted")).end(0, 143, signal=15)
    assert (run.status.state, run.status.details) == (R.CANCELED, "canceled by user")


def test_an_end_after_the_end_changes_nothing() -> None:
    run = observed((1, 1, None)).step(RunEnded(R.SUCCEEDED)).end(0)
    assert run.step(RunEnded(R.FAILED, "again")).status.state is R.SUCCEEDED


def test_a_node_alone_is_restarted_in_the_pod_that_replaces_its_own() -> None:
    run = observed().end(1, 1)
    assert run.effects == (StartNodes(0, refs(1, incarnation=1)),)
    assert run.status.spent.run == 0


def test_restarts_do_not_count_and_may_be_followed_by_the_end() -> None:
    failed, restarted = NodeEnded(1, 1), RunRestarted(1, counted=0, why="pod a failed")
    run = observed().step(failed, restarted)
    assert (run.status.state, run.status.attempt, run.status.spent.run) == (R.IN_PROGRESS, 1, 0)
    assert not [one for one in run.effects if isinstance(one, StartNodes)]
    again = NodeEnded(1, 4, incarnation=BLOCK)
    run.step(again, RunEnded(R.FAILED, "JobSet a has failed"))
    run.end(0, 143, signal=15).end(2, 143, signal=15)
    assert (run.status.state, run.status.exit_code) == (R.FAILED, 4)


LEFT = "JobSet a is left in the cluster as it is"


def test_what_is_left_is_said_with_the_end() -> None:
    run = observed((1, 1, None)).step(CancelRequested("canceled by user"))
    run.step(ResourcesLeft(LEFT)).step(ResourcesLeft(LEFT)).end(0, 143, signal=15)
    assert (run.status.state, run.status.details) == (R.CANCELED, f"canceled by user\n{LEFT}")


def test_what_is_left_of_a_run_that_has_failed_follows_its_cause() -> None:
    failed = NodeEnded(0, 3, message="x")
    run = observed((1, 2, None)).step(failed, RunEnded(R.FAILED, "JobSet a has failed"))
    run.step(ResourcesLeft(LEFT)).end(1, 143, signal=15)
    assert run.status.details.split("\n")[1:] == ["x", "JobSet a has failed", LEFT]


def test_nothing_is_left_of_a_run_that_is_not_ending() -> None:
    run = observed((1, 1, None)).step(ResourcesLeft(LEFT))
    assert (run.status.state, run.status.stopping) == (R.IN_PROGRESS, None)
