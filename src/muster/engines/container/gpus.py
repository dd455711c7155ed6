"""GPUs of NVIDIA in containers: which ones a node gets, and how the engine is asked for them.

A node has GPUs of its own. Docker takes their numbers if it has NVIDIA's runtime, or their names as
devices of the Container Device Interface (CDI): Docker since 28.2, or as configured before.
Podman takes these names as paths of devices: through this API since 2026 (its pull request 28495).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from muster.engines.reservations.demands import share_of_gpus
from muster.plan.model import RunPlan

#: How GPUs are asked for; "": the engine has none to give.
Way = Literal["", "nvidia", "cdi", "podman"]
#: What names of NVIDIA's GPUs begin with (nvidia-ctk cdi generate).
_CDI = "nvidia.com/gpu="


def is_podman(version: Mapping[str, Any]) -> bool:
    """Whether an engine is Podman. version: its answer to GET /version."""
    return any("Podman" in part.get("Name", "") for part in version.get("Components") or ())


def way_of(version: Mapping[str, Any], info: Mapping[str, Any]) -> Way:
    """How an engine is asked for GPUs. version, info: its answers to GET /version and /info."""
    if is_podman(version):
        return "podman"
    if "nvidia" in (info.get("Runtimes") or {}):
        return "nvidia"
    # which Docker has since 28.3; before, it has the folders only
    found = [str(one.get("ID")) for one in info.get("DiscoveredDevices") or ()]
    if any(one.startswith(_CDI) for one in found):
        return "cdi"
    return "cdi" if info.get("CDISpecDirs") and "DiscoveredDevices" not in info else ""


def gpus_of(plan: RunPlan, slot: int, available: Sequence[int]) -> list[int]:
    """The numbers of the GPUs of the node in a slot. available: those of this machine."""
    shares = [share_of_gpus(plan, node.rank, len(available)) for node in plan.nodes[: slot + 1]]
    first = sum(shares[:-1])
    return list(available[first : first + shares[-1]])


def host_config(way: Way, numbers: Sequence[int]) -> dict[str, Any]:
    """What is in the body of a container for its GPUs."""
    if not numbers:
        return {}
    names = [f"{_CDI}{number}" for number in numbers]
    if way == "podman":
        return {
            "Devices": [
                {"PathOnHost": name, "PathInContainer": "", "CgroupPermissions": ""}
                for name in names
            ]
        }
    if way == "cdi":
        return {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": names}]}
    request = {"Driver": "nvidia", "DeviceIDs": list(map(str, numbers)), "Capabilities": [["gpu"]]}
    return {"DeviceRequests": [request]}


def explained(refusal: str) -> str:
    """What an engine has said when it refused a container, with what to do if it is about GPUs."""
    if f"stat {_CDI}" in refusal:
        text = "this version of Podman gives no GPUs to containers that are made through its API"
        return f"{refusal} ({text}: use a newer one, or Docker)"
    if "CDI device" in refusal or "could not select device driver" in refusal:
        text = "install the NVIDIA Container Toolkit, and run `sudo nvidia-ctk cdi generate"
        return f"{refusal} ({text} --output=/etc/cdi/nvidia.yaml`)"
    return refusal
