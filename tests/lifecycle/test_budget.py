"""Budgets of restarts of a run, a group, a rule and a replica, and what resets them."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.policy import Action, Rule
from muster.lifecycle.states import RunState
from muster.lifecycle.status import Spent
from support.run_driver import RunDriver, policy, running

FREE = Rule("free", Action.RESTART_RUN, exit_codes=(9,), counted=False)
RARE = Rule("rare", Action.RESTART_RUN, exit_codes=(9,), max_restarts=1)


def fail(run: RunDriver, rank: int, code: int = 1) -> RunDriver:
    """Let a node fail, all stopping nodes end, and all nodes become ready again."""
    run.end(rank, code).end_stopping()
    return run.up(*(r for r, node in enumerate(run.status.nodes) if node.alive))


@pytest.mark.parametrize(
    ("options", "codes", "spent", "details"),
    [
        pytest.param({}, [1], Spent(), "failed with exit code 1", id="none"),
        pytest.param(
            {"rules": (Rule("r", Action.RESTART_RUN),)},
            [1],
            Spent(),
            "failed with exit code 1\nfailure.max_restarts allows no restart",
            id="a rule without a budget",
        ),
        pytest.param(
            {"max_restarts": 1},
            [1, 2],
            Spent(run=1, groups={"g0": 1}),
            "failed with exit code 2\nthe only restart is used up (failure.max_restarts)",
            id="one",
        ),
        pytest.param(
            {"max_restarts": 2},
            [1, 2, 3],
            Spent(run=2, groups={"g0": 2}),
            "failed with exit code 3\nall 2 restarts are used up (failure.max_restarts)",
            id="two",
        ),
        pytest.param(
            {"max_restarts": 1, "rules": (FREE,)},
            [9, 9, 9, 1, 2],
            Spent(run=1, rules={"free": 3}, groups={"g0": 1}),
            "failed with exit code 2\nthe only restart is used up (failure.max_restarts)",
            id="uncounted restarts are free",
        ),
        pytest.param(
            {"max_restarts": 9, "rules": (RARE,)},
            [1, 9, 9],
            Spent(run=2, rules={"rare": 1}, groups={"g0": 2}),
            "failed with exit code 9\nthe only restart is used up (max_restarts of rule rare)",
            id="the budget of a rule",
        ),
        pytest.param(
            {"max_restarts": 1, "rules": (RARE,)},
            [1, 9],
            Spent(run=1, groups={"g0": 1}),
            "failed with exit code 9\nthe only restart is used up (failure.max_restarts)",
            id="the budget of the run holds for rules",
        ),
    ],
)
def test_a_run_fails_when_a_budget_is_used_up(
    options: dict[str, Any], codes: list[int], spent: Spent, details: str
) -> None:
    run = running(policy((1, 1, None), **options))
    for code in codes[:-1]:
        fail(run, 0, code)
        assert run.status.state is RunState.IN_PROGRESS
    run.end(0, codes[-1])
    assert run.status.state is RunState.FAILED
    assert run.status.spent == spent
    assert run.status.details == f"node-0 (group g0, rank 0) {details}"


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (0, "max_restarts of group g0 allows no restart"),
        (1, "the only restart is used up (max_restarts of group g0)"),
    ],
)
def test_each_group_has_its_own_budget(budget: int, reason: str) -> None:
    shapes = ((1, 1, None, {"max_restarts": budget}), (1, 1, None))
    run = running(policy(*shapes, max_restarts=5))
    fail(run, 1)
    for _ in range(budget):
        fail(run, 0)
    run.end(0, 1).end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.status.details.endswith(reason)
    groups = {"g1": 1, "g0": 1} if budget else {"g1": 1}
    assert run.status.spent == Spent(run=1 + budget, groups=groups)


def test_a_restart_is_counted_for_the_group_of_the_failed_node() -> None:
    run = running(policy((1, 1, None, {"max_restarts": 0}), (1, 1, None), max_restarts=1))
    fail(run, 1)
    assert run.status.spent == Spent(run=1, groups={"g1": 1})
    assert [run.node(rank).incarnation for rank in (0, 1)] == [1, 1]


def test_an_uncounted_restart_is_not_counted_for_the_group_either() -> None:
    shape = (1, 1, None, {"max_restarts": 0})
    run = fail(running(policy(shape, rules=(FREE,))), 0, 9)
    assert run.status.state is RunState.IN_PROGRESS
    assert run.status.spent == Spent(rules={"free": 1})


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_replica_fails_when_its_retries_are_used_up(nodes: int) -> None:
    """Each retry restarts only the failed node; after the last, the replica fails."""
    run = running(policy((1, nodes, None, {"retries": 2})))
    for used in (1, 2):
        run.end(0, 1)
        assert run.starts() == [0]
        assert (run.retries(), run.status.spent) == ({"g0/0": used}, Spent())
        assert run.notes("restart")[-1]["why"].endswith(f"; retry {used} of 2")
        run.up(0)
    run.end(0, 1).end_stopping()
    assert run.status.state is RunState.FAILED
    assert run.status.last_incarnation == 2


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(({"timeout": 5.0}, {}), id="of a replica"),
        pytest.param(({}, {"attempt_timeout": 5.0}), id="of an attempt"),
    ],
)
def test_a_missed_deadline_is_not_retried(limits: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Kubernetes: after activeDeadlineSeconds the Job has failed, with any
    backoffLimit."""
    group, more = limits
    run = running(policy((1, 2, None, {"retries": 3, **group}), **more)).tick(after=10)
    assert run.stops() == [0, 1]
    run.end_stopping()
    assert (run.status.state, run.status.last_incarnation) == (RunState.FAILED, 0)
    assert run.status.spent == Spent()


@pytest.mark.parametrize(
    ("action", "left"),
    [
        pytest.param(Action.RESTART_NODE, {"g0/0": 1, "g0/1": 1, "g1/0": 1}, id="node"),
        pytest.param(Action.RESTART_REPLICA, {"g0/1": 1, "g1/0": 1}, id="replica"),
        pytest.param(Action.RESTART_GROUP, {"g1/0": 1}, id="group"),
        pytest.param(Action.RESTART_RUN, {}, id="run"),
    ],
)
def test_restarting_a_whole_replica_resets_its_retries(
    action: Action, left: dict[str, int]
) -> None:
    """Kubernetes: a Job that is created again has its whole backoffLimit."""
    shape = (2, 2, None, {"retries": 1})
    run = running(policy(shape, (1, 1, None, {"retries": 1}), max_restarts=1, action=action))
    for rank in (0, 2, 4):
        run.end(rank, 1).up(rank)
    assert run.retries() == {"g0/0": 1, "g0/1": 1, "g1/0": 1}
    run.end(1, 1)
    assert run.retries() == left
    assert run.status.spent.run == 1


def test_restarting_the_only_node_of_a_replica_does_not_reset_its_retries() -> None:
    shape = (1, 1, None, {"retries": 1})
    run = running(policy(shape, max_restarts=1, action=Action.RESTART_NODE))
    run.end(0, 1).up(0).end(0, 1)
    assert run.status.spent == Spent(run=1, groups={"g0": 1})
    assert run.retries() == {"g0/0": 1}
