"""Start one node: reserve what it needs, describe its launch, and fork its agent."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.credentials import credentials_of
from muster.engines.endpoints import write_endpoints
from muster.engines.launch import (
    MISLEADING,
    NodePaths,
    NodeStart,
    launch_message,
    with_sub_paths,
)
from muster.engines.local import mounts, node_folders
from muster.engines.local.absent_nodes import AbsentNodes
from muster.engines.local.namespaces import Isolation
from muster.engines.local.network import addresses
from muster.engines.local.node_process import NodeSetup, fork_node
from muster.engines.local.nodes import LocalNode
from muster.engines.local.place_code import prepare_code
from muster.engines.local.resources import limits_of, share_of_cpus, share_of_memory
from muster.engines.local.roster import hosts_beside, without_arrays, write_cluster
from muster.engines.logs import NodeOutputs
from muster.engines.machine import Machine
from muster.engines.ports import Ports
from muster.engines.reservations.demands import share_of_gpus
from muster.engines.reservations.gpus import GpuPool, RunGpus
from muster.lifecycle.status import NodeRef
from muster.node import messages
from muster.node.channel import Channel
from muster.node.control_groups import NodeGroups
from muster.node.files import open_or_replace
from muster.node.launch_message import LaunchMessage
from muster.node.machine import count_cpus, count_memory
from muster.plan.environment import EngineValues, submitted
from muster.plan.model import EnvironmentPlan, GroupPlan, MountPlan, NodePlan, RunPlan
from muster.storage.artifacts import open_to_accounts
from muster.storage.entrypoint import folder_name
from muster.storage.home import RunDir
from muster.unix_account import as_root

if TYPE_CHECKING:
    from muster.engines.local.agent_pool import AgentPool
    from muster.storage.environments import Environment


#: What the nodes of an owner see in place of the folders that everybody can write to.
_TEMPORARY = tuple(
    MountPlan(f"scratch:run/{name}", "scratch", path, "")
    for name, path in ((".tmp", "/tmp"), (".var-tmp", "/var/tmp"))
)


class Starter:
    """Starts and restarts the nodes of one run, and holds what they share: ports and GPUs."""

    def __init__(
        self,
        context: RunContext,
        isolation: Isolation,
        gpus: RunGpus,
        pool: AgentPool | None = None,
    ) -> None:
        """pool: of the agents of this process, if they may run nodes of several runs."""
        plan, home = context.plan, context.home
        self._environment = prepare_environment(context)
        self._context = context if self._environment is None else self._environment.context
        self._isolation = isolation
        self._pool = pool
        #: Agents that run nodes of several runs get it pickled.
        self._for_agents = replace(self._context, environ={}, check_image=None, check_url=None)
        self._run_dir: RunDir = home.run_dir(plan.run_id)
        #: The ports of the nodes that belong to no array.
        self._held_ports = _ports(plan, len(without_arrays(plan)))
        #: The replica of an array whose nodes are in a cluster file, by its first slot.
        self._clusters: dict[int, int] = {}
        #: Those of the replicas of arrays, by their first slot.
        self._array_ports: dict[int, Ports] = {}
        self._token = os.urandom(16).hex()
        write_endpoints(plan, self._held_ports.numbers, self._token, self._run_dir)
        _write_certificates(plan, self._run_dir)
        #: With which programs act as the run; None: they do not.
        self.credentials = credentials_of(context)
        self._gpus = GpuPool(home.of_host("gpus"), gpus.numbers)
        #: The folder of each mount source.
        self.sources = mounts.source_folders(plan, home, context.owner_home)
        #: Names of the groups whose nodes have the metadata file at the path that OCI documents.
        self._documented: frozenset[str] = frozenset()
        if isolation.namespaces:
            # in a mount namespace that other runs use, nothing is mounted for this one
            prepare = node_folders.prepare_oci_folder if context.alone else node_folders.documented
            with as_root():
                self._documented = prepare(plan, self._run_dir.path)
        #: Measured once, as it takes a dozen files.
        self._machine = Machine(count_cpus(), count_memory(), gpus.visible)
        self.absent = AbsentNodes(plan)
        self._required = tuple(mounts.required_paths(plan, home))
        if context.account is not None:
            own = {one.source: self._run_dir.scratch(one.source[12:]) for one in _TEMPORARY}
            self.sources = {**self.sources, **own}
        used = [home.root, *self.sources.values()]
        used += [Path(group.in_place) for group in plan.groups if group.in_place is not None]
        #: Whether each node has a private /dev/shm. Not if the run's files are in /dev/shm.
        self._private_shm = isolation.namespaces and not any(
            path.is_relative_to("/dev/shm") for path in used
        )

    def start(self, ref: NodeRef, attempt: int, node: NodePlan, outputs: NodeOutputs) -> LocalNode:
        """Fork a new node. If that fails, raises MusterError or OSError and reserves nothing."""
        count = share_of_gpus(self._context.plan, ref.rank, self._machine.gpus)
        gpus = self._gpus.acquire(count) if count else ()
        limits = None
        try:
            limits = self._limits(node)
            launch = self._launch(ref, attempt, node, outputs, gpus)
            ours, theirs = socket.socketpair()
            ours.setblocking(False)  # the supervisor never waits for an agent
            setup = self._setup(node, attempt, limits, launch)
            agent = None
            if self._pool is not None and setup.reusable:
                agent = self._pool.start(setup, theirs)
            pid = fork_node(setup, theirs) if agent is None else agent.pid
        except BaseException:
            self._gpus.release(gpus)
            if limits is not None:
                with as_root():
                    limits.remove()
            raise
        theirs.close()
        slot = self._context.plan.slot_of(node)
        started = LocalNode(ref, attempt, node, slot, pid, Channel(ours), limits, gpus, agent)
        started.restarted = agent is not None and agent.used is not None
        started.record_oom_kills()
        return started

    def restart(
        self,
        kept: LocalNode,
        ref: NodeRef,
        attempt: int,
        node: NodePlan,
        outputs: NodeOutputs,
    ) -> None:
        """Start the next incarnation of a kept node, or the node that takes its slot. It keeps its
        limits and GPUs."""
        launch = self._launch(ref, attempt, node, outputs, kept.gpus, kept.ref)
        kept.begin_incarnation(ref, attempt, node)
        kept.channel.send(messages.Restart(launch))

    def release_gpus(self, node: LocalNode) -> None:
        """Free the GPUs of a node whose agent has ended."""
        self._gpus.release(node.gpus)

    def ended(self, slot: int) -> None:
        """An incarnation in a slot has ended."""
        if self.credentials is not None:
            self.credentials.drop(slot)

    def close(self) -> None:
        """Free the ports, and remove the nodes' short folders, and files of mounts that a killed
        agent has left; all nodes have ended."""
        for held in (self._held_ports, *self._array_ports.values()):
            held.close()
        if self.credentials is not None:
            self.credentials.remove()
        if not self._private_shm:
            from shutil import rmtree

            rmtree(short_folder(self._context.plan.run_id), ignore_errors=True)
        if not self._isolation.namespaces:
            self._remove_given_files()

    def _remove_given_files(self) -> None:
        plan = self._context.plan
        if not any(mount.files for group in plan.groups for mount in group.mounts):
            return
        from shutil import rmtree

        from muster.node.given_files import FOLDER

        for slot in range(len(plan.nodes)):
            rmtree(self._run_dir.node(slot) / FOLDER, ignore_errors=True)

    def _hides_gpus(self, group: GroupPlan) -> bool:
        """Whether a node without GPUs must not see the machine's: its shape has none."""
        resources = group.resources
        return resources.shape is not None and resources.cpus is not None and self._machine.gpus > 0

    def _limits(self, node: NodePlan) -> NodeGroups | None:
        limits = limits_of(self._context.plan.group(node.group).resources, self._machine)
        if limits.cpus is None and limits.memory is None:
            return None
        # named after the slot: a replica that takes over an agent also gets its limits
        name = f"{self._context.plan.run_id}-{self._context.plan.slot_of(node)}"
        with as_root():
            return NodeGroups(name, limits.cpus, limits.memory)

    def _launch(
        self,
        ref: NodeRef,
        attempt: int,
        node: NodePlan,
        outputs: NodeOutputs,
        gpus: tuple[int, ...],
        former: NodeRef | None = None,
    ) -> LaunchMessage:
        plan = self._context.plan
        group, slot = plan.group(node.group), plan.slot_of(node)
        if self.credentials is not None:
            self.credentials.issue(slot, ref, here=(node.address,))
        folder = self._run_dir.node(slot)
        folder.mkdir(parents=True, exist_ok=True)
        cluster_file = self._cluster_file(node)
        own = with_sub_paths(self._context, node, attempt, group.mounts)
        mounted: dict[str, str] = {}
        extra: dict[str, str] = {}
        if not self._isolation.namespaces:
            mounted = mounts.link_mounts(own, self.sources, folder)
            extra = addresses.wrapper_environment(hosts_beside(cluster_file), node)
        if group.name in self._documented:
            extra[node_folders.METADATA_VARIABLE] = str(node_folders.METADATA_FILE)
        paths = NodePaths(
            folder=folder,
            cluster_file=cluster_file,
            work=self._work(slot),
            outputs=outputs,
            tls=self._run_dir.tls,
            short=self._short(slot),
        )
        values = EngineValues(
            token=self._token,
            interface=addresses.INTERFACE if plan.own_interfaces else None,
            gpus=",".join(map(str, gpus)) if gpus or self._hides_gpus(group) else None,
            mounted=mounted,
            machine=addresses.MACHINE if plan.network == "cluster" else None,
            extra=extra,
        )
        start = NodeStart(
            attempt=attempt,
            incarnation=ref.incarnation,
            ports=self._ports_of(node),
            values=values,
            cpus=share_of_cpus(plan, group, self._machine),
            memory=share_of_memory(plan, group, self._machine),
            contained=self._isolation.namespaces,
            absent=self.absent.awaited_by(group.name),
            fresh=mounts.emptied_folders(own, folder),
            reuses_slot=former is not None and former.rank != ref.rank,
        )
        return launch_message(self._context, node, paths, start)

    def _cluster_file(self, node: NodePlan) -> Path:
        """The metadata file of the node's cluster. Each replica of an array has one of its own."""
        plan = self._context.plan
        if not plan.group(node.group).is_array:
            return self._run_dir.cluster_file
        first = plan.slot_of(node) - node.index
        path = self._run_dir.node(first) / "cluster" / "cluster.json"
        if self._clusters.get(first) != node.replica:
            write_cluster(plan, node, path, again=first in self._clusters)
            self._clusters[first] = node.replica
        return path

    def _ports_of(self, node: NodePlan) -> Mapping[str, int]:
        """The ports of the node's cluster; those of a replica of an array are reserved
        when its slots are first used."""
        plan = self._context.plan
        if not plan.group(node.group).is_array or not plan.ports:
            return self._held_ports.numbers
        first = plan.slot_of(node) - node.index
        held = self._array_ports.get(first)
        if held is None:
            held = self._array_ports[first] = _ports(plan, plan.group(node.group).nodes)
        return held.numbers

    def _work(self, slot: int) -> Path:
        """The folder of the code. It keeps its name: programs may import it as a package."""
        code = self._context.plan.artifact
        name = folder_name(code.kind, code.file_name) if code is not None else ""
        return self._run_dir.work(slot) / name

    def _short(self, slot: int) -> Path:
        if self._private_shm:
            return Path("/dev/shm/node")
        return short_folder(self._context.plan.run_id) / str(slot)

    def _install(self, output: str) -> Callable[[], None] | None:
        return None if self._environment is None else self._environment.installer(output)

    def _setup(
        self, node: NodePlan, attempt: int, limits: NodeGroups | None, launch: LaunchMessage
    ) -> NodeSetup:
        plan = self._context.plan
        group, slot = plan.group(node.group), plan.slot_of(node)
        documented = group.name in self._documented
        shown = with_sub_paths(self._context, node, attempt, group.mounts)
        shown = node_folders.with_oci_folder(shown) if documented else shown
        disk = group.resources.disk if group.resources.disk_image else None
        # what a node writes to its disk is measured, without what is mounted there
        mountable = self._isolation.namespaces and group.resources.disk is None
        account = self._context.account
        if account is not None:
            mountable = False  # the stored files are root's: an account could not change them
            shown = (*shown, *_TEMPORARY)
        mounts.order_mounts(shown, self._required)  # cached, for all nodes of the group
        return NodeSetup(
            node=node,
            isolation=self._isolation,
            network=self._context.plan.network,
            hosts=hosts_beside(self._cluster_file(node)),
            resolver=self._run_dir.resolver,
            folder=self._run_dir.node(slot),
            work=self._work(slot),
            mounts=shown,
            fixed_mounts=all(map(_is_fixed, group.mounts)),
            metadata=self._cluster_file(node) if documented else None,
            sources=self.sources,
            required=self._required,
            limits=limits,
            disk=disk,
            prepare_code=partial(_prepare_code, self._for_agents, node, mountable),
            launch=launch,
            install=self._install(launch.processes[0].stderr),
            private_shm=self._private_shm,
            short=self._short(slot) if _uses_short_folder(group, launch) else None,
            log=None if self._context.alone else self._run_dir.supervisor_log,
            account=account,
            visible=() if account is None else self._visible(),
        )

    def _visible(self) -> tuple[Path, ...]:
        """What the nodes of an owner see of MUSTER_HOME."""
        context = self._context
        code = context.plan.artifact
        stored = [] if code is None else [open_to_accounts(context.home, code.sha256)]
        mounted = (one for group in context.plan.groups for one in group.mounts)
        # only Muster itself mounts one of its folders: the outputs of a run before this one
        inputs = {Path(one.source) for one in mounted if one.kind == "directory"}
        inside = [path for path in inputs if path.is_relative_to(context.home.root)]
        return (self._run_dir.path, context.owner_home.root, *stored, *inside)


def _is_fixed(mount: MountPlan) -> bool:
    """Whether the mount of one node can be that of another. A folder that is mounted by itself is
    gone when the scratch folder that it is in has been emptied."""
    part = mount.sub_path
    return part is None or (mount.kind != "scratch" and "${" not in part)


def _prepare_code(
    context: RunContext, node: NodePlan, mountable: bool, work: Path, launch: LaunchMessage
) -> list[str]:
    """Put the code into the working directory of the node with the launch's rank, in the slot of
    `node`; returns the program's command line. Called in the node."""
    plan = context.plan
    group = plan.group_for(plan.node(launch.rank, plan.slot_of(node)))
    return prepare_code(context, group, work, mountable=mountable)


def _ports(plan: RunPlan, nodes: int) -> Ports:
    """The ports of a cluster with this number of nodes, which may be 0."""
    return Ports(plan.ports if nodes else (), nodes, own_interfaces=plan.own_interfaces)


def _write_certificates(plan: RunPlan, run_dir: RunDir) -> None:
    if plan.tls:
        from muster.storage.certificates import make_certificates

        make_certificates(run_dir.tls, plan.nodes)


def short_folder(run_id: str) -> Path:
    """The parent of the nodes' short folders, if nodes have no private /dev/shm."""
    from tempfile import gettempdir  # most runs need none

    return Path(gettempdir()) / f"muster-{run_id[-8:]}"


def _uses_short_folder(group: GroupPlan, launch: LaunchMessage) -> bool:
    """Whether any program of the node knows its folder by the short path."""
    folder = os.path.join(launch.folder, "")
    tmpdir = launch.environment_of(0).get("TMPDIR", folder)
    templates = (group.role, group.framework_env, group.framework_defaults)
    return "${folder}" in str(templates) or not tmpdir.startswith(folder)


class PreparedEnvironment(Struct, frozen=True):
    """The virtual or conda environment that a job's nodes run in."""

    plan: EnvironmentPlan
    environment: Environment
    #: The run's context with the interpreter and the variables of the environment.
    context: RunContext
    #: The variables that the installer runs with.
    variables: dict[str, str]
    #: The Python that it extends.
    base: str

    def installer(self, output: str) -> Callable[[], None]:
        """What a node calls first: it installs the environment unless another node has, or waits
        for that. output: the file to write its progress to."""
        return partial(self._enter, output)

    def _enter(self, output: str) -> None:
        from muster.storage.environments import acquire

        with os.fdopen(open_or_replace(output, os.O_WRONLY | os.O_APPEND, 0o644), "a") as file:
            report = partial(print, file=file, flush=True)
            acquire(self.environment, self.plan, self.variables, self.base, report)


def prepare_environment(context: RunContext) -> PreparedEnvironment | None:
    """The environment that the job needs; None if it needs nothing installed."""
    plan = context.plan.environment
    if plan is None:
        return None
    from muster.storage.environments import locate

    environment = locate(context.owner_home, plan, context.python)
    variables = submitted(context.plan, context.environ)
    environ = {name: value for name, value in variables.items() if name not in MISLEADING}
    kind = "VIRTUAL_ENV" if plan.conda is None else "CONDA_PREFIX"
    environ[kind] = str(environment.prefix)
    changed = replace(context, environ=environ, python=environment.python)
    return PreparedEnvironment(plan, environment, changed, variables, context.python)
