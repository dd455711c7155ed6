"""Groups that can be scaled up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muster.describe.environment import describe_values
from muster.lifecycle.states import NodeState
from muster.plan.arrange import arrange
from muster.plan.environment import node_environment
from muster.plan.model import RunPlan
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve

PlanOf = Callable[..., RunPlan]
ELASTIC: dict[str, Any] = {
    "command": "x",
    "node_groups": [
        {"name": "head"},
        {"name": "workers", "replicas": 2, "max_replicas": 4, "hostname": "worker-${replica}"},
        {"name": "last", "hostname": "last-${run.replica}"},
    ],
}


def test_all_possible_nodes_have_ranks_names_and_addresses(plan_of: PlanOf) -> None:
    plan = plan_of(ELASTIC)
    assert [node.rank for node in plan.nodes] == list(range(6))
    names = ["node-0", *[f"worker-{n}" for n in range(4)], "last-5"]
    assert [node.hostname for node in plan.nodes] == names
    assert [node.address for node in plan.nodes] == [f"shared-{n}" for n in range(6)]
    assert [(group.first_rank, group.size) for group in plan.groups] == [(0, 1), (1, 4), (5, 1)]
    scaled_down = [node.state is NodeState.SCALED_DOWN for node in plan.policy.first_nodes()]
    assert scaled_down == [False] * 3 + [True] * 2 + [False]
    assert RunPlan.from_json(plan.to_json()) == plan


def test_the_world_size_is_the_initial_one(plan_of: PlanOf) -> None:
    plan = plan_of({**ELASTIC, "processes_per_node": 2})
    env = node_environment(plan, plan.nodes[4], describe_values(plan, plan.groups[1]))
    assert (env["INITIAL_CLUSTER_SIZE"], env["NODE_COUNT"], env["NODE_RANK"]) == ("4", "4", "4")
    assert plan.groups[1].framework_env["WORLD_SIZE"] == "8"


@pytest.mark.parametrize(("given", "least"), [(None, 4), (2, 2), (0, 0)])
def test_all_replicas_must_succeed_after_scaling(
    plan_of: PlanOf, given: int | None, least: int
) -> None:
    spec = {**ELASTIC, "node_groups": [{**ELASTIC["node_groups"][1], "min_success": given}]}
    group = plan_of(spec).policy.groups[0]
    assert (group.replicas, group.desired, group.min_success) == (4, 2, least)


def test_a_group_that_cannot_be_scaled_has_no_desired_count(plan_of: PlanOf) -> None:
    group = plan_of({"command": "x", "node_groups": [{"name": "a", "replicas": 3}]}).policy.groups[
        0
    ]
    assert (group.replicas, group.desired, group.min_success) == (3, None, 3)


def test_a_run_can_start_with_more_replicas(plan_of: PlanOf) -> None:
    overrides = overrides_from_mapping({"node_groups": {"workers": {"replicas": 4}}})
    resolved = resolve(spec_from_mapping(ELASTIC), overrides)
    assert resolved.spec.node_groups[1].replicas == 4
    assert resolved.origins["node_groups[workers].max_replicas"] == "job"
    assert arrange(resolved.spec).spec == resolved.spec
