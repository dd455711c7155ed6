"""The engine that needs nothing: nodes are process trees of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from muster.engines.base import RunContext, Session
from muster.engines.local import cgroups, metadata, ports
from muster.engines.local.disk import check_disk, disk_notes
from muster.engines.local.isolation import Isolation, check_setting, impossible
from muster.engines.local.machine import check_fit, limits_of, shape_notes, this_machine
from muster.engines.local.mounting import lifelines
from muster.errors import Problem
from muster.plan.environment import node_environment
from muster.plan.model import MountPlan, RunPlan
from muster.storage.home import Home


class LocalEngine:
    """See `engines.base.Engine`. isolation: what `isolation.enclose` achieved for the run."""

    name = "local"
    in_place = True

    def __init__(self, isolation: Isolation | None = None) -> None:
        self._isolation = isolation or Isolation("plain", reason="not enclosed")

    def check(self, plan: RunPlan, root: Path) -> list[Problem]:
        """See `Engine.check`."""
        problems = check_fit(plan, this_machine())
        problems += check_setting()
        problems += _check_ports(plan)
        problems += check_disk(plan, root)
        problems += _check_network(plan)
        problems += _check_mounts(plan, root)
        return problems

    def notes(self, plan: RunPlan) -> list[str]:
        """See `Engine.notes`."""
        machine = this_machine()
        notes = shape_notes(plan, machine)
        notes += [
            f"group {g.name}: image {g.image} is not used by the local engine"
            for g in plan.groups
            if g.image is not None
        ]
        notes += disk_notes(plan)
        notes += _overruled(plan)
        notes += metadata.notes(plan, impossible())
        notes += _other_ports(plan)
        if impossible():
            notes += [
                f"{mount.path} is not read-only: without namespaces nodes see the folder itself"
                for mount in {m.path: m for g in plan.groups for m in g.mounts}.values()
                if mount.read_only and mount.kind == "directory"
            ]
            notes += _unseen(plan)
        limits = [limits_of(g.resources, machine) for g in plan.groups]
        absent = cgroups.missing(
            any(one.cpus is not None for one in limits),
            any(one.memory is not None for one in limits),
        )
        if absent:
            notes.append(
                f"{' and '.join(absent)} limits are not enforced: control groups are not writable "
                "here (`muster doctor` says more)"
            )
        return notes

    def open(self, context: RunContext) -> Session:
        """See `Engine.open`."""
        # only supervisors open sessions; whoever merely checks a plan is spared the import
        from muster.engines.local.session import LocalSession

        return LocalSession(context, self._isolation)


def _check_ports(plan: RunPlan) -> list[Problem]:
    if plan.own_interfaces:
        return []  # nobody else is there
    problems = []
    for port in plan.ports:
        if not port.can_be_kept(shared=True):
            continue
        for number in range(port.number, port.number + port.count):
            held = ports.hold(number, plan.nodes[0].address if port.own else "")
            if held is None:
                text = f"port {number} is in use on this machine"
                hint = "leave it out and a free one is found, or use network: cluster"
                problems.append(Problem(port.variable, text, f"choose another, {hint}"))
            else:
                held.close()
    return problems


def _other_ports(plan: RunPlan) -> list[str]:
    """What nodes that share this machine's network listen on instead of what was expected."""
    if plan.own_interfaces:
        return []
    notes = []
    for port in plan.ports:
        if port.each and (port.fixed or port.preferred) and len(plan.nodes) > 1:
            why = "nodes that share a network cannot; with `network: cluster` they can"
            notes.append(f"not every node listens on port {port.number} ({port.name}): {why}")
        elif port.preferred and not port.each:
            held = ports.hold_row(port.number, port.count)
            if held is None:
                why = "in use on this machine, the run gets a free one"
                notes.append(f"port {port.number} ({port.name}) is {why}")
            for one in held or ():
                one.close()
    return notes


def _check_network(plan: RunPlan) -> list[Problem]:
    why = impossible() if plan.own_interfaces else ""
    if why:
        text = f"{plan.network} is not possible here: {why}"
        return [Problem("network", text, "use network: shared")]
    if plan.network == "cluster":
        from muster.engines.local import doctor

        found = doctor.cluster_network()
        if not found.works:
            hint = f"{found.advice}, or use network: shared"
            return [Problem("network", f"cluster is not possible here: {found.says}", hint)]
    return []


#: Shown to every node as they are: a mount over one of them takes away what nodes live on.
_NEEDED = ("/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev")


def _check_mounts(plan: RunPlan, root: Path) -> list[Problem]:
    problems = {}
    own = lifelines(plan, Home(root))
    for mount in (m for g in plan.groups for m in g.mounts):
        target = Path(mount.path)
        if _is_itself(mount):
            continue
        hidden = [path for path in (*map(Path, _NEEDED), *own) if path.is_relative_to(target)]
        if mount.kind == "scratch":  # what is ours is shown again inside what is ours, too
            hidden = [path for path in hidden if path == target or path not in own]
        if hidden:
            text = f"{mount.source} cannot be mounted at {target}: it would hide {hidden[0]}"
            problems[mount.path] = Problem("mounts", text, "choose a path under /mnt")
    return list(problems.values())


def _unseen(plan: RunPlan) -> list[str]:
    """Mounts that programs look for where nothing can be mounted. Below /mnt nobody relies on a
    path: it may be left out, and the variable be used."""
    every = {m.path: m for g in plan.groups for m in g.mounts}.values()
    notes = []
    for mount in every:
        if not (_is_itself(mount) or mount.path.startswith("/mnt/")):
            what = "this machine's" if Path(mount.path).is_dir() else "not there"
            where = f"without namespaces nodes find {mount.source} at ${mount.variable}"
            notes.append(f"{mount.path} is {what}: {where}")
    return notes


def _is_itself(mount: MountPlan) -> bool:
    """Whether nodes see a folder of this machine where it is."""
    same = os.path.realpath(mount.source) == os.path.realpath(mount.path)
    return mount.kind == "directory" and same


def _overruled(plan: RunPlan) -> list[str]:
    """What the owner set and Muster sets too."""
    from muster.spec.oci_variables import ENTRYPOINT

    notes = []
    fixed = {port.variable.removeprefix("env.") for port in plan.ports if port.fixed}
    for group in plan.groups:
        node = plan.nodes[group.first_rank]
        ours = {*node_environment(plan, node, ""), *group.framework_env} - fixed - {ENTRYPOINT}
        taken = sorted(ours & {k for k, v in group.env.items() if group.framework_env.get(k) != v})
        if taken:
            notes.append(f"group {group.name}: {', '.join(taken)} is set by Muster, not by the job")
    return notes
