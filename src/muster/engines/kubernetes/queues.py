"""Looks at queues of Kueue before runs wait in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.describe.words import named
from muster.engines.kubernetes.answers import understood
from muster.engines.kubernetes.cluster import CannotCall, Cluster

#: Queues that are named where one is missing.
_MOST_NAMED = 5


def why_no_queue(cluster: Cluster, name: str) -> str:
    """Why no run would start in a LocalQueue of the namespace; "" if none is known."""
    try:
        found = cluster.read("LocalQueue", name)
        with understood():
            return _why_not_active(name, found)
    except CannotCall as error:
        # a missing right is a finding of its own, and runs do not need this one
        if error.status == 403:
            return ""
        others = _names(cluster) if error.is_unknown else []
        return f"{error}; there are: {named(others, _MOST_NAMED)}" if others else str(error)


def _names(cluster: Cluster) -> list[str]:
    """The LocalQueues of the namespace; [] if they may not be listed, for which Muster has no need
    otherwise."""
    try:
        found = cluster.list("LocalQueue").items
        with understood():
            return sorted(str(one["metadata"]["name"]) for one in found)
    except CannotCall:
        return []


def _why_not_active(name: str, queue: Mapping[str, Any]) -> str:
    for one in (queue.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Active" and one.get("status") == "False":
            why = " ".join(str(one.get("message") or one.get("reason") or "").split())
            return f"queue {name} is not active: {why}"
    return ""
