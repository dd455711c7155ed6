"""What keeps a plan from running on this machine, and what runs differently here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from muster.engines.local.capacity import (
    check_added_disk,
    check_added_gpus,
    check_disk,
    check_fit,
    disk_notes,
    shape_notes,
)
from muster.engines.local.namespaces import check_setting, unavailable_reason
from muster.engines.local.resources import count_fitting, limits_of
from muster.engines.machine import Machine, this_machine
from muster.engines.reservations.demands import uses_gpus
from muster.errors import Problem
from muster.identity import user_name
from muster.node.free_ports import hold_port, hold_ports
from muster.plan.model import ContainerPlan, MountPlan, RunPlan
from muster.storage.home import Home


def problems(plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
    """See `Engine.check`."""
    found = check_fit(plan, this_machine(), replicas)
    found += check_setting()
    found += _check_ports(plan)
    found += check_disk(plan, root, replicas)
    found += _check_network(plan)
    found += _check_mounts(plan, root)
    found += _check_in_place(plan)
    return found


def problems_of_added(
    plan: RunPlan, root: Path, replicas: Mapping[str, int], group: str, added: int
) -> list[Problem]:
    """See `Engine.check_added`."""
    found = check_added_disk(plan, root, group, added)
    if uses_gpus(plan):
        from muster.engines.reservations.table import Reservations, visible_gpus

        run = Reservations(Home(root)).find(plan.run_id)
        gpus = visible_gpus(plan) if run is None else run.visible
        found += check_added_gpus(plan, replicas, group, len(gpus))
    return found


def notes(plan: RunPlan) -> list[str]:
    """See `Engine.notes`."""
    machine = this_machine()
    found = shape_notes(plan, machine)
    found += _array_notes(plan, machine)
    found += [
        f"group {g.name}: image {g.image} is not used by the local engine"
        for g in plan.groups
        if g.image is not None
    ]
    found += [
        f"group {g.name}: container is not used by the local engine"
        for g in plan.groups
        if g.container != ContainerPlan()
    ]
    found += disk_notes(plan)
    found += _overridden_variables(plan)
    found += _metadata_notes(plan)
    found += _port_notes(plan)
    if unavailable_reason():
        found += [
            f"{mount.path} is not read-only: without namespaces nodes see the folder itself"
            for mount in {m.path: m for g in plan.groups for m in g.mounts}.values()
            if mount.read_only and mount.kind == "directory"
        ]
        found += _unmounted(plan)
        found += _host_notes(plan)
    found += _limit_notes(plan, machine)
    return found


def _array_notes(plan: RunPlan, machine: Machine) -> Iterator[str]:
    """Notes about arrays of which more replicas run at once than the machine has CPUs for."""
    for group in plan.groups:
        fitting = count_fitting(group.resources, group.nodes, machine)
        if group.parallelism is not None and group.parallelism > fitting:
            yield (
                f"group {group.name}: {group.parallelism:,} replicas at once, on a machine "
                f"with room for {fitting:,}"
            )


# --- ports and network


def _check_ports(plan: RunPlan) -> list[Problem]:
    if plan.own_interfaces:
        return []  # each node has all ports to itself
    problems = []
    for port in plan.ports:
        if not port.can_be_kept(shared=True):
            continue
        for number in range(port.number, port.number + port.count):
            held = hold_port(number, plan.nodes[0].address if port.own else "")
            if held is None:
                text = f"port {number} is in use on this machine"
                hint = "leave it out to use a free one, or use network: cluster"
                problems.append(Problem(port.variable, text, f"choose another, {hint}"))
            else:
                held.close()
    return problems


def _port_notes(plan: RunPlan) -> list[str]:
    """Notes about ports that nodes on the shared network cannot have at their usual numbers."""
    if plan.own_interfaces:
        return []
    notes = []
    for port in plan.ports:
        if port.each and (port.fixed or port.preferred) and len(plan.nodes) > 1:
            why = "nodes that share a network cannot; with `network: cluster` they can"
            notes.append(f"not every node listens on port {port.number} ({port.name}): {why}")
        elif port.preferred and not port.each:
            held = hold_ports(port.number, port.count)
            if held is None:
                why = "in use on this machine; the run gets a free one"
                notes.append(f"port {port.number} ({port.name}) is {why}")
            for one in held or ():
                one.close()
    return notes


def _check_network(plan: RunPlan) -> list[Problem]:
    why = unavailable_reason() if plan.own_interfaces else ""
    if why:
        text = f"{plan.network} is not possible here: {why}"
        return [Problem("network", text, "use network: shared")]
    if plan.network == "cluster":
        from muster.engines.local.network import bridge

        missing = bridge.cluster_unavailable()
        if missing is not None:
            reason, advice = missing
            hint = f"{advice}, or use network: shared"
            return [Problem("network", f"cluster is not possible here: {reason}", hint)]
    return []


# --- mounts and directories

#: Folders of the system that no mount may hide.
_SYSTEM_FOLDERS = ("/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev")


def _check_mounts(plan: RunPlan, root: Path) -> list[Problem]:
    mounts = [mount for group in plan.groups for mount in group.mounts]
    if not mounts:
        return []
    from muster.engines.local.mounts import required_paths

    problems = {}
    own = required_paths(plan, Home(root))
    for mount in mounts:
        target = Path(mount.path)
        if mount.kind == "nfs" and os.geteuid() != 0:
            text = f"{mount.source} can only be mounted by root"
            hint = "mount it yourself and give the directory"
            problems[mount.source] = Problem("mounts", text, hint)
        if _shows_itself(mount):
            continue
        hidden = [
            path for path in (*map(Path, _SYSTEM_FOLDERS), *own) if path.is_relative_to(target)
        ]
        if mount.kind == "scratch":  # Muster's folders are shown again inside scratch folders
            hidden = [path for path in hidden if path == target or path not in own]
        if hidden:
            text = f"{mount.source} cannot be mounted at {target}: it would hide {hidden[0]}"
            problems[mount.path] = Problem("mounts", text, "choose a path under /mnt")
    return list(problems.values())


def _unmounted(plan: RunPlan) -> list[str]:
    """Notes about mounts that programs do not find at their path, as nothing can be mounted.

    Paths below /mnt are left out: they are defaults, and programs use the variable instead.
    """
    every = {m.path: m for g in plan.groups for m in g.mounts}.values()
    notes = []
    for mount in every:
        if not (_shows_itself(mount) or mount.path.startswith("/mnt/")):
            what = "this machine's" if Path(mount.path).is_dir() else "not there"
            source = "its files" if mount.kind == "files" else mount.source
            where = f"without namespaces nodes find {source} at ${mount.variable}"
            notes.append(f"{mount.path} is {what}: {where}")
    return notes


def _host_notes(plan: RunPlan) -> list[str]:
    """Notes about host names without a mount namespace."""
    from muster.engines.local.network.addresses import wrapper  # few runs have host names

    if not plan.host_aliases or wrapper() is not None:
        return []
    return ["host_aliases have no effect without namespaces: install libnss-wrapper"]


def _shows_itself(mount: MountPlan) -> bool:
    """Whether a mount shows a folder of this machine at its path on the machine."""
    same = os.path.realpath(mount.source) == os.path.realpath(mount.path)
    return mount.kind == "directory" and same


def _check_in_place(plan: RunPlan) -> list[Problem]:
    """Problems with the directories of this machine in which programs start."""
    problems = []
    for group in plan.groups:
        if group.in_place is None:
            continue
        path = f"node_groups[{group.name}]"
        if fault := _directory_fault(group.in_place):
            hint = "create it, or name another directory"
            problems.append(Problem(f"{path}.working_dir", f"{group.in_place} {fault}", hint))
        for mount in group.mounts:
            if mount.link is not None:
                text = f"the link {mount.link} would be created in {group.in_place} itself"
                hint = f"use ${mount.variable} or {mount.path} there, or a copy of the code"
                problems.append(Problem(f"{path}.mounts", text, hint))
    return problems


def _directory_fault(path: str) -> str:
    """Why programs cannot start in a directory of this machine; "" if they can."""
    if not os.path.isdir(path):
        return "is not a directory" if os.path.lexists(path) else "not found on this machine"
    return "" if os.access(path, os.X_OK) else f"cannot be entered by user {user_name()}"


# --- what differs from a run elsewhere


def _overridden_variables(plan: RunPlan) -> list[str]:
    """Notes about variables of the job that Muster or the framework overrides."""
    changing = [group for group in plan.groups if group.env or group.node_env]
    if not changing:
        return []
    from muster.describe.environment import overridden

    notes = []
    for group in changing:
        names = sorted(overridden(plan, group))
        if names:
            verb = "is" if len(names) == 1 else "are"
            text = f"{', '.join(names)} {verb} set by Muster, not by the job"
            notes.append(f"group {group.name}: {text}")
    return notes


def _metadata_notes(plan: RunPlan) -> list[str]:
    """Notes about groups whose nodes have no metadata file at OCI's path."""
    if len(plan.nodes) == 1:
        return []  # programs on a single node do not look for other nodes
    from muster.engines.local.node_folders import metadata_notes

    return metadata_notes(plan, unavailable_reason())


def _limit_notes(plan: RunPlan, machine: Machine) -> list[str]:
    """A note if control groups cannot enforce the limits of the nodes."""
    limits = [limits_of(group.resources, machine) for group in plan.groups]
    given = {
        "cpu": any(one.cpus is not None for one in limits),
        "memory": any(one.memory is not None for one in limits),
    }
    if not any(given.values()):
        return []
    from muster.node.control_groups import unenforceable  # few runs need it

    missing = unenforceable([name for name, limited in given.items() if limited])
    if not missing:
        return []
    return [
        f"{' and '.join(missing)} limits are not enforced: control groups are not writable "
        "here (see `muster doctor`)"
    ]
