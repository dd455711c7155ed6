"""What node servers are told when they are started, whatever starts them."""

from __future__ import annotations

from typing import Any

from muster.engines.remote.resources import amounts_of
from muster.plan.model import RunPlan


def server_settings(plan: RunPlan, slot: int, shared: str = "", **more: Any) -> dict[str, Any]:
    """The settings of the server of a slot (`node.serve.Settings`), as JSON has them.

    shared: a folder there for code and environments, which the servers of a user share; "": each
    has its own. more: other settings.
    """
    resources = plan.group_for(plan.nodes[slot]).resources
    settings: dict[str, Any] = {
        "run_id": plan.run_id,
        "rank": slot,
        "amounts": amounts_of(resources)._asdict(),
    }
    if shared:
        settings |= {"archives": f"{shared}/code", "environments": f"{shared}/environments"}
    return settings | more
