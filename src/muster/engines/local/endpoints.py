"""Where people and clients reach what a run offers, written down for them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from muster.node.files import replace_file
from muster.plan.model import RunPlan
from muster.plan.template import Facts
from muster.storage.home import RunDir


def write_endpoints(plan: RunPlan, ports: Mapping[str, int], token: str, run_dir: RunDir) -> None:
    """Nothing if it offers nothing. token: what clients show, if they have to; readable by their
    owner alone."""
    if not plan.endpoints:
        return
    places = {"run.token_file": str(run_dir.token)}
    facts = Facts(plan, plan.nodes[0], 0, 0, ports, places)
    if "token" in plan.endpoints:
        replace_file(run_dir.token, token.encode(), 0o600)
    told = {name: facts.fill(text) for name, text in plan.endpoints.items()}
    replace_file(run_dir.endpoints, json.dumps(told).encode())
