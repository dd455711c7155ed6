"""Which runs may share a supervisor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from muster.engines.local.sharing import shares_process
from muster.plan.model import RunPlan


@pytest.mark.parametrize(("replicas", "shared"), [(4, True), (5, False), (100_000, False)])
def test_all_replicas_of_an_array_count(
    plan_of: Callable[..., RunPlan], replicas: int, shared: bool
) -> None:
    """However few run at once: a large one keeps its supervisor busy."""
    group = {"name": "workers", "parallelism": 2, "command": ["true"], "replicas": replicas}
    assert shares_process(plan_of(node_groups=[group])) is shared
