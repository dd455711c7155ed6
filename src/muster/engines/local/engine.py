"""The local engine: nodes are process trees on this machine. It needs nothing installed."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from muster.engines.local.capacity import (
    check_added,
    check_disk,
    check_fit,
    disk_notes,
    shape_notes,
)
from muster.engines.local.namespaces import Isolation, check_setting, unavailable_reason
from muster.engines.local.network import addresses
from muster.engines.local.resources import (
    Machine,
    describe_limits,
    limits_of,
    may_reserve,
    this_machine,
)
from muster.errors import EngineError, Problem
from muster.identity import user_name
from muster.plan.model import MountPlan, RunPlan
from muster.storage.home import Home

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from muster.describe.stacks import ThreadStack
    from muster.engines.admission import Shortage
    from muster.engines.base import (
        Claim,
        InProgress,
        NodeCommand,
        Record,
        RunContext,
        RunningNode,
        Session,
    )
    from muster.lifecycle.status import NodeRef
    from muster.plan.model import ResourcePlan
    from muster.storage.home import RunDir
    from muster.storage.usage import Counters


class LocalEngine:
    """See `engines.base.Engine`. isolation: what `create_namespaces` returned for the run."""

    name = "local"
    in_place = True

    def __init__(self, isolation: Isolation | None = None) -> None:
        self._isolation = isolation or Isolation("plain", reason="no namespaces were created")

    def check(self, plan: RunPlan, root: Path) -> list[Problem]:
        """See `Engine.check`."""
        problems = check_fit(plan, this_machine())
        problems += check_setting()
        problems += _check_ports(plan)
        problems += check_disk(plan, root)
        problems += _check_network(plan)
        problems += _check_mounts(plan, root)
        problems += _check_in_place(plan)
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
        notes += _overridden_variables(plan)
        notes += _metadata_notes(plan)
        notes += _port_notes(plan)
        if unavailable_reason():
            notes += [
                f"{mount.path} is not read-only: without namespaces nodes see the folder itself"
                for mount in {m.path: m for g in plan.groups for m in g.mounts}.values()
                if mount.read_only and mount.kind == "directory"
            ]
            notes += _unmounted(plan)
        notes += _limit_notes(plan, machine)
        return notes

    def check_added(self, plan: RunPlan, root: Path, group: str, added: int) -> list[Problem]:
        """See `Engine.check_added`."""
        return check_added(plan, root, group, added)

    def limits(self, resources: Mapping[str, ResourcePlan]) -> dict[str, str]:
        """See `Engine.limits`."""
        machine = this_machine()
        texts = {name: describe_limits(given, machine) for name, given in resources.items()}
        return {name: text for name, text in texts.items() if text}

    def may_queue(self, plan: RunPlan) -> bool:
        """See `Engine.may_queue`."""
        return may_reserve(plan)

    def reserve(self, home: Home, claim: Claim, in_progress: InProgress, record: Record) -> None:
        """See `Engine.reserve`."""
        from muster.engines.local import reserve  # few runs reserve anything

        reserve.reserve(home, claim, in_progress, record)

    def reserve_again(
        self, home: Home, claim: Claim, in_progress: InProgress
    ) -> Sequence[Shortage]:
        """See `Engine.reserve_again`."""
        from muster.engines.local import reserve

        return reserve.reserve_again(home, claim, in_progress)

    def reserve_scaled(
        self, home: Home, claim: Claim, in_progress: InProgress
    ) -> Sequence[Shortage]:
        """See `Engine.reserve_scaled`."""
        from muster.engines.local import reserve

        return reserve.reserve_scaled(home, claim, in_progress)

    def drop_lapsed_reservations(self, home: Home) -> None:
        """See `Engine.drop_lapsed_reservations`."""
        from muster.engines.local.reservations import Reservations

        Reservations(home).drop_lapsed()

    def waiting(self, home: Home) -> dict[str, str]:
        """See `Engine.waiting`."""
        from muster.engines.local import reserve

        return reserve.waiting(home)

    def started_ranks(self, folder: RunDir, refs: Iterable[NodeRef]) -> frozenset[int]:
        """See `Engine.started_ranks`."""
        from muster.engines.local.nodes import started_ranks  # few commands recover a run

        return started_ranks(folder, refs)

    def clean_up(self, run_id: str) -> None:
        """See `Engine.clean_up`."""
        from muster.engines.local.limits import remove_cgroups

        remove_cgroups(run_id)

    def open(self, context: RunContext) -> Session:
        """See `Engine.open`."""
        plan = context.plan
        if plan.own_interfaces and not self._isolation.namespaces:
            # the nodes' interfaces would be created in the machine's network
            text = f"network: {plan.network} needs namespaces: {self._isolation.reason}"
            raise EngineError(text)
        # imported here because most processes only check plans
        from muster.engines.local.session import LocalSession

        if not may_reserve(plan):
            return LocalSession(context, self._isolation)
        from muster.engines.local.queued import QueuedSession

        return QueuedSession(context, partial(LocalSession, context, self._isolation))

    def counters(self, folder: RunDir, supervisor: int) -> dict[int, Counters]:
        """See `Engine.counters`."""
        from muster.engines.local import counters, entry, gpu_usage

        if not os.path.exists("/proc/self/stat"):
            raise EngineError("resource usage is not measured here: this system has no /proc")
        agents = entry.find_agents(folder, supervisor)
        found = counters.read_nodes(agents.values())
        gpus = gpu_usage.read_gpus()
        return {
            rank: gpu_usage.with_gpus(found[pid].counters, pid, gpus)
            for rank, pid in agents.items()
            if pid in found
        }

    def stacks(
        self, folder: RunDir, supervisor: int, ranks: Collection[int]
    ) -> tuple[list[ThreadStack], list[str]]:
        """See `Engine.stacks`."""
        from muster.engines.local.stacks import read_stacks

        return read_stacks(folder, supervisor, ranks)

    def forward(
        self, node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> int:
        """See `Engine.forward`."""
        from muster.engines.local.forward import forward

        return forward(node, hosts, port, listener)

    def run_in_node(
        self, node: RunningNode, command: NodeCommand, stdio: tuple[int, int, int]
    ) -> int:
        """See `Engine.run_in_node`."""
        from muster.engines.local import entry  # few processes enter a node

        return entry.run(node, command, stdio)


def _check_ports(plan: RunPlan) -> list[Problem]:
    if plan.own_interfaces:
        return []  # each node has all ports to itself
    problems = []
    for port in plan.ports:
        if not port.can_be_kept(shared=True):
            continue
        for number in range(port.number, port.number + port.count):
            held = addresses.hold_port(number, plan.nodes[0].address if port.own else "")
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
            held = addresses.hold_ports(port.number, port.count)
            if held is None:
                why = "in use on this machine; the run gets a free one"
                notes.append(f"port {port.number} ({port.name}) is {why}")
            for one in held or ():
                one.close()
    return notes


def _limit_notes(plan: RunPlan, machine: Machine) -> list[str]:
    """A note if control groups cannot enforce the limits of the nodes."""
    limits = [limits_of(group.resources, machine) for group in plan.groups]
    cpus = any(one.cpus is not None for one in limits)
    memory = any(one.memory is not None for one in limits)
    if not (cpus or memory):
        return []
    from muster.engines.local.limits import unenforceable  # few runs need it

    missing = unenforceable(cpus, memory)
    if not missing:
        return []
    return [
        f"{' and '.join(missing)} limits are not enforced: control groups are not writable "
        "here (see `muster doctor`)"
    ]


def _metadata_notes(plan: RunPlan) -> list[str]:
    """Notes about groups whose nodes have no metadata file at OCI's path."""
    if len(plan.nodes) == 1:
        return []  # programs on a single node do not look for other nodes
    from muster.engines.local.node_folders import metadata_notes

    return metadata_notes(plan, unavailable_reason())


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
            where = f"without namespaces nodes find {mount.source} at ${mount.variable}"
            notes.append(f"{mount.path} is {what}: {where}")
    return notes


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


def _shows_itself(mount: MountPlan) -> bool:
    """Whether a mount shows a folder of this machine at its path on the machine."""
    same = os.path.realpath(mount.source) == os.path.realpath(mount.path)
    return mount.kind == "directory" and same


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
