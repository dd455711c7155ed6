"""Where people and clients reach what a run offers, written down for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from muster.plan.model import RunPlan
from muster.plan.template import Facts


def write_endpoints(plan: RunPlan, ports: Mapping[str, int], path: Path) -> None:
    """Nothing if it offers nothing."""
    if plan.endpoints:
        facts = Facts(plan, plan.nodes[0], 0, 0, ports)
        told = {name: facts.fill(text) for name, text in plan.endpoints.items()}
        path.write_text(json.dumps(told))
