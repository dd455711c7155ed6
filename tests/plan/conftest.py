"""Plans of specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ArtifactPlan, ResourcePlan, RunPlan
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve

PlanOf = Callable[..., RunPlan]


@pytest.fixture
def plan_of() -> PlanOf:
    """Build the plan of a spec (a mapping) without an engine's own settings."""

    def make(
        data: dict[str, Any], artifact: ArtifactPlan | None = None, *, in_place: bool = True
    ) -> RunPlan:
        spec = resolve(spec_from_mapping(data), overrides_from_mapping({})).spec
        return build_plan(
            arrange(spec),
            Identity("r1", "demo-1", "j1", "demo"),
            artifact=artifact,
            addresses=lambda network, nodes: [f"{network}-{i}" for i in range(nodes)],
            source_kind=lambda source: "url" if "://" in source else "directory",
            shape_of=lambda name: ResourcePlan(cpus=8, shape=name),
            in_place=in_place,
        )

    return make
