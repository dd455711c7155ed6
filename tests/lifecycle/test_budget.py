"""Budgets: what a run, a group, a rule and a replica may use up, and what gives it back."""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.policy import Action, Rule
from muster.lifecycle.states import RunState
from muster.lifecycle.status import Spent
from support.life import Life, policy, running

FREE = Rule("free", Action.RESTART_RUN, exit_codes=(9,), counted=False)
RARE = Rule("rare", Action.RESTART_RUN, exit_codes=(9,), max_restarts=1)


def fail(life: Life, rank: int, code: int = 1) -> Life:
    """A node fails of its own, everything told to end does, and all come up again."""
    life.end(rank, code).obey()
    return life.up(*(r for r, node in enumerate(life.status.nodes) if node.alive))


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
            "failed with exit code 2\nthe one restart is used up (failure.max_restarts)",
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
            "failed with exit code 2\nthe one restart is used up (failure.max_restarts)",
            id="what does not count is free",
        ),
        pytest.param(
            {"max_restarts": 9, "rules": (RARE,)},
            [1, 9, 9],
            Spent(run=2, rules={"rare": 1}, groups={"g0": 2}),
            "failed with exit code 9\nthe one restart is used up (max_restarts of rule rare)",
            id="a rule's own",
        ),
        pytest.param(
            {"max_restarts": 1, "rules": (RARE,)},
            [1, 9],
            Spent(run=1, groups={"g0": 1}),
            "failed with exit code 9\nthe one restart is used up (failure.max_restarts)",
            id="a rule's own never allows more",
        ),
    ],
)
def test_budgets(options: dict[str, Any], codes: list[int], spent: Spent, details: str) -> None:
    life = running(policy((1, 1, None), **options))
    for code in codes[:-1]:
        fail(life, 0, code)
        assert life.status.state is RunState.IN_PROGRESS
    life.end(0, codes[-1])
    assert life.status.state is RunState.FAILED
    assert life.status.spent == spent
    assert life.status.details == f"node-0 (group g0, rank 0) {details}"


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (0, "max_restarts of group g0 allows no restart"),
        (1, "the one restart is used up (max_restarts of group g0)"),
    ],
)
def test_a_group_has_a_budget_of_its_own(budget: int, said: str) -> None:
    shapes = ((1, 1, None, {"max_restarts": budget}), (1, 1, None))
    life = running(policy(*shapes, max_restarts=5))
    fail(life, 1)
    for _ in range(budget):
        fail(life, 0)
    life.end(0, 1).obey()
    assert life.status.state is RunState.FAILED
    assert life.status.details.endswith(said)
    groups = {"g1": 1, "g0": 1} if budget else {"g1": 1}
    assert life.status.spent == Spent(run=1 + budget, groups=groups)


def test_the_group_of_the_failed_node_pays_whatever_restarts() -> None:
    life = running(policy((1, 1, None, {"max_restarts": 0}), (1, 1, None), max_restarts=1))
    fail(life, 1)
    assert life.status.spent == Spent(run=1, groups={"g1": 1})
    assert [life.node(rank).incarnation for rank in (0, 1)] == [1, 1]


def test_what_does_not_count_does_not_count_for_the_group_either() -> None:
    shape = (1, 1, None, {"max_restarts": 0})
    life = fail(running(policy(shape, rules=(FREE,))), 0, 9)
    assert life.status.state is RunState.IN_PROGRESS
    assert life.status.spent == Spent(rules={"free": 1})


@pytest.mark.parametrize("nodes", [1, 2])
def test_retries_are_used_up(nodes: int) -> None:
    """Each time the failed node alone starts again; then the replica has failed."""
    life = running(policy((1, nodes, None, {"retries": 2})))
    for used in (1, 2):
        life.end(0, 1)
        assert life.starts() == [0]
        assert life.status.spent == Spent(retries={"g0/0": used})
        assert life.notes("restart")[-1]["why"].endswith(f"; retry {used} of 2")
        life.up(0)
    life.end(0, 1).obey()
    assert life.status.state is RunState.FAILED
    assert life.status.restarts == 2


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(({"timeout": 5.0}, {}), id="of a replica"),
        pytest.param(({}, {"attempt_timeout": 5.0}), id="of an attempt"),
    ],
)
def test_a_deadline_is_not_tried_again(limits: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Kubernetes: when activeDeadlineSeconds are over, the Job has failed, whatever its
    backoffLimit."""
    group, more = limits
    life = running(policy((1, 2, None, {"retries": 3, **group}), **more)).tick(after=10)
    assert life.stops() == [0, 1]
    life.obey()
    assert (life.status.state, life.status.restarts) == (RunState.FAILED, 0)
    assert life.status.spent == Spent()


@pytest.mark.parametrize(
    ("action", "left"),
    [
        pytest.param(Action.RESTART_NODE, {"g0/0": 1, "g0/1": 1, "g1/0": 1}, id="node"),
        pytest.param(Action.RESTART_REPLICA, {"g0/1": 1, "g1/0": 1}, id="replica"),
        pytest.param(Action.RESTART_GROUP, {"g1/0": 1}, id="group"),
        pytest.param(Action.RESTART_RUN, {}, id="run"),
    ],
)
def test_what_starts_again_as_a_whole_has_its_retries_again(
    action: Action, left: dict[str, int]
) -> None:
    """Kubernetes: a Job that is made anew has its whole backoffLimit."""
    shape = (2, 2, None, {"retries": 1})
    life = running(policy(shape, (1, 1, None, {"retries": 1}), max_restarts=1, action=action))
    for rank in (0, 2, 4):
        life.end(rank, 1).up(rank)
    assert life.status.spent.retries == {"g0/0": 1, "g0/1": 1, "g1/0": 1}
    life.end(1, 1)
    assert life.status.spent.retries == left
    assert life.status.spent.run == 1


def test_a_replica_that_is_restarted_as_its_only_node_keeps_what_it_has_used() -> None:
    shape = (1, 1, None, {"retries": 1})
    life = running(policy(shape, max_restarts=1, action=Action.RESTART_NODE))
    life.end(0, 1).up(0).end(0, 1)
    assert life.status.spent == Spent(run=1, groups={"g0": 1}, retries={"g0/0": 1})
