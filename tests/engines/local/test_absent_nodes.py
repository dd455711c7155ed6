"""Which removed nodes the others are told of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from muster.engines.local.absent_nodes import AbsentNodes
from muster.frameworks.base import Answers, Check, RoleSetup, Service, Succeeds
from muster.plan.model import RunPlan

PlanOf = Callable[..., RunPlan]


def check(*ranks: int) -> Succeeds:
    return Succeeds(("true",), expected=tuple((rank, f"node-{rank}") for rank in ranks))


def planned(plan_of: PlanOf, *roles: RoleSetup, **more: Any) -> RunPlan:
    """A group of four nodes for each role: `g0`, `g1`. more: fields of the groups."""
    groups = [{"name": f"g{number}", "replicas": 4, **more} for number in range(len(roles))]
    plan = plan_of(node_groups=groups)
    with_roles = zip(plan.groups, roles, strict=True)
    return replace(plan, groups=tuple(replace(group, role=role) for group, role in with_roles))


@pytest.mark.parametrize(
    "role",
    [
        RoleSetup(gather=check(1, 2, 5)),
        RoleSetup((Service("s", ("true",), after=check(1, 2), ready=check(5)),)),
        RoleSetup((Service("s", ("true",), ready=check(1, 2)),), gather=check(2, 5)),
    ],
)
def test_nodes_are_told_those_that_their_checks_name(plan_of: PlanOf, role: RoleSetup) -> None:
    absent = AbsentNodes(planned(plan_of, role, RoleSetup()))
    assert absent.awaited_by("g0") == []
    assert absent.add([6, 5, 1]) == {"g0": [1, 5]}
    assert absent.add([2, 7]) == {"g0": [2]}
    assert absent.add([3]) == {}
    assert (absent.awaited_by("g0"), absent.awaited_by("g1")) == ([1, 2, 5], [])
    absent.discard([1, 5, 7])
    assert absent.awaited_by("g0") == [2]
    assert absent.add([5]) == {"g0": [5]}
    assert absent.awaited_by("g0") == [2, 5]


@pytest.mark.parametrize("gather", [None, Answers("node-0", "80")])
def test_nodes_that_wait_for_no_others_are_told_nothing(
    plan_of: PlanOf, gather: Check | None
) -> None:
    absent = AbsentNodes(planned(plan_of, RoleSetup(gather=gather)))
    assert absent.add(range(3)) == {}
    assert absent.awaited_by("g0") == []


def test_nodes_of_an_array_are_told_nothing(plan_of: PlanOf) -> None:
    """However many replicas are left out: the ranks in a check are those in the replica."""
    role = RoleSetup(gather=check(0, 1))
    absent = AbsentNodes(planned(plan_of, role, nodes=2, parallelism=2))
    assert absent.add(range(6)) == {}
    assert absent.awaited_by("g0") == []
