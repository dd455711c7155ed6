"""What the engine is asked to create: the bodies of its API's calls. Pure functions of the plan."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.engines.container.gpus import Way, gpus_of, host_config
from muster.engines.container.profile import ContainerSettings
from muster.engines.container.python import PYTHON, RUN_PYTHON
from muster.engines.container.record import Image
from muster.engines.remote.resources import amounts_of
from muster.engines.remote.server_settings import server_settings
from muster.node.control_groups import Amounts
from muster.node.serve import SETTINGS
from muster.plan.model import ContainerPlan, GroupPlan, MountPlan, NodePlan, ResourcePlan, RunPlan
from muster.storage.home import Home
from muster.storage.mount_sources import named_source, nfs_export

RUN, SLOT = "muster.run", "muster.slot"
#: What names of images begin with that were built here: no registry has them.
BUILT = "localhost/muster/"
#: Labels of the other containers of a slot: their name in the job, and the number of the
#: incarnation for which one was made.
NAME, INCARNATION = "muster.container", "muster.incarnation"
#: Where containers see the node program, and the folder of their slot: not where these are on this
#: machine, as the user of an image may not enter the folders above, if they are mounted as well.
PROGRAM, FOLDER = "/muster/program", "/muster/slot"
#: Where the container of a node has its scratch folders and given files, which it may write.
SCRATCH, FILES = "/muster/scratch", "/muster/files"
#: The folder of a node's server, in that of its slot, where the user of the image creates it.
NODE = "node"
#: Where containers see that of their server.
SERVER_FOLDER = f"{FOLDER}/{NODE}"
_NANO = 1_000_000_000
#: The most characters of an interface's name. Linux: IFNAMSIZ.
_INTERFACE = 15
#: Of Python: nothing of the environment, no packages, output at once, UTF-8 whatever the locale.
_OPTIONS = ("-I", "-S", "-u", "-X", "utf8")


class Machine(Struct, frozen=True):
    """What bodies depend on besides the plan. All of it is this machine's."""

    home: Home
    settings: ContainerSettings
    #: The folder with the node program, that with the Python which runs it, and how that is started
    #: in a container.
    program: Path
    python: Path
    start: Sequence[str]
    cpus: int
    #: Bytes of memory.
    memory: int
    #: Numeric ids of this process.
    uid: int
    gid: int
    #: Whether the engine runs as this user, and not as root.
    rootless: bool
    #: NFS export -> the directory with its files.
    exports: Mapping[str, str] = {}
    #: Directories in which groups start and which this machine lacks: they are those of images.
    absent: Collection[str] = ()
    #: The numbers of its GPUs, and how the engine is asked for them.
    gpus: Sequence[int] = ()
    gpu_way: Way = "nvidia"


def run_labels(run_id: str) -> dict[str, str]:
    """By which all that belongs to a run is found."""
    return {RUN: run_id}


def container_name(run_id: str, slot: int) -> str:
    """The name of the container of a slot."""
    return f"muster-{run_id}-{slot}"


def network_name(run_id: str) -> str:
    """The name of the run's network."""
    return f"muster-{run_id}"


def image_of(group: GroupPlan, settings: ContainerSettings) -> str:
    """The name of the image of a group."""
    return group.image or settings.image


def python_of(group: GroupPlan, settings: ContainerSettings) -> str:
    """The Python in the image of a group that runs `python` jobs: a path, or a name on PATH."""
    return group.container.python or settings.python


def images_of(plan: RunPlan, settings: ContainerSettings) -> dict[str, str]:
    """The images of a run, and when each is pulled (`ContainerSettings.pull`)."""
    found: dict[str, str] = {}
    for group in plan.groups:
        name = image_of(group, settings)
        pull = "never" if name.startswith(BUILT) else group.container.pull or settings.pull
        found.setdefault(name, pull)
        for one in group.extra_containers:
            found.setdefault(one.image, one.container.pull or settings.pull)
    return found


def has_network(plan: RunPlan) -> bool:
    """Whether the run has a network of its own. If not, nodes use the machine's."""
    return plan.own_interfaces


def network_body(plan: RunPlan) -> dict[str, Any]:
    """Of POST /networks/create."""
    return {
        "Name": network_name(plan.run_id),
        "Driver": "bridge",
        "Internal": plan.network == "isolated",
        # two engines of one machine may choose the same name at the same time
        "Options": {"com.docker.network.bridge.name": f"mu-{plan.run_id}"[:_INTERFACE]},
        "Labels": run_labels(plan.run_id),
    }


def slot_folder(home: Home, run_id: str, slot: int) -> Path:
    """The folder of a slot, which its container mounts."""
    return home.run_dir(run_id).containers / str(slot)


def server_folder(home: Home, run_id: str, slot: int) -> Path:
    """The folder of the server of a node, see `node.serve`."""
    return slot_folder(home, run_id, slot) / NODE


def container_body(plan: RunPlan, slot: int, image: Image, machine: Machine) -> dict[str, Any]:
    """Of POST /containers/create."""
    node = plan.nodes[slot]
    group = plan.group_for(node)
    container = group.container
    user, namespace = user_of(container.user or image.user, machine)
    limits = usable(group.resources, machine)
    # of another C library than the one that runs the server
    preload = {"LD_PRELOAD": image.preload} if image.preload else {}
    told = server_settings(
        *(plan, slot),
        amounts=limits._asdict(),
        contained=True,
        executable=RUN_PYTHON,
        environ=preload,
    )
    body: dict[str, Any] = {
        "Image": image.id,
        "User": user,
        "Env": [f"{SETTINGS}={json.dumps(told)}", *(f"{name}=" for name in preload)],
        "Entrypoint": [*machine.start, *_OPTIONS, PROGRAM, "serve", SERVER_FOLDER],
        "Cmd": [],
        "WorkingDir": _folder_of_image(plan, group, image, machine),
        "Labels": {**run_labels(plan.run_id), SLOT: str(slot)},
        # it is removed when its node has ended: there is nothing to wait for
        "StopTimeout": 1,
        "HostConfig": {
            "NetworkMode": network_name(plan.run_id) if has_network(plan) else "host",
            "Mounts": node_binds(plan, slot, machine),
            "ShmSize": container.shm_size or (limits.memory or machine.memory) // 2,
            "Ulimits": ulimits_of(container),
            **security_of(container),
            "ExtraHosts": extra_hosts(plan),
            **limits_of(limits),
            **host_config(machine.gpu_way, gpus_of(plan, slot, machine.gpus)),
        },
    }
    if namespace:
        body["HostConfig"]["UsernsMode"] = namespace
    if group.extra_containers:
        body["HostConfig"]["IpcMode"] = "shareable"
    if has_network(plan):
        body["Hostname"] = node.hostname
        names = list(dict.fromkeys([node.hostname, node.fqdn, *node.names]))
        endpoint = {"Aliases": [name for name in names if name]}
        body["NetworkingConfig"] = {"EndpointsConfig": {network_name(plan.run_id): endpoint}}
    return body


def _folder_of_image(plan: RunPlan, group: GroupPlan, image: Image, machine: Machine) -> str:
    """Where programs start, if that is in the image: the engine makes it unless it is there."""
    if group.in_place is not None and group.in_place in machine.absent:
        return group.in_place
    starts_there = plan.artifact is None and group.working_dir is None
    return (starts_there and image.working_dir) or "/"


def ulimits_of(container: ContainerPlan) -> list[dict[str, Any]]:
    """In the words of `HostConfig`."""
    return [
        {"Name": name, "Soft": limit, "Hard": limit} for name, limit in container.ulimits.items()
    ]


def security_of(container: ContainerPlan) -> dict[str, Any]:
    """What concerns security, in the words of `HostConfig`."""
    options = ["no-new-privileges"] if container.no_new_privileges else []
    if container.seccomp == "unconfined":
        options.append("seccomp=unconfined")
    found = {
        "GroupAdd": [str(number) for number in container.groups],
        "CapAdd": list(container.cap_add),
        "CapDrop": list(container.cap_drop),
        "Privileged": container.privileged,
        "ReadonlyRootfs": container.read_only,
        "SecurityOpt": options,
    }
    return {name: value for name, value in found.items() if value}


def why_root(container: ContainerPlan, user: str) -> str:
    """Why a container that is not to run as root cannot be made, as a phrase; "" if it can. user:
    the one that it runs as. Kubernetes: a name may be that of root, so it has to be a number."""
    number = user.partition(":")[0]
    if not container.non_root or (number.isdigit() and int(number)):
        return ""
    who = "its image runs as root" if number in ("", "0", "root") else f"{number} may be root"
    return f"{who}, and non_root is set: give container.user a number"


def extra_hosts(plan: RunPlan) -> list[str]:
    """Further lines of the containers' hosts files."""
    return [f"{name}:{address}" for address, names in plan.host_aliases.items() for name in names]


def user_of(image_user: str, machine: Machine) -> tuple[str, str]:
    """The user of a container, and how its user namespace is made; "": as the engine does. Files
    that nodes write belong to the submitter, and the submitter reaches the socket of the server."""
    number, _, group = image_user.partition(":")
    if machine.rootless:
        # root there is the submitter already
        if number in ("", "0", "root"):
            return image_user, ""
        return image_user, f"keep-id:uid={number},gid={group or number}"
    if machine.uid == 0:  # who reaches every file
        return image_user, ""
    return f"{machine.uid}:{machine.gid}", ""


def usable(resources: ResourcePlan, machine: Machine) -> Amounts:
    """What a node may use: what a shape has, as far as this machine has more."""
    amounts = amounts_of(resources)._replace(required=())
    cpus, memory = amounts.cpus, amounts.memory
    return amounts._replace(
        cpus=None if cpus is None or cpus >= machine.cpus else cpus,
        memory=None if memory is None or memory >= machine.memory else memory,
    )


def lacking_limits(info: Mapping[str, Any], *, rootless: bool) -> list[str]:
    """What an engine cannot limit: "CPUs", "memory". info: its answer to GET /info."""
    limits = {"CPUs": info.get("CpuCfsQuota"), "memory": info.get("MemoryLimit")}
    # an engine of a user has no control groups of version 1, whatever Podman says
    has_none = rootless and cgroup_version(info) == "1"
    return [one for one, can in limits.items() if has_none or not can]


def cgroup_version(info: Mapping[str, Any]) -> str:
    """Of the kernel's control groups, as in `lacking_limits`."""
    return str(info.get("CgroupVersion", "1"))


def limits_of(amounts: Amounts) -> dict[str, Any]:
    """In the words of `HostConfig`."""
    limits = dict[str, Any]()
    if amounts.cpus is not None:
        limits["NanoCpus"] = round(amounts.cpus * _NANO)
    if amounts.memory is not None:
        limits["Memory"] = limits["MemorySwap"] = amounts.memory  # the sum with swap
    return limits


# --- mounts


def source_of(mount: MountPlan, plan: RunPlan, machine: Machine) -> str:
    """The directory of this machine that a mount shows, or of which it shows a part; "" if it is
    one of the slot (`volumes.whole_source`), or a copy of what is at a URL."""
    if mount.kind == "directory":
        return os.path.realpath(mount.source)
    if mount.kind == "nfs":
        return machine.exports.get(nfs_export(mount.source), "")
    if mount.kind in ("scratch", "volume"):
        named = named_source(mount.source)
        if named.of == "home":
            return str(machine.home.volume(named.name))
        if named.of == "run":
            return str(machine.home.run_dir(plan.run_id).scratch(named.name))
    return ""


def node_binds(plan: RunPlan, slot: int, machine: Machine) -> Sequence[Mapping[str, Any]]:
    """All that the container of a node has of this machine."""
    from muster.engines.container import volumes

    node: NodePlan = plan.nodes[slot]
    group = plan.group_for(node)
    folder = str(slot_folder(machine.home, plan.run_id, slot))
    found = [
        _bind(str(machine.program), PROGRAM, read_only=True),
        _bind(str(machine.python), PYTHON, read_only=True),
        _bind(folder, FOLDER),
    ]
    found += profile_binds(machine)
    if group.in_place is not None and group.in_place not in machine.absent:
        found.append(_bind(group.in_place, group.in_place))
    writable = volumes.writable(group.mounts, plan, slot, machine)
    found += [_bind(source, target) for target, source in writable.items()]
    found += binds_of(group.mounts, plan, slot, machine)
    return in_order(found)


def profile_binds(machine: Machine) -> list[dict[str, Any]]:
    """What every container has by the profile."""
    return [_bind(one.source, one.target, one.read_only) for one in machine.settings.mounts]


def binds_of(
    mounts: Sequence[MountPlan], plan: RunPlan, slot: int, machine: Machine
) -> list[dict[str, Any]]:
    """What a container in a slot has at the paths of these mounts."""
    from muster.engines.container import volumes

    return [
        _bind(source, mount.path, mount.read_only)
        for mount in mounts
        if (source := volumes.source_at_path(mount, plan, slot, machine))
    ]


def in_order(binds: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A parent before what is in it; of several at one path, the last."""
    by_target = {one["Target"]: one for one in binds}
    return [by_target[target] for target in sorted(by_target)]


def _bind(source: str, target: str, read_only: bool = False) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
