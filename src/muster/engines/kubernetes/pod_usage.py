"""What the metrics API of a cluster says of a pod (metrics.k8s.io: PodMetrics). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct

from muster.engines.kubernetes.pod_facts import seconds
from muster.spec.formats.quantity import parse_quantity

#: More than any machine has: what is larger was not measured.
_MOST = Decimal(1 << 62)


class PodUsage(Struct, frozen=True):
    """What all containers of a pod use."""

    #: Its name: the metrics API knows no uid.
    pod: str
    #: When it was measured (epoch seconds); None if that is not said.
    at: float | None
    #: How many CPUs were busy on average, for some seconds before that.
    cpus: float
    #: Bytes, without the page cache of files that were not used lately (Kubernetes: working set).
    memory: int


def pod_usage(found: Mapping[str, Any]) -> PodUsage | None:
    """What an object of the kind PodMetrics says; None if it cannot be read, or no container was
    measured."""
    cpus, memory = Decimal(0), Decimal(0)
    try:
        containers = list(found["containers"])
        for one in containers:
            cpus += parse_quantity(one["usage"]["cpu"])
            memory += parse_quantity(one["usage"]["memory"])
        name = str(found["metadata"]["name"])
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
    if not containers or max(cpus, memory) > _MOST:
        return None
    return PodUsage(name, seconds(found.get("timestamp")), float(cpus), int(memory))
