"""What nodes in containers cannot have, and what differs there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from muster.engines.container import bodies, containers
from muster.engines.container.profile import ContainerSettings
from muster.engines.container.python import python_command
from muster.engines.remote import plan_checks
from muster.engines.reservations.demands import count_gpus, count_gpus_of, uses_gpus
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


def problems(
    engine: str, plan: RunPlan, settings: ContainerSettings, replicas: Mapping[str, int]
) -> list[Problem]:
    """Why a plan cannot run in containers. engine: its name. replicas: how many of each group."""
    found = missing_mounts(engine, settings)
    if uses_gpus(plan):
        available = len(machine.gpu_numbers())
        needed = count_gpus_of(plan, replicas, available)
        if needed > available:
            text = f"all nodes together need {count_gpus(needed)}, this machine has"
            hint = "leave gpus out to run on CPUs" if not available else "use fewer nodes or GPUs"
            found.append(Problem("resources.gpus", f"{text} {available or 'none'}", hint))
    try:
        python_command()
    except OSError as error:
        text = f"engine {engine} cannot serve nodes with this Python: {error}"
        found.append(Problem("engine", text, "run Muster with another one"))
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


def absent_folders(plan: RunPlan) -> list[str]:
    """Directories in which groups start and which this machine lacks: they are those of images."""
    folders = [group.in_place for group in plan.groups if group.in_place is not None]
    return [folder for folder in folders if containers.is_missing(folder)]


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
    found = [
        *found,
        *(
            f"{folder} is that of the image: this machine has none"
            for folder in absent_folders(plan)
        ),
    ]
    if bodies.has_network(plan):
        return [*found, "the run has a network of its own, on which nodes find each other by name"]
    text = (
        "nodes share the network of this machine; with network: cluster they have one of their own"
    )
    return [*found, text]
