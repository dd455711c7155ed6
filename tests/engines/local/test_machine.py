"""What a node had best use of this machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from muster.engines.local import machine
from muster.plan.model import RunPlan

PlanOf = Callable[..., RunPlan]


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_limit", lambda: 12 << 20)


def test_a_control_group_s_limit_is_all_there_is() -> None:
    assert machine.count_memory() == 12 << 20
    assert machine.this_machine().memory == 12 << 20


def test_a_higher_limit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_limit", lambda: 1 << 62)
    assert machine.count_memory() < 1 << 60


@pytest.mark.parametrize(
    ("resources", "share"), [(None, 4 << 20), ({"memory": "7MiB"}, 7 << 20), ({"cpus": 1}, 4 << 20)]
)
def test_nodes_share_it_unless_they_ask(
    plan_of: PlanOf, resources: dict[str, object] | None, share: int
) -> None:
    plan = plan_of(nodes=3, **({"resources": resources} if resources else {}))
    assert machine.share_of_memory(plan, plan.groups[0], machine.this_machine()) == share
