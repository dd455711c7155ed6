"""Where clients reach the services of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping

from muster.node.files import replace_file
from muster.plan.model import RunPlan
from muster.storage.home import RunDir


def write_endpoints(plan: RunPlan, ports: Mapping[str, int], token: str, run_dir: RunDir) -> None:
    """Write the addresses at which clients reach the run's services; nothing if it has none.

    token: what clients authenticate with, if a service asks for it. Only the file's owner may
    read it.
    """
    if not plan.endpoints:
        return
    from muster.plan.template import Facts

    paths = {"run.token_file": str(run_dir.token)}
    first = next(node for node in plan.nodes if not plan.group(node.group).is_array)
    facts = Facts(plan, first, 0, 0, ports, paths)
    if "token" in plan.endpoints:
        replace_file(run_dir.token, token.encode(), 0o600)
    endpoints = {name: facts.fill(text) for name, text in plan.endpoints.items()}
    replace_file(run_dir.endpoints, json.dumps(endpoints).encode())
