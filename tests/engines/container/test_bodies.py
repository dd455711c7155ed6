"""What the engine is asked to create."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from muster.engines.container import bodies, volumes
from muster.engines.container.bodies import Machine, container_body, network_body, user_of
from muster.engines.container.pod_bodies import extra_body
from muster.engines.container.profile import ContainerSettings, HostMount
from muster.engines.container.record import Image
from muster.engines.registry import engine_named
from muster.node.serve import SETTINGS
from muster.plan.model import MountPlan, ResourcePlan, RunPlan
from muster.storage.home import Home

GIB = 1 << 30
HOME = Home(Path("/home/ana/.muster"))
MACHINE = Machine(
    home=HOME,
    settings=ContainerSettings(),
    program=Path("/program"),
    python=Path("/python"),
    start=["/muster/python/libraries/ld.so", "/muster/python/bin/python3"],
    cpus=8,
    memory=16 * GIB,
    uid=0,
    gid=0,
    rootless=False,
)
IMAGE = Image("sha256:1")

PlanOf = Callable[..., RunPlan]


def with_group(plan: RunPlan, **changes: Any) -> RunPlan:
    return replace(plan, groups=(replace(plan.groups[0], **changes),))


def host_config(plan: RunPlan, machine: Machine = MACHINE) -> dict[str, Any]:
    found = container_body(plan, 0, IMAGE, machine)["HostConfig"]
    assert isinstance(found, dict)
    return found


def binds(plan: RunPlan, machine: Machine = MACHINE) -> dict[str, tuple[str, bool]]:
    """Target -> source, and whether it is read-only."""
    mounts = host_config(plan, machine)["Mounts"]
    return {one["Target"]: (one["Source"], one["ReadOnly"]) for one in mounts}


def test_a_node_is_found_by_labels_and_told_without_secrets(plan_of: PlanOf) -> None:
    body = container_body(plan_of(nodes=2), 1, IMAGE, MACHINE)
    assert body["Labels"] == {"muster.run": "r1", "muster.slot": "1"}
    assert body["Image"] == "sha256:1"
    assert body["Entrypoint"][:2] == MACHINE.start
    assert body["Entrypoint"][-2:] == ["serve", "/muster/slot/node"]
    (variable,) = body["Env"]
    name, _, text = variable.partition("=")
    assert (name, json.loads(text)["rank"]) == (SETTINGS, 1)
    more = {"contained", "executable", "environ"}
    assert set(json.loads(text)) == {"run_id", "rank", "amounts", *more}


def test_what_an_image_preloads_is_for_its_own_programs(plan_of: PlanOf) -> None:
    image = Image("sha256:1", preload="/lib/jemalloc.so")
    settings, preload = container_body(plan_of(), 0, image, MACHINE)["Env"]
    assert preload == "LD_PRELOAD="
    environ = json.loads(settings.partition("=")[2])["environ"]
    assert environ == {"LD_PRELOAD": "/lib/jemalloc.so"}


def test_further_names(plan_of: PlanOf) -> None:
    plan = plan_of(host_aliases={"10.1.2.3": ["db", "db.example.com"]})
    assert host_config(plan)["ExtraHosts"] == ["db:10.1.2.3", "db.example.com:10.1.2.3"]


def test_a_part_of_a_mount_is_at_its_path_unless_it_differs_between_starts(
    plan_of: PlanOf,
) -> None:
    path = "/data"
    plan = plan_of(mounts=[{"source": "/data", "path": path, "sub_path": "train"}])
    assert binds(plan)[path] == ("/data/train", False)
    assert volumes.mounted(plan, 0, MACHINE) == {"/data": path}
    plan = plan_of(mounts=[{"source": "/data", "path": path, "sub_path": "${index}"}])
    assert path not in binds(plan)
    assert volumes.mounted(plan, 0, MACHINE) == {}
    assert volumes.at_paths(plan, 0, MACHINE) == frozenset()


def test_what_a_slot_has_is_at_its_path_and_given_files_are_in_memory(plan_of: PlanOf) -> None:
    files = {"files": {"app.conf": "port = 80"}, "path": "/etc/app"}
    one = {**files, "path": "/etc/one.conf", "sub_path": "app.conf"}
    own = {"source": "scratch:node/work", "path": "/work"}
    plan = plan_of(mounts=[files, one, own])
    slot, given = "/home/ana/.muster/runs/r1/containers/0", "/dev/shm/muster-r1/0"
    found = binds(plan)
    assert found["/etc/app"] == (f"{given}/MUSTER_MOUNT_APP", True)
    assert found["/etc/one.conf"] == (f"{given}/MUSTER_MOUNT_ONE_CONF/app.conf", True)
    assert found["/work"] == (f"{slot}-own/scratch/node/work", False)
    assert found["/muster/scratch/node/work"] == found["/work"]
    assert found["/muster/files/MUSTER_MOUNT_APP"] == (f"{given}/MUSTER_MOUNT_APP", False)
    assert found["/muster/slot"] == (slot, False)
    assert volumes.mounted(plan, 0, MACHINE) == {
        "files:/etc/app": "/muster/files/MUSTER_MOUNT_APP",
        "files:/etc/one.conf": "/muster/files/MUSTER_MOUNT_ONE_CONF",
        "scratch:node/work": "/muster/scratch/node/work",
    }
    assert volumes.at_paths(plan, 0, MACHINE) == {"/etc/app", "/etc/one.conf", "/work"}


@pytest.mark.parametrize(
    ("network", "mode", "internal"),
    [("shared", "host", None), ("cluster", "muster-r1", False), ("isolated", "muster-r1", True)],
)
def test_the_network_of_a_run(
    plan_of: PlanOf, network: str, mode: str, internal: bool | None
) -> None:
    plan = plan_of(nodes=2, network=network)
    body = container_body(plan, 0, IMAGE, MACHINE)
    assert body["HostConfig"]["NetworkMode"] == mode
    assert ("Hostname" in body) is bodies.has_network(plan) is (internal is not None)
    if internal is not None:
        assert network_body(plan)["Internal"] is internal
        aliases = body["NetworkingConfig"]["EndpointsConfig"][mode]["Aliases"]
        assert plan.nodes[0].hostname in aliases
        assert set(plan.nodes[0].names) <= set(aliases)


@pytest.mark.parametrize(
    ("resources", "limits", "shm"),
    [
        (ResourcePlan(), {}, 8 * GIB),
        (ResourcePlan(cpus=1.5), {"NanoCpus": 1_500_000_000}, 8 * GIB),
        (ResourcePlan(memory=GIB), {"Memory": GIB, "MemorySwap": GIB}, GIB // 2),
        # less than this machine has, just as much, and just more
        (
            ResourcePlan(memory=15 * GIB),
            {"Memory": 15 * GIB, "MemorySwap": 15 * GIB},
            15 * GIB // 2,
        ),
        (ResourcePlan(cpus=8, memory=16 * GIB), {}, 8 * GIB),
        (ResourcePlan(cpus=9, memory=17 * GIB, shape="big"), {}, 8 * GIB),
        # a shape with more than this machine has
        (ResourcePlan(cpus=64, memory=64 * GIB, shape="big"), {}, 8 * GIB),
    ],
)
def test_limits(plan_of: PlanOf, resources: ResourcePlan, limits: dict[str, int], shm: int) -> None:
    found = host_config(with_group(plan_of(nodes=1), resources=resources))
    assert {key: found[key] for key in ("NanoCpus", "Memory", "MemorySwap") if key in found} == (
        limits
    )
    assert found["ShmSize"] == shm


@pytest.mark.parametrize(
    ("image", "uid", "rootless", "user"),
    [
        ("", 0, False, ("", "")),
        ("ana", 0, False, ("ana", "")),  # root reaches all files
        ("", 1000, False, ("1000:100", "")),
        ("0", 1000, False, ("1000:100", "")),
        ("", 1000, True, ("", "")),
        ("0:0", 1000, True, ("0:0", "")),
        ("1234", 1000, True, ("1234", "keep-id:uid=1234,gid=1234")),
        ("1234:5", 1000, True, ("1234:5", "keep-id:uid=1234,gid=5")),
    ],
)
def test_the_user(image: str, uid: int, rootless: bool, user: tuple[str, str]) -> None:
    machine = replace(MACHINE, uid=uid, gid=100 if uid else 0, rootless=rootless)
    assert user_of(image, machine) == user


def test_mounts_are_at_their_paths(plan_of: PlanOf) -> None:
    mounts = (
        MountPlan("/data", "directory", "/mnt/data", "A", read_only=True),
        MountPlan("volume:kept", "volume", "/mnt/kept", "B"),
        MountPlan("scratch:run/x", "scratch", "/mnt/x", "C"),
        MountPlan("scratch:node/y", "scratch", "/mnt/y", "D"),
        MountPlan("s3://bucket/z", "url", "/mnt/z", "E"),
        MountPlan("nfs://server/out", "nfs", "/mnt/out", "F"),
    )
    plan = with_group(plan_of(nodes=1), mounts=mounts)
    machine = replace(MACHINE, exports={"server:/out": "/net/out"})
    found = binds(plan, machine)
    assert found == {
        "/muster/program": ("/program", True),
        "/muster/python": ("/python", True),
        "/muster/slot": ("/home/ana/.muster/runs/r1/containers/0", False),
        "/mnt/data": ("/data", True),
        "/mnt/kept": ("/home/ana/.muster/volumes/kept", False),
        "/mnt/x": ("/home/ana/.muster/runs/r1/scratch/x", False),
        "/mnt/y": ("/home/ana/.muster/runs/r1/containers/0-own/scratch/node/y", False),
        "/muster/scratch/node/y": (
            "/home/ana/.muster/runs/r1/containers/0-own/scratch/node/y",
            False,
        ),
        "/mnt/out": ("/net/out", False),
    }
    assert volumes.mounted(plan, 0, machine) == {
        **{one.source: one.path for one in mounts if one.path in found},
        "scratch:node/y": "/muster/scratch/node/y",
    }


def test_a_parent_is_mounted_before_what_is_in_it(plan_of: PlanOf) -> None:
    settings = ContainerSettings(mounts=(HostMount("/b", "/b/c"), HostMount("/a", "/b")))
    plan = with_group(plan_of(nodes=1), working_dir="/b/c/d")
    found = list(binds(plan, replace(MACHINE, settings=settings)))
    assert [one for one in found if one.startswith("/b")] == ["/b", "/b/c", "/b/c/d"]


def test_the_preview_is_what_is_sent(own_home: Path, plan_of: PlanOf) -> None:
    engine = engine_named("container", Home(own_home))
    groups = [{"name": "a"}, {"name": "b", "nodes": 3}]
    plan = plan_of(network="cluster", node_groups=groups)
    shown = engine.preview(plan)
    assert list(shown) == [
        "POST /networks/create",
        "POST /containers/create?name=muster-r1-0",
        "POST /containers/create?name=muster-r1-1 (node 1; nodes 2-3 of group b: as this, with "
        "names, rank, label and folder of their own)",
    ]
    network, first, second = map(json.loads, shown.values())
    assert network == network_body(plan)
    for body, slot in ((first, 0), (second, 1)):
        assert body["Labels"] == {"muster.run": "r1", "muster.slot": str(slot)}


def test_a_job_says_how_containers_are_made(plan_of: PlanOf) -> None:
    settings = {
        "pull": "always",
        "python": "/opt/python",
        "user": "1234",
        "shm_size": "1GiB",
        "ulimits": {"memlock": -1},
    }
    plan = plan_of(
        image="ghcr.io/ana/train",
        container=settings,
        node_groups=[
            {"name": "a"},
            {"name": "b", "image": "other", "container": {"pull": "never"}},
        ],
    )
    body = container_body(plan, 0, IMAGE, MACHINE)
    assert body["User"] == "1234"
    assert bodies.python_of(plan.groups[0], ContainerSettings()) == "/opt/python"
    assert bodies.python_of(plan.groups[1], ContainerSettings()) == "python3"
    assert body["HostConfig"]["ShmSize"] == GIB
    assert body["HostConfig"]["Ulimits"] == [{"Name": "memlock", "Soft": -1, "Hard": -1}]
    assert container_body(plan, 1, IMAGE, MACHINE)["User"] == ""
    wanted = {"ghcr.io/ana/train": "always", "other": "never"}
    assert bodies.images_of(plan, ContainerSettings()) == wanted


def test_other_engines_say_that_they_make_no_containers(plan_of: PlanOf, own_home: Path) -> None:
    plan = plan_of(nodes=1, image="other", container={"user": "1"})
    engine = engine_named("local", Home(own_home))
    assert [note for note in engine.notes(plan) if "container" in note or "image" in note] == [
        "group workers: image other is not used by the local engine",
        "group workers: container is not used by the local engine",
    ]


def test_programs_start_in_the_image_where_the_job_has_no_folder(plan_of: PlanOf) -> None:
    image = replace(IMAGE, working_dir="/app")
    plan = plan_of(nodes=1, command=["true"])
    assert container_body(plan, 0, image, MACHINE)["WorkingDir"] == "/app"
    there = with_group(plan, working_dir="/srv")
    assert "/srv" in binds(there)
    assert container_body(there, 0, image, MACHINE)["WorkingDir"] == "/"
    absent = replace(MACHINE, absent=["/srv"])
    assert "/srv" not in binds(there, absent)
    assert container_body(there, 0, image, absent)["WorkingDir"] == "/srv"


def test_other_containers_share_the_network_and_what_they_mount(
    own_home: Path, plan_of: PlanOf
) -> None:
    mount = {"source": "scratch:node/data", "path": "/data"}
    extra = [
        {
            "name": "fetch",
            "role": "init",
            "image": "busybox",
            "command": ["cp"],
            "node_args": ["${rank}"],
            "env": {"A": "1"},
            "mounts": [{**mount, "path": "/in"}],
            "container": {"user": "5", "pull": "always"},
            "resources": {"memory": "1GiB"},
        },
        {"name": "side", "role": "sidecar", "image": "exporter"},
    ]
    plan = plan_of(
        network="cluster",
        node_groups=[{"name": "w", "mounts": [mount], "extra_containers": extra}],
    )
    node = container_body(plan, 0, IMAGE, MACHINE)
    assert node["HostConfig"]["IpcMode"] == "shareable"
    assert bodies.images_of(plan, ContainerSettings(image="base")) == {
        "base": "missing",
        "busybox": "always",
        "exporter": "missing",
    }
    fetch, side = plan.groups[0].extra_containers
    body = extra_body(plan, 0, fetch, Image("sha256:2"), MACHINE, lambda text: f"<{text}>", 3)
    assert (body["Entrypoint"], body["Cmd"]) == (["cp"], ["<${rank}>"])
    assert body["Labels"] == {
        "muster.run": "r1",
        "muster.slot": "0",
        "muster.container": "fetch",
        "muster.incarnation": "3",
    }
    assert {"A=1", "MUSTER_RANK=<${rank}>"} <= {*body["Env"]}
    config = body["HostConfig"]
    assert config["NetworkMode"] == config["IpcMode"] == "container:muster-r1-0"
    assert config["Memory"] == GIB
    assert config["Mounts"][0]["Source"] == binds(plan)["/data"][0]
    assert config["Mounts"][0]["Target"] == "/in"
    image = Image("sha256:3", entrypoint=("/run",), command=("all",), working_dir="/srv")
    body = extra_body(plan, 0, side, image, MACHINE, str, 0)
    found = body["Entrypoint"], body["Cmd"], body["WorkingDir"]
    assert found == (["/run"], ["all"], "/srv")
    shown = engine_named("container", Home(own_home)).preview(plan)
    assert [*shown][2:] == [
        "POST /containers/create?name=muster-r1-0-fetch (init of group w)",
        "POST /containers/create?name=muster-r1-0-side (sidecar of group w)",
    ]
    assert json.loads(shown[[*shown][2]])["Cmd"] == ["${rank}"]
    assert "Entrypoint" not in json.loads(shown[[*shown][3]])


def test_what_is_mounted_in_a_mount() -> None:
    targets = ("/data", "/data/a/b", "/data/c", "/database", "/other")
    assert volumes.nested("/data", [{"Target": target} for target in targets]) == {"a", "c"}


CAN_LIMIT = {"CpuCfsQuota": True, "MemoryLimit": True}


@pytest.mark.parametrize(
    ("info", "rootless", "lacks"),
    [
        (CAN_LIMIT | {"CgroupVersion": "1"}, False, []),
        (CAN_LIMIT | {"CgroupVersion": "1"}, True, ["CPUs", "memory"]),
        (CAN_LIMIT | {"CgroupVersion": "2"}, True, []),
        (CAN_LIMIT | {"MemoryLimit": False}, False, ["memory"]),
    ],
)
def test_what_an_engine_cannot_limit(
    info: dict[str, Any], rootless: bool, lacks: list[str]
) -> None:
    assert bodies.lacking_limits(info, rootless=rootless) == lacks
