"""Plans that older versions stored, as this one reads them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOVED = ("in_order", "max_runtime", "grace_period")
_GROUP = ("name", "first_rank", "replicas", "nodes", "min_success")


def upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """A plan from before there was a `policy`, with one that says what it said: no restarts, and
    nodes called after their ranks."""
    groups = data["groups"]
    awaited = [i for i, group in enumerate(groups) if group["min_success"] > 0]
    policy = {name: data[name] for name in _MOVED} | {
        "groups": [{name: group[name] for name in _GROUP} for group in groups],
        "success": {"groups": awaited or list(range(len(groups)))},
    }
    nodes = [{**node, "hostname": node["fqdn"]} for node in data["nodes"]]
    return {**data, "policy": policy, "nodes": nodes}
