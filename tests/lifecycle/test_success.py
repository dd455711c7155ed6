"""Success: when the run has what it was for."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.policy import Dependency, Success
from muster.lifecycle.states import NodeState, RunState
from support.life import begun, policy, running

N = NodeState
ONE: Any = (1, 1, None)


@pytest.mark.parametrize(
    ("success", "ended", "state"),
    [
        pytest.param(Success((0, 1)), [0, 1], RunState.IN_PROGRESS, id="all of two, not yet"),
        pytest.param(Success((0, 1)), [0, 1, 2], RunState.SUCCEEDED, id="all of two"),
        pytest.param(Success((0,)), [1, 2], RunState.IN_PROGRESS, id="another one"),
        pytest.param(Success((0,)), [0], RunState.SUCCEEDED, id="the one"),
        pytest.param(Success((1,)), [0, 1], RunState.IN_PROGRESS, id="half of one"),
        pytest.param(Success((1,)), [1, 2], RunState.SUCCEEDED, id="one of two replicas"),
        pytest.param(Success((1,), any_replica=True), [2], RunState.SUCCEEDED, id="any replica"),
        pytest.param(Success((1,), any_replica=True), [0], RunState.IN_PROGRESS, id="any but it"),
        pytest.param(Success((0, 1), any_replica=True), [1], RunState.SUCCEEDED, id="any of two"),
    ],
)
def test_success(success: Success, ended: list[int], state: RunState) -> None:
    life = running(policy(ONE, (2, 1, None), success=success))
    for rank in ended:
        life.end(rank)
    assert life.obey().status.state is state
    assert life.status.details == ""


def test_any_replica_means_all_its_nodes() -> None:
    life = running(policy((2, 2, None), success=Success((0,), any_replica=True))).end(0).end(2)
    assert life.status.stopping is None
    assert life.end(3).stops() == [1]
    assert life.obey().status.state is RunState.SUCCEEDED
    assert life.states() == [N.SUCCEEDED, N.STOPPED, N.SUCCEEDED, N.SUCCEEDED]


def test_others_may_finish_first() -> None:
    life = running(policy(ONE, ONE, success=Success((0,), wait=True))).end(0)
    assert (life.effects, life.status.state) == ((), RunState.IN_PROGRESS)
    assert life.end(1).status.state is RunState.SUCCEEDED
    assert life.notes("stopping") == [{"towards": "SUCCEEDED", "why": ""}]


def test_others_that_have_yet_to_start_may_finish_too() -> None:
    after = {"depends_on": (Dependency(0, complete=True),)}
    life = begun(policy(ONE, (1, 1, None, after), success=Success((0,), wait=True))).up(0).end(0)
    assert life.starts() == [1]
    assert life.status.state is RunState.IN_PROGRESS
    assert life.up(1).end(1).status.state is RunState.SUCCEEDED


def test_others_that_have_yet_to_start_never_do() -> None:
    after = {"depends_on": (Dependency(0, complete=True),)}
    life = begun(policy(ONE, (1, 1, None, after), success=Success((0,)))).up(0).end(0)
    assert life.status.state is RunState.SUCCEEDED
    assert life.states() == [N.SUCCEEDED, N.STOPPED]


def test_failure_comes_before_success() -> None:
    """JobSet: pass, steps 7 and 8."""
    life = running(policy(ONE, ONE, success=Success((0,))))
    life.tell(life.ended(0), life.ended(1, 1))
    assert life.status.state is RunState.FAILED


def test_none_of_any_is_no_success() -> None:
    """All that would have been enough could be done without, and all have failed."""
    life = running(policy((2, 1, 0), success=Success((0,), any_replica=True))).end(0, 1)
    assert life.status.state is RunState.IN_PROGRESS
    life.end(1, 1)
    assert life.status.state is RunState.FAILED
    assert life.status.details == "no replica that would be enough has succeeded"
    assert life.status.cause is not None
    assert life.status.exit_code is None


def test_none_of_any_waits_for_the_others() -> None:
    life = running(policy((1, 1, 0), ONE, success=Success((0,), any_replica=True))).end(0, 1)
    assert life.status.state is RunState.IN_PROGRESS
    assert life.end(1).status.state is RunState.FAILED


def test_a_group_of_no_replicas_has_succeeded() -> None:
    life = begun(policy((0, 1, None), ONE, in_order=True))
    assert life.starts() == [0]
    assert life.up(0).end(0).status.state is RunState.SUCCEEDED
    assert begun(policy((0, 1, None))).status.state is RunState.SUCCEEDED


def test_who_is_waited_for_may_end_as_it_likes() -> None:
    """What the run was for is there: nothing is done again because of what comes after."""
    chosen = policy((1, 1, None), (1, 1, None), max_restarts=3, success=Success((0,), wait=True))
    life = running(chosen).end(0)
    assert life.status.state is RunState.IN_PROGRESS
    life.end(1, 1)
    assert life.status.state is RunState.SUCCEEDED
    assert life.status.restarts == 0


def test_one_of_any_is_enough_although_others_that_are_waited_for_fail() -> None:
    chosen = policy((2, 1, None), success=Success((0,), any_replica=True, wait=True))
    life = running(chosen).end(0).end(1, 1)
    assert life.status.state is RunState.SUCCEEDED


def test_a_failure_before_the_success_counts() -> None:
    chosen = policy((1, 1, None), (1, 1, None), success=Success((0,), wait=True))
    life = running(chosen).end(1, 1)
    assert life.obey().status.state is RunState.FAILED


def test_a_group_that_will_never_start_is_not_waited_for() -> None:
    after = {"depends_on": (Dependency(1, complete=True),)}
    chosen = policy(ONE, ONE, (1, 1, None, after), success=Success((0,), wait=True))
    life = running(chosen)
    life.end(0).end(1, 1)
    assert life.status.state is RunState.SUCCEEDED
    assert life.states()[2] is NodeState.STOPPED


def test_a_group_whose_turn_comes_with_the_success_is_waited_for() -> None:
    after = {"depends_on": (Dependency(0, complete=True),)}
    chosen = policy(ONE, (1, 1, None, after), success=Success((0,), wait=True))
    life = begun(chosen).up(0).end(0)
    assert life.starts() == [1]
    assert life.up(1).end(1).status.state is RunState.SUCCEEDED
