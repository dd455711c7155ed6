"""Rules for the other containers of nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.errors import Problem
from muster.spec.models import ExtraContainer, NodeGroup
from muster.spec.placeholders import placeholders
from muster.spec.rules.structure import mount_problems, probe_problems, secrets_in_env


def container_problems(path: str, group: NodeGroup) -> Iterator[Problem]:
    """Problems of the extra containers of a group. path: of the group."""
    seen: set[str] = set()
    for number, one in enumerate(group.extra_containers):
        place = f"{path}.extra_containers[{number}]"
        if one.name in seen:
            text = f"another one is named {one.name}"
            yield Problem(f"{place}.name", text, "the names of a node's containers are unique")
        seen.add(one.name)
        yield from _own(place, one)
        yield from secrets_in_env(f"{place}.env", one.env)
        yield from mount_problems(f"{place}.mounts", one.mounts)


def _own(path: str, one: ExtraContainer) -> Iterator[Problem]:
    if one.command is not None and not (one.command and one.command[0]):
        yield Problem(f"{path}.command", "is empty", "give a program to run, or leave it out")
    if one.working_dir is not None and not one.working_dir.startswith("/"):
        text = f"{one.working_dir} is not an absolute path"
        yield Problem(f"{path}.working_dir", text, f"write /{one.working_dir}")
    yield from _mounts(f"{path}.mounts", one)
    if one.startup_probe is not None:
        yield from _probe(f"{path}.startup_probe", one)
    only_text = "only the container of the program can have it"
    for name in ("gpus", "disk", "disk_image"):
        if one.resources is not None and getattr(one.resources, name):
            yield Problem(f"{path}.resources.{name}", only_text, "give it to the group")
    for name in ("python", "shm_size"):
        if one.container is not None and getattr(one.container, name) is not None:
            yield Problem(f"{path}.container.{name}", only_text, "give it to the group")


def _mounts(path: str, one: ExtraContainer) -> Iterator[Problem]:
    for number, mount in enumerate(one.mounts):
        place = f"{path}[{number}]"
        if mount.source is None and not mount.files:
            yield Problem(place, "has neither source nor files", "give exactly one of them")
        if mount.link is not None:
            text = "only the container of the program can have links to mounts"
            yield Problem(f"{place}.link", text, "use the path of the mount")
        if "://" in (mount.source or "") and not (mount.source or "").startswith("nfs://"):
            text = "only the container of the program gets copies of URLs"
            yield Problem(f"{place}.source", text, "copy it in an init container")
        if placeholders(mount.sub_path or ""):
            text = "cannot have placeholders here: the container is made before they are known"
            yield Problem(f"{place}.sub_path", text, "mount the whole source")


def _probe(path: str, one: ExtraContainer) -> Iterator[Problem]:
    probe = one.startup_probe
    assert probe is not None
    if one.role != "sidecar":
        yield Problem(path, f"cannot be given for the role {one.role}", "only sidecars have one")
    if probe.exec_ is None and probe.tcp is None and probe.file is None:
        yield Problem(path, "has neither exec, tcp nor file", "give exactly one of them")
    yield from probe_problems(path, probe)
