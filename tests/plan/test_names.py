"""Host names of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from muster.plan.model import NodePlan, RunPlan
from muster.plan.names import names_found_by, node_names, with_names

PlanOf = Callable[..., RunPlan]


def two(**group: Any) -> dict[str, Any]:
    return {"command": "x", "node_groups": [{"name": "w", "nodes": 2, **group}]}


@pytest.mark.shows("distributed-jobs/metadata-example-fqdn")
@pytest.mark.parametrize(
    ("data", "hostname", "fqdn", "names"),
    [
        (two(), "node-1", "node-1", ()),
        (two() | {"subdomain": "lab"}, "node-1", "node-1.lab", ("node-1.lab",)),
        (two(hostname="${group}-${index}"), "w-1", "w-1", ("node-1",)),
        (
            two(hostname="${group}${replica}-${rank}") | {"subdomain": "lab"},
            "w0-1",
            "w0-1.lab",
            ("w0-1.lab", "node-1"),
        ),
        (
            {
                "command": "x",
                "node_groups": [{"name": "a"}, {"name": "b", "hostname": "r${run.replica}"}],
            },
            "r1",
            "r1",
            ("node-1",),
        ),
        (two(hostname="${run.name}-${rank}"), "demo-1-1", "demo-1-1", ("node-1",)),
        (
            two(name="NODE_GROUP_1", hostname="${group}-${index}"),
            "node-group-1-1",
            "node-group-1-1",
            ("node-1",),
        ),
    ],
)
def test_host_names_of_a_node(
    plan_of: PlanOf, data: dict[str, Any], hostname: str, fqdn: str, names: tuple[str, ...]
) -> None:
    node = plan_of(data).nodes[1]
    assert (node.hostname, node.fqdn, node.names) == (hostname, fqdn, names)


def test_host_names_follow_a_run_name_set_later(plan_of: PlanOf) -> None:
    plan = with_names(plan_of(two(hostname="${run.name}-${rank}")), "My_Job.2-7")
    assert plan.run_name == "My_Job.2-7"
    assert [node.hostname for node in plan.nodes] == ["my-job-2-7-0", "my-job-2-7-1"]


def test_a_plan_keeps_the_settings_of_a_group(plan_of: PlanOf) -> None:
    data = two(
        node_env={"SHARD": "${rank}"},
        node_args="--i ${index}",
        hostname="w-${rank}",
        hang_timeout="1m",
    )
    plan = plan_of(data | {"keep_attempts": 2, "ttl_after_finished": "1d"})
    (group,) = plan.groups
    assert (group.node_env, group.hostname) == ({"SHARD": "${rank}"}, "w-${rank}")
    assert (group.node_args, group.hang_timeout) == (("--i", "${index}"), 60)
    assert (plan.keep_attempts, plan.ttl_after_finished) == (2, 86400)


@pytest.mark.shows("jobset/headless-service")
def test_each_name_is_listed_once_with_the_full_name_first() -> None:
    node = NodePlan(3, "g", 0, 0, "r-3", "a.b", "127.5.0.4", "a", ("a.b.c", "node-3", "a"))
    assert node_names(node) == ("a.b", "a", "a.b.c", "node-3")


def test_a_node_without_aliases_has_one_name() -> None:
    node = NodePlan(3, "g", 0, 0, "r-3", "node-3", "127.5.0.4", "node-3")
    assert node_names(node) == ("node-3",)


def test_a_node_of_an_array_finds_its_own_replica_besides_the_nodes_of_no_array(
    plan_of: PlanOf,
) -> None:
    array = {
        "name": "tries",
        "nodes": 2,
        "replicas": 3,
        "parallelism": 1,
        "hostname": "t-${replica}-${index}",
    }
    plan = plan_of({"command": "x", "node_groups": [{"name": "w", "nodes": 1}, array]})
    assert [names for _, names in names_found_by(plan, plan.nodes[0])] == [("node-0",)]
    found = [names for _, names in names_found_by(plan, plan.nodes[1])]
    assert found == [("node-0",), ("t-0-0", "node-1"), ("t-0-1", "node-2")]


def test_a_node_without_an_address_is_not_found(plan_of: PlanOf) -> None:
    plan = plan_of(two())
    nodes = [replace(plan.nodes[0], address=""), plan.nodes[1]]
    assert [*names_found_by(replace(plan, nodes=nodes), nodes[1])] == [
        (nodes[1].address, ("node-1",))
    ]
