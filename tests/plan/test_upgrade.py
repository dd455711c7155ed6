"""Plans stored by older versions."""

from __future__ import annotations

import pytest

from muster.lifecycle.policy import GroupPolicy, Policy, Strategy, Success
from muster.plan.model import RunPlan

OLD = {
    "run_id": "abc",
    "run_name": "demo-1",
    "job_id": "j",
    "job_name": "demo",
    "framework": "generic",
    "processes_per_node": 1,
    "in_order": True,
    "network": "shared",
    "network_reason": "",
    "max_runtime": 60.0,
    "grace_period": 2.0,
    "groups": [
        {
            "name": name,
            "first_rank": rank,
            "replicas": 1,
            "nodes": 1,
            "min_success": least,
            "command": ["x"],
            "args": [],
            "env": {},
            "framework_env": {},
            "resources": {"cpus": None, "memory": None, "gpus": 0, "shape": None},
            "mounts": [],
            "probe": None,
            "image": None,
        }
        for rank, (name, least) in enumerate([("server", 0), ("workers", 1)])
    ],
    "nodes": [
        {
            "rank": rank,
            "group": group,
            "replica": 0,
            "index": 0,
            "node_id": f"abc-{rank}",
            "fqdn": f"node-{rank}",
            "address": f"127.1.0.{rank + 1}",
        }
        for rank, group in enumerate(["server", "workers"])
    ],
    "ports": [],
    "artifact": None,
    "log_output": True,
    "log_directory": None,
    "notes": [],
}


def test_a_stored_plan_without_a_policy_is_read() -> None:
    plan = RunPlan.from_json(OLD)
    assert plan.policy == Policy(
        groups=(GroupPolicy("server", 0, 1, 1, 0), GroupPolicy("workers", 1, 1, 1, 1)),
        success=Success((1,)),
        in_order=True,
        max_runtime=60,
        grace_period=2,
    )
    assert plan.policy.strategy is Strategy.IN_PLACE
    assert not plan.policy.restarts
    assert [node.hostname for node in plan.nodes] == ["node-0", "node-1"]
    assert RunPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("least", [0, 1])
def test_without_required_groups_all_groups_decide_success(least: int) -> None:
    groups = [{**group, "min_success": least} for group in OLD["groups"]]  # type: ignore[dict-item]
    assert RunPlan.from_json({**OLD, "groups": groups}).policy.success == Success((0, 1))
