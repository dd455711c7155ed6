"""A fixture that builds the plan of a spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.kinds import classify_source
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve

PlanOf = Callable[..., RunPlan]


@pytest.fixture
def plan_of() -> PlanOf:
    """Make a plan from the fields of a spec; the default command is `true`."""

    def make(**spec: Any) -> RunPlan:
        data = {"name": "demo", "command": ["true"], **spec}
        return build_plan(
            arrange(resolve(spec_from_mapping(data), overrides_from_mapping({})).spec),
            Identity("r1", "demo-1", "j1", "demo"),
            artifact=None,
            addresses=lambda network, nodes: [f"127.5.0.{i + 1}" for i in range(nodes)],
            source_kind=classify_source,
            shape_of=lambda name: ResourcePlan(shape=name),
        )

    return make
