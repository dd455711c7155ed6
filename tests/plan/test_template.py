"""Placeholders of framework environments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from muster.frameworks.base import Port
from muster.lifecycle.policy import GroupPolicy, Policy, Success
from muster.plan.model import GroupPlan, NodePlan, ResourcePlan, RunPlan
from muster.plan.template import Facts

PlanOf = Callable[..., RunPlan]


def plan() -> RunPlan:
    group = GroupPlan("workers", 0, 2, 1, ("true",), (), {}, {}, ResourcePlan())
    nodes = tuple(
        NodePlan(r, "workers", r, 0, f"abc-{r}", f"w{r}.x", f"127.1.0.{r + 1}", f"w{r}")
        for r in (0, 1)
    )
    return RunPlan(
        run_id="abc",
        run_name="demo-1",
        job_id="job",
        job_name="demo",
        framework="generic",
        processes_per_node=4,
        network="shared",
        network_reason="",
        policy=Policy((GroupPolicy("workers", 0, 2, 1, 2),), Success((0,)), 60, 10),
        groups=(group,),
        nodes=nodes,
        ports=(Port("master", 29500), Port("workers", 10000, each=True, count=50)),
    )


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("plain", "plain"),
        ("${node.rank}", "1"),
        ("${node.address}/${node.fqdn}", "127.1.0.2/w1.x"),
        ("${process.rank}:${process.local_rank}", "7:3"),
        ("${roster.0.address}", "127.1.0.1"),
        ("${roster.0.fqdn}:${port.master}", "w0.x:29500"),
        ("${run.id}.${run.attempt}", "abc.2"),
        ("${rank} ${group} ${replica} ${index} ${attempt}", "1 workers 1 0 2"),
        ("${run.name} ${address} ${hostname}", "demo-1 127.1.0.2 w1"),
        ("$HOME ${HOME} $${node.rank}", "$HOME ${HOME} ${node.rank}"),
        ("${run.replica}", "1"),
        ("${group.rank}", "1"),
        ("${port.workers}-${port.workers.last}", "21000-21049"),
        ("${memory} ${memory.each} ${memory.30}b", "1000 250 300b"),
    ],
)
def test_placeholders_are_filled(template: str, value: str) -> None:
    ports = {"master": 29500, "workers.0": 20000, "workers.1": 21000}
    values = {"memory": "1000"}
    facts = Facts(plan(), plan().nodes[1], local_rank=3, attempt=2, ports=ports, values=values)
    assert facts.fill(template) == value


def test_the_rank_in_a_group_counts_all_replicas(plan_of: PlanOf) -> None:
    pair = {"name": "b", "replicas": 2, "nodes": 2, "command": ["true"]}
    made = plan_of({"node_groups": [{"name": "a", "nodes": 3, "command": ["true"]}, pair]})
    filled = [Facts(made, node, 0, 0, {}).fill("${group}${group.rank}") for node in made.nodes]
    assert filled == ["a0", "a1", "a2", "b0", "b1", "b2", "b3"]


@pytest.mark.parametrize(
    "template", ["${node.color}", "${port.other}", "${roster.9.address}", "${x}", "${run.color}"]
)
def test_unknown_placeholder_is_an_error(template: str) -> None:
    facts = Facts(plan(), plan().nodes[0], local_rank=0, attempt=0, ports={})
    with pytest.raises(LookupError):
        facts.fill(template)


def test_plan_survives_json() -> None:
    import json

    again = RunPlan.from_json(json.loads(json.dumps(plan().to_json())))
    assert again == plan()
