"""Success: when a run has succeeded."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.policy import Dependency, Success
from muster.lifecycle.states import NodeState, RunState
from support.run_driver import policy, running, starting

N = NodeState
ONE: Any = (1, 1, None)


@pytest.mark.parametrize(
    ("success", "ended", "state"),
    [
        pytest.param(Success((0, 1)), [0, 1], RunState.IN_PROGRESS, id="all of two, not yet"),
        pytest.param(Success((0, 1)), [0, 1, 2], RunState.SUCCEEDED, id="all of two"),
        pytest.param(Success((0,)), [1, 2], RunState.IN_PROGRESS, id="another group"),
        pytest.param(Success((0,)), [0], RunState.SUCCEEDED, id="the required group"),
        pytest.param(Success((1,)), [0, 1], RunState.IN_PROGRESS, id="one of both replicas"),
        pytest.param(Success((1,)), [1, 2], RunState.SUCCEEDED, id="both replicas"),
        pytest.param(Success((1,), any_replica=True), [2], RunState.SUCCEEDED, id="any replica"),
        pytest.param(
            Success((1,), any_replica=True),
            [0],
            RunState.IN_PROGRESS,
            id="no replica yet",
        ),
        pytest.param(
            Success((0, 1), any_replica=True),
            [1],
            RunState.SUCCEEDED,
            id="any of two groups",
        ),
    ],
)
def test_success(success: Success, ended: list[int], state: RunState) -> None:
    run = running(policy(ONE, (2, 1, None), success=success))
    for rank in ended:
        run.end(rank)
    assert run.end_stopping().status.state is state
    assert run.status.details == ""


def test_any_replica_means_all_its_nodes() -> None:
    run = running(policy((2, 2, None), success=Success((0,), any_replica=True))).end(0).end(2)
    assert run.status.stopping is None
    assert run.end(3).stops() == [1]
    assert run.end_stopping().status.state is RunState.SUCCEEDED
    assert run.states() == [N.SUCCEEDED, N.STOPPED, N.SUCCEEDED, N.SUCCEEDED]


def test_success_can_wait_for_the_other_groups() -> None:
    run = running(policy(ONE, ONE, success=Success((0,), wait=True))).end(0)
    assert (run.effects, run.status.state) == ((), RunState.IN_PROGRESS)
    assert run.end(1).status.state is RunState.SUCCEEDED
    assert run.notes("stopping") == [{"towards": "SUCCEEDED", "why": ""}]


def test_success_can_wait_for_groups_that_have_not_started() -> None:
    after = {"depends_on": (Dependency(0, complete=True),)}
    run = starting(policy(ONE, (1, 1, None, after), success=Success((0,), wait=True))).up(0).end(0)
    assert run.starts() == [1]
    assert run.status.state is RunState.IN_PROGRESS
    assert run.up(1).end(1).status.state is RunState.SUCCEEDED


def test_groups_that_have_not_started_do_not_start_after_success() -> None:
    after = {"depends_on": (Dependency(0, complete=True),)}
    run = starting(policy(ONE, (1, 1, None, after), success=Success((0,)))).up(0).end(0)
    assert run.status.state is RunState.SUCCEEDED
    assert run.states() == [N.SUCCEEDED, N.STOPPED]


def test_failure_takes_precedence_over_success() -> None:
    """JobSet: pass, steps 7 and 8."""
    run = running(policy(ONE, ONE, success=Success((0,))))
    run.step(run.ended(0), run.ended(1, 1))
    assert run.status.state is RunState.FAILED


def test_without_any_successful_replica_the_run_fails() -> None:
    """Every replica that would be enough is optional, and all have failed."""
    run = running(policy((2, 1, 0), success=Success((0,), any_replica=True))).end(0, 1)
    assert run.status.state is RunState.IN_PROGRESS
    run.end(1, 1)
    assert run.status.state is RunState.FAILED
    assert run.status.details.splitlines() == [
        "node-1 (group g0, rank 1) failed with exit code 1",
        "2 of 2 replicas of group g0 failed: 0-1",
    ]
    assert run.status.exit_code == 1


def test_failure_of_all_optional_replicas_waits_for_the_others() -> None:
    run = running(policy((1, 1, 0), ONE, success=Success((0,), any_replica=True))).end(0, 1)
    assert run.status.state is RunState.IN_PROGRESS
    assert run.end(1).status.state is RunState.FAILED


def test_a_group_of_no_replicas_has_succeeded() -> None:
    run = starting(policy((0, 1, None), ONE, in_order=True))
    assert run.starts() == [0]
    assert run.up(0).end(0).status.state is RunState.SUCCEEDED
    assert starting(policy((0, 1, None))).status.state is RunState.SUCCEEDED


def test_groups_that_finish_after_success_may_fail() -> None:
    """The run has succeeded: later failures cause no restarts."""
    chosen = policy((1, 1, None), (1, 1, None), max_restarts=3, success=Success((0,), wait=True))
    run = running(chosen).end(0)
    assert run.status.state is RunState.IN_PROGRESS
    run.end(1, 1)
    assert run.status.state is RunState.SUCCEEDED
    assert run.status.last_incarnation == 0


def test_one_successful_replica_is_enough_even_if_later_ones_fail() -> None:
    chosen = policy((2, 1, None), success=Success((0,), any_replica=True, wait=True))
    run = running(chosen).end(0).end(1, 1)
    assert run.status.state is RunState.SUCCEEDED


def test_a_failure_before_the_success_counts() -> None:
    chosen = policy((1, 1, None), (1, 1, None), success=Success((0,), wait=True))
    run = running(chosen).end(1, 1)
    assert run.end_stopping().status.state is RunState.FAILED


def test_a_group_that_can_never_start_is_not_awaited() -> None:
    after = {"depends_on": (Dependency(1, complete=True),)}
    chosen = policy(ONE, ONE, (1, 1, None, after), success=Success((0,), wait=True))
    run = running(chosen)
    run.end(0).end(1, 1)
    assert run.status.state is RunState.SUCCEEDED
    assert run.states()[2] is NodeState.STOPPED


def test_a_group_that_starts_with_the_success_is_awaited() -> None:
    after = {"depends_on": (Dependency(0, complete=True),)}
    chosen = policy(ONE, (1, 1, None, after), success=Success((0,), wait=True))
    run = starting(chosen).up(0).end(0)
    assert run.starts() == [1]
    assert run.up(1).end(1).status.state is RunState.SUCCEEDED
