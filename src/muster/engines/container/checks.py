"""What nodes in containers cannot have, and what differs there."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster.engines.container import bodies, containers
from muster.engines.container.profile import ContainerSettings
from muster.engines.remote import plan_checks
from muster.errors import Problem
from muster.node import machine
from muster.plan.model import MountPlan, RunPlan
from muster.spec.placeholders import placeholders
from muster.spec.quantities import format_size


def missing_mounts(engine: str, settings: ContainerSettings) -> list[Problem]:
    """Directories of the profile that are not on this machine: Podman would make them. engine: its
    name."""
    hint = f"create it, or leave it out of `mounts` in MUSTER_HOME/engines/{engine}.toml"
    return [
        Problem("", f"engine {engine} mounts {mount.source}, which is not on this machine", hint)
        for mount in settings.mounts
        if containers.is_missing(mount.source)
    ]


def problems(engine: str, plan: RunPlan, settings: ContainerSettings) -> list[Problem]:
    """Why a plan cannot run in containers. engine: its name."""
    found = missing_mounts(engine, settings)
    has = {"cpus": machine.count_cpus(), "memory": machine.count_memory()}
    for group in plan.groups:
        path = f"node_groups[{group.name}]"
        for name, there_is in has.items():
            wanted = getattr(group.resources, name)
            if wanted is not None and wanted > there_is and group.resources.demands(name):
                show = format_size if name == "memory" else "{:g}".format
                text = f"{show(wanted)} are more than this machine has: {show(there_is)}"
                found.append(Problem(f"{path}.resources.{name}", text, "use less"))
        if group.in_place == "/":
            text = f"a container of engine {engine} cannot have the machine's / in place of its own"
            found.append(Problem(f"{path}.working_dir", text, "start in a folder below it"))
        for mount in group.mounts:
            if mount.path == "/":
                text = (
                    f"engine {engine} cannot mount {mount.source} in place of a container's files"
                )
                found.append(Problem(f"{path}.mounts", text, "choose another destination"))
    return found


def notes(plan: RunPlan) -> list[str]:
    """See `Engine.notes`: of mounts that containers do not have at their paths."""
    groups = [
        replace(group, mounts=tuple(filter(_is_elsewhere, group.mounts))) for group in plan.groups
    ]
    return plan_checks.notes(replace(plan, groups=tuple(groups)))


def _is_elsewhere(mount: MountPlan) -> bool:
    return mount.kind == "url" or bool(mount.sub_path and placeholders(mount.sub_path))


def explain(plan: RunPlan, settings: ContainerSettings) -> list[str]:
    """See `Engine.explain`."""
    found: Sequence[str] = [
        f"group {group.name}: each node is a container of {bodies.image_of(group, settings)}"
        for group in plan.groups
    ]
    if bodies.has_network(plan):
        return [*found, "the run has a network of its own, on which nodes find each other by name"]
    text = (
        "nodes share the network of this machine; with network: cluster they have one of their own"
    )
    return [*found, text]
