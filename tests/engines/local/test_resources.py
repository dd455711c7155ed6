"""The shares and limits of nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from muster.engines.local.resources import (
    Limits,
    describe_limits,
    limits_of,
    share_of_cpus,
    share_of_memory,
)
from muster.engines.machine import Machine
from muster.plan.model import ResourcePlan, RunPlan
from support.sessions import make_plan

PlanOf = Callable[..., RunPlan]

GIB = 1 << 30
SMALL = ResourcePlan(cpus=1, memory=GIB, shape="small")
LARGE = ResourcePlan(cpus=128, memory=64 * GIB, gpus=8, shape="BM.GPU4.8")


def plan(resources: ResourcePlan, nodes: int = 1) -> RunPlan:
    return make_plan("x", nodes, resources=resources)


@pytest.mark.parametrize(
    ("resources", "cpus", "memory"),
    [
        (ResourcePlan(), None, None),
        (SMALL, 1, GIB),
        (LARGE, None, None),
        (ResourcePlan(cpus=8, memory=GIB, shape="mixed"), None, GIB),
        (ResourcePlan(cpus=2, memory=8 * GIB, shape="alike"), None, None),
        (ResourcePlan(cpus=2, memory=8 * GIB), 2, 8 * GIB),
        (ResourcePlan(cpus=2, memory=64 * GIB, shape="own", exact=("cpus",)), 2, None),
    ],
)
@pytest.mark.shows("jobs/job-shape")
def test_explicit_resources_and_smaller_shapes_limit_nodes(
    resources: ResourcePlan, cpus: int | None, memory: int | None
) -> None:
    """Explicit resources are limits; those of a shape only if the machine has more."""
    machine = Machine(2, 8 * GIB, 0)
    assert limits_of(resources, machine) == Limits(cpus, memory)
    one = plan(resources, 4)
    assert share_of_cpus(one, one.groups[0], machine) == (1 if cpus is None else cpus)
    assert share_of_memory(one, one.groups[0], machine) == (memory or 2 * GIB)


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (ResourcePlan(), ""),
        (ResourcePlan(shape="local"), "shape local: each node has what this machine has"),
        (SMALL, "shape small: each node has 1 CPU, 1GiB of memory"),
        (LARGE, "shape BM.GPU4.8: each node has 4 GPUs at most"),
        (ResourcePlan(cpus=0.5, gpus=1), "each node has 0.5 CPUs, 1 GPU"),
    ],
)
def test_limits_are_described_in_words(resources: ResourcePlan, text: str) -> None:
    assert describe_limits(resources, Machine(2, 8 * GIB, 4)) == text


@pytest.mark.parametrize(
    ("resources", "share"), [(None, 4 << 20), ({"memory": "7MiB"}, 7 << 20), ({"cpus": 1}, 4 << 20)]
)
def test_nodes_share_memory_equally_unless_the_job_sets_it(
    plan_of: PlanOf, resources: dict[str, object] | None, share: int
) -> None:
    plan = plan_of(nodes=3, **({"resources": resources} if resources else {}))
    assert share_of_memory(plan, plan.groups[0], Machine(2, 12 << 20, 0)) == share
