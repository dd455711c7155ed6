"""GPUs: which ones a node gets, and what the engine is asked for. There are none here, but a device
of the tests' own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engines.container.test_bodies import IMAGE, MACHINE
from muster.engines.container import checks, containers
from muster.engines.container.bodies import container_body
from muster.engines.container.gpus import Way, explained, gpus_of, way_of
from muster.engines.container.profile import ContainerSettings
from muster.node import machine
from muster.plan.model import RunPlan
from support import podman_service
from support.podman_service import PodmanService

PlanOf = Callable[..., RunPlan]
DOCKER: dict[str, Any] = {"Components": [{"Name": "Engine"}]}
PODMAN = {"Components": [{"Name": "Podman Engine"}]}


@pytest.mark.parametrize(
    ("version", "info", "way"),
    [
        (PODMAN, {"Runtimes": {"nvidia": {}}}, "podman"),
        (DOCKER, {"Runtimes": {"nvidia": {}, "runc": {}}}, "nvidia"),
        (DOCKER, {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, "cdi"),
        (DOCKER, {"CDISpecDirs": ["/etc/cdi"], "Runtimes": {"runc": {}}}, "cdi"),
        (DOCKER, {"CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices": []}, ""),
        (DOCKER, {"Runtimes": {"runc": {}}}, ""),
    ],
)
def test_how_gpus_are_asked_for(version: Any, info: Any, way: str) -> None:
    assert way_of(version, info) == way


@pytest.mark.parametrize(
    ("way", "key", "expected"),
    [
        ("nvidia", "DeviceRequests",
         [{"Driver": "nvidia", "DeviceIDs": ["3", "5"], "Capabilities": [["gpu"]]}]),
        ("cdi", "DeviceRequests",
         [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=3", "nvidia.com/gpu=5"]}]),
        ("podman", "Devices",
         [{"PathOnHost": f"nvidia.com/gpu={number}", "PathInContainer": "",
           "CgroupPermissions": ""} for number in (3, 5)]),
    ],
)  # fmt: skip
def test_each_node_has_its_own(plan_of: PlanOf, way: Way, key: str, expected: Any) -> None:
    groups = [
        {"name": "a", "nodes": 1},
        {"name": "b", "nodes": 2, "resources": {"gpus": 2}},
        {"name": "c", "resources": {"gpus": 1}},
    ]
    plan, numbers = plan_of(node_groups=groups), [0, 1, 3, 5, 6]
    assert [gpus_of(plan, slot, numbers) for slot in range(4)] == [[], [0, 1], [3, 5], [6]]
    has = replace(MACHINE, gpus=numbers, gpu_way=way)
    host = [container_body(plan, slot, IMAGE, has)["HostConfig"] for slot in range(4)]
    assert key not in host[0]
    assert host[2][key] == expected


def test_more_than_there_are_is_refused(plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(nodes=3, resources={"gpus": 1})
    given = "container", plan, ContainerSettings(), {"workers": 1}
    for numbers, has in (([], "none"), ([0, 1], "2")):
        monkeypatch.setattr(machine, "gpu_numbers", lambda numbers=numbers: numbers)
        (problem,) = checks.problems(*given)
        text = f"all nodes together need 3 GPUs, this machine has {has}"
        assert (problem.path, problem.message) == ("resources.gpus", text)
    monkeypatch.setattr(machine, "gpu_numbers", lambda: [0, 1, 2])
    assert checks.problems(*given) == []


def test_an_engine_that_has_none_says_what_to_do(podman: PodmanService, plan_of: PlanOf) -> None:
    plan = plan_of(nodes=1, resources={"gpus": 1})
    image = replace(IMAGE, id=podman_service.IMAGE)
    has = replace(MACHINE, gpus=[0], gpu_way="podman", program=Path("/usr"), python=Path("/usr"))
    body = container_body(plan, 0, image, has)
    body["HostConfig"]["Mounts"] = []
    with pytest.raises(containers.CannotStart) as caught:
        containers.create(podman.daemon, "muster-no-gpus", body)
    assert "GPU" in str(caught.value) or "nvidia-ctk" in str(caught.value)
    podman.podman("rm", "--force", "--ignore", "muster-no-gpus")


def test_other_refusals_are_as_they_are() -> None:
    assert explained("no space left") == "no space left"
    assert "nvidia-ctk cdi generate" in explained("unresolvable CDI devices nvidia.com/gpu=0")
