"""Convert plans that older versions stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOVED_TO_POLICY = ("in_order", "max_runtime", "grace_period")
_GROUP_FIELDS = ("name", "first_rank", "replicas", "nodes", "min_success")


def upgrade_plan(data: Mapping[str, Any]) -> dict[str, Any]:
    """Add a `policy` to a plan of a version without one: no restarts, and host names as stored."""
    groups = data["groups"]
    required = [i for i, group in enumerate(groups) if group["min_success"] > 0]
    policy = {name: data[name] for name in _MOVED_TO_POLICY} | {
        "groups": [{name: group[name] for name in _GROUP_FIELDS} for group in groups],
        "success": {"groups": required or list(range(len(groups)))},
    }
    nodes = [{**node, "hostname": node["fqdn"]} for node in data["nodes"]]
    return {**data, "policy": policy, "nodes": nodes}
