"""What nodes on other machines cannot have, for the `check` of their engines, and what differs
there."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from muster.engines import open_files
from muster.engines.least_memory import check_least_memory
from muster.errors import Problem
from muster.plan.model import MountPlan, RunPlan
from muster.secrets import redacted
from muster.spec.paths import path_in

#: Bytes that no machine has more of, for a guess at a forgotten unit.
_MOST_MEMORY = 1 << 40
#: Open files of a supervisor that are not those of nodes.
_OTHER_FILES = 24
#: Those of a node besides the files of its output: the pipes of a connection, and what is copied
#: from its host when it has ended.
_FILES_OF_NODE = 5


def check_open_files(
    plan: RunPlan, replicas: Mapping[str, int], of_connection: int = 0
) -> Problem | None:
    """Whether this process allows a supervisor, which inherits its limit, enough open files.
    of_connection: those of what carries a connection with a node, if it is not direct."""
    needed, of_node = _OTHER_FILES, _FILES_OF_NODE + of_connection
    for group in plan.groups:
        rank = next(node.rank for node in plan.nodes if node.group == group.name)
        own = [service for service in group.role.services if service.output == "own"]
        outputs = plan.processes_of(rank) + plan.ranks_of(rank) + len(own)
        at_once = min(replicas[group.name], group.parallelism or group.replicas)
        needed += at_once * group.nodes * (of_node + 2 * outputs)
    return open_files.check_open_files(needed)


def problems(engine: str, plan: RunPlan, *, own_names: bool = False) -> list[Problem]:
    """Why a plan cannot run on other machines. engine: its name. own_names: whether its nodes have
    a hosts file of their own."""
    found = [
        Problem(
            f"node_groups[{group.name}].mounts",
            f"the link {mount.link} would be created in {group.in_place} itself",
            f"use ${mount.variable} there, or a copy of the code",
        )
        for group in plan.groups
        for mount in group.mounts
        if group.in_place is not None and mount.link is not None
    ]
    found += [
        Problem(
            f"node_groups[{group.name}].resources.disk_image",
            f"engine {engine} does not make file systems for nodes",
            "leave it out: `disk` is measured, and excess is reported",
        )
        for group in plan.groups
        if group.resources.disk_image
    ]
    for group in plan.groups:
        memory = group.resources.memory
        if memory is not None:
            path = f"node_groups[{group.name}].resources.memory"
            problem = check_least_memory(memory, path, _MOST_MEMORY)
            found += [] if problem is None else [problem]
    if plan.host_aliases and not own_names:
        text = f"engine {engine} does not change the hosts files of its machines"
        found.append(Problem("host_aliases", text, "use addresses, or add the names there"))
    if plan.environment is not None and plan.environment.conda is not None:
        text = f"engine {engine} does not create conda environments on the machines of its nodes"
        hint = "use requirements, or install them in the Python that runs jobs there"
        found.append(Problem("conda", text, hint))
    return found


def _mounts(plan: RunPlan) -> list[MountPlan]:
    """The mounts of all groups, each source once."""
    return list({m.source: m for group in plan.groups for m in group.mounts}.values())


def notes(plan: RunPlan, mounted: Collection[str] = ()) -> list[str]:
    """What differs from a run on one machine, for people. mounted: the sources of mounts that the
    infrastructure makes."""
    several = len(plan.nodes) > 1
    mounts = [mount for mount in _mounts(plan) if mount.source not in mounted]
    found = [note for mount in mounts for note in _notes_of(mount, several=several)]
    lines = () if plan.environment is None else plan.environment.requirements
    paths = [path for line in lines if (path := path_in(line)) is not None]
    return [
        *found,
        *(f"requirement {path} has to be on the machines, at this path" for path in paths),
    ]


def _notes_of(mount: MountPlan, *, several: bool) -> list[str]:
    found, source = [], redacted(mount.source)
    if mount.kind == "files":
        source = "its files"
    if not mount.path.startswith("/mnt/") and mount.path != mount.source:
        found.append(f"{mount.path} is not there: nodes find {source} at ${mount.variable}")
    if mount.kind in ("directory", "url") and several:
        where = "on machines without this directory, " if mount.kind == "directory" else ""
        found.append(
            f"{source}: {where}each node has a copy, and sees files of other nodes only when it "
            "starts anew after they have ended"
        )
    if mount.kind == "nfs":
        found.append(f"{source} has to be mounted on the machines, at any path; it is used there")
    if mount.kind in ("directory", "nfs") and mount.read_only:
        found.append(f"{source} is not read-only on machines that have it")
    if mount.source.startswith("scratch:run/") and several:
        found.append(
            f"{mount.source} is not shared: each node has its own, without what others write"
        )
    return found
