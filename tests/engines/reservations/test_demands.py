"""What runs need of this machine."""

from __future__ import annotations

import pytest

from muster.engines.reservations.demands import (
    Demand,
    demand_of,
    may_reserve,
    share_of_gpus,
    uses_gpus,
)
from muster.plan.model import ResourcePlan
from support.sessions import make_plan

GIB = 1 << 30
SMALL = ResourcePlan(cpus=1, memory=GIB, shape="small")
LARGE = ResourcePlan(cpus=128, memory=64 * GIB, gpus=8, shape="BM.GPU4.8")


@pytest.mark.parametrize(
    ("resources", "demand", "reserves", "gpus"),
    [
        (ResourcePlan(), Demand(None, None, 0), False, False),
        (ResourcePlan(cpus=2), Demand(2, None, 0), True, False),
        (ResourcePlan(memory=GIB, gpus=1), Demand(None, GIB, 1), True, True),
        (SMALL, Demand(None, None, 0), False, False),
        (LARGE, Demand(None, None, 0), True, True),
        (
            ResourcePlan(cpus=2, memory=GIB, shape="own", exact=("cpus",)),
            Demand(2, None, 0),
            True,
            False,
        ),
    ],
)
def test_what_a_shape_has_is_not_demanded_and_its_gpus_are_reserved(
    resources: ResourcePlan, demand: Demand, reserves: bool, gpus: bool
) -> None:
    assert demand_of(resources) == demand
    assert may_reserve(make_plan("x", resources=resources)) is reserves
    assert uses_gpus(make_plan("x", resources=resources)) is gpus


@pytest.mark.parametrize(
    ("available", "nodes", "shares"),
    [(8, 1, [8]), (16, 2, [8, 8]), (3, 2, [2, 1]), (1, 2, [1, 0]), (0, 2, [0, 0]), (9, 1, [8])],
)
def test_gpus_of_shapes_are_divided(available: int, nodes: int, shares: list[int]) -> None:
    one = make_plan("x", nodes, resources=ResourcePlan(gpus=8, shape="BM.GPU4.8"))
    assert [share_of_gpus(one, rank, available) for rank in range(nodes)] == shares
    exact = make_plan("x", nodes, resources=ResourcePlan(gpus=2))
    assert [share_of_gpus(exact, rank, available) for rank in range(nodes)] == [2] * nodes
