"""Policies of plans, built from specs."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import convert, to_builtins

from muster.lifecycle.policy import (
    Action,
    Backoff,
    Checkpoint,
    Dependency,
    GroupPolicy,
    Policy,
    Rule,
    Strategy,
    Success,
)
from muster.lifecycle.status import Reason
from muster.plan.model import RunPlan

PlanOf = Callable[..., RunPlan]

EVERYTHING: dict[str, Any] = {
    "command": "x",
    "max_runtime": "2h",
    "grace_period": "5s",
    "attempt_timeout": "1h",
    "ready_timeout": "10m",
    "node_groups": [
        {"name": "data", "min_success": 0, "ready_timeout": "1m"},
        {
            "name": "train",
            "replicas": 2,
            "nodes": 2,
            "depends_on": [{"group": "data"}],
            "max_restarts": 2,
            "retries": 1,
            "timeout": "30m",
        },
        {"name": "report", "depends_on": [{"group": "train", "status": "complete"}]},
    ],
    "success": {"when": "any", "groups": ["report", "train"], "others": "wait"},
    "failure": {
        "max_restarts": 3,
        "action": "restart_group",
        "strategy": "blocking_recreate",
        "backoff": {"initial": "2s", "factor": 3, "max": "1m", "jitter": 0.5, "reset_after": "1h"},
        "rules": [
            {"action": "fail", "exit_codes": "2-3", "groups": ["train"]},
            {
                "name": "lost",
                "action": "restart_run",
                "reasons": ["node_lost"],
                "messages": ["ECC"],
                "count": False,
                "max_restarts": 9,
            },
            {"action": "restart_node", "signals": ["KILL", 10], "before_retries": True},
        ],
    },
    "checkpoint": {"signal": "usr2", "grace": "90s"},
}


def test_a_policy_with_every_setting(plan_of: PlanOf) -> None:
    plan = plan_of(EVERYTHING)
    assert plan.policy == Policy(
        groups=(
            GroupPolicy("data", 0, 1, 1, 0, ready_timeout=60),
            GroupPolicy("train", 1, 2, 2, 2, (Dependency(0, False),), 2, 1, 1800, 600),
            GroupPolicy("report", 5, 1, 1, 1, (Dependency(1, True),), ready_timeout=600),
        ),
        success=Success((1, 2), any_replica=True, wait=True),
        max_runtime=7200,
        grace_period=5,
        attempt_timeout=3600,
        max_restarts=3,
        action=Action.RESTART_GROUP,
        rules=(
            Rule("rule-1", Action.FAIL, ("train",), (2, 3)),
            Rule(
                "lost",
                Action.RESTART_RUN,
                reasons=(Reason.NODE_LOST,),
                messages=("ECC",),
                counted=False,
                max_restarts=9,
            ),
            Rule(
                "rule-3",
                Action.RESTART_NODE,
                signals=(signal.SIGKILL, signal.SIGUSR1),
                before_retries=True,
            ),
        ),
        strategy=Strategy.BLOCKING_RECREATE,
        backoff=Backoff(2, 3, 60, 0.5, 3600, plan.policy.backoff.seed),
        checkpoint=Checkpoint(signal.SIGUSR2, 90),
    )


def test_the_default_policy(plan_of: PlanOf) -> None:
    policy = plan_of({"command": "x", "nodes": 2}).policy
    assert policy == Policy(
        groups=(GroupPolicy("workers", 0, 1, 2, 1),),
        success=Success((0,)),
        max_runtime=30 * 86400,
        grace_period=10,
        backoff=Backoff(initial=1, longest=300, jitter=0.1, seed=policy.backoff.seed),
    )
    assert not policy.restarts


@pytest.mark.parametrize(
    ("least", "places"),
    [((1, 1), (0, 1)), ((0, 1), (1,)), ((0, 0), (0, 1))],
)
def test_groups_that_decide_success(
    plan_of: PlanOf, least: tuple[int, int], places: tuple[int, ...]
) -> None:
    groups = [{"name": name, "min_success": n} for name, n in zip("ab", least, strict=True)]
    assert plan_of({"command": "x", "node_groups": groups}).policy.success.groups == places


@pytest.mark.parametrize(
    ("given", "in_place", "strategy"),
    [
        (None, True, Strategy.IN_PLACE),
        (None, False, Strategy.RECREATE),
        ("recreate", True, Strategy.RECREATE),
        ("blocking_recreate", False, Strategy.BLOCKING_RECREATE),
    ],
)
def test_the_restart_strategy(
    plan_of: PlanOf, given: str | None, in_place: bool, strategy: Strategy
) -> None:
    data = {"command": "x", "failure": {"strategy": given}}
    assert plan_of(data, in_place=in_place).policy.strategy is strategy


def test_the_jitter_seed_of_a_run_is_stable(plan_of: PlanOf) -> None:
    seeds = {plan_of({"command": "x"}).policy.backoff.seed for _ in range(3)}
    assert len(seeds) == 1
    assert seeds != {0}


def test_a_policy_survives_json(plan_of: PlanOf) -> None:
    policy = plan_of(EVERYTHING).policy
    assert policy.first_ranks == (0, 1, 5), "computed, not stored"
    again = convert(json.loads(json.dumps(to_builtins(policy))), Policy)
    assert again == policy
    assert again.first_ranks == policy.first_ranks


def test_groups_that_only_serve(plan_of: PlanOf) -> None:
    groups = [{"name": "main"}, {"name": "workers", "nodes": 2}]
    plan = plan_of({"command": "x", "framework": "mpi", "node_groups": groups})
    assert [group.serves for group in plan.policy.groups] == [False, True]
