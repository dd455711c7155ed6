"""What pods ask for, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.spec.formats.quantity import parse_quantity
from support.kube.objects import Obj

Amounts = dict[str, float]


def numbers(quantities: Mapping[str, Any]) -> Amounts:
    return {name: float(parse_quantity(value)) for name, value in quantities.items()}


def requests_of(pod: Obj) -> Amounts:
    """What a pod, or a pod template, asks for; without init containers that end."""
    spec = pod["spec"]
    sidecars = [c for c in spec.get("initContainers", ()) if c.get("restartPolicy") == "Always"]
    total: Amounts = {}
    for container in [*spec.get("containers", ()), *sidecars]:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, value in numbers(asked).items():
            total[name] = total.get(name, 0.0) + value
    return total


def add(total: Amounts, more: Mapping[str, float], times: float = 1.0) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + times * value
