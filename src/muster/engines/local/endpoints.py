"""Where people and clients reach what a run offers, written down for them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

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
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(run_dir.token, flags, 0o600), "w") as file:
            file.write(token)
    told = {name: facts.fill(text) for name, text in plan.endpoints.items()}
    run_dir.endpoints.write_text(json.dumps(told))
