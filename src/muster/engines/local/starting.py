"""Start one node: reserve what it needs, describe its launch, and fork its agent."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.launch import NodePaths, NodeStart, launch_message
from muster.engines.local import mounts, node_folders
from muster.engines.local.limits import NodeLimits
from muster.engines.local.namespaces import Isolation
from muster.engines.local.network import addresses
from muster.engines.local.network.bridge import INTERFACE
from muster.engines.local.node_process import NodeSetup, fork_node
from muster.engines.local.nodes import LocalNode
from muster.engines.local.place_code import prepare_code
from muster.engines.local.resources import limits_of, share_of_cpus, share_of_memory
from muster.engines.logs import NodeOutputs
from muster.engines.machine import Machine, count_cpus, count_memory
from muster.engines.ports import Ports
from muster.engines.reservations.demands import share_of_gpus
from muster.engines.reservations.gpus import GpuPool, RunGpus
from muster.lifecycle.status import NodeRef
from muster.node import messages
from muster.node.channel import Channel
from muster.node.files import open_or_replace
from muster.node.launch_message import LaunchMessage
from muster.plan.environment import EngineValues, submitted
from muster.plan.model import EnvironmentPlan, GroupPlan, NodePlan, RunPlan
from muster.storage.entrypoint import folder_name
from muster.storage.home import RunDir

if TYPE_CHECKING:
    from muster.storage.environments import Environment

#: Variables that would make the environment's Python look for packages elsewhere.
_MISLEADING = ("PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")


class Starter:
    """Starts and restarts the nodes of one run, and holds what they share: ports and GPUs."""

    def __init__(self, context: RunContext, isolation: Isolation, gpus: RunGpus) -> None:
        plan, home = context.plan, context.home
        self._environment = prepare_environment(context)
        self._context = context if self._environment is None else self._environment.context
        self._isolation = isolation
        self._run_dir: RunDir = home.run_dir(plan.run_id)
        self._held_ports = Ports(plan.ports, len(plan.nodes), own_interfaces=plan.own_interfaces)
        self._ports = self._held_ports.numbers
        self._token = os.urandom(16).hex()
        addresses.write_endpoints(plan, self._ports, self._token, self._run_dir)
        _write_certificates(plan, self._run_dir)
        self._gpus = GpuPool(home.of_host("gpus"), gpus.numbers)
        #: The folder of each mount source.
        self.sources = mounts.source_folders(plan, home)
        #: Names of the groups whose nodes have the metadata file at the path that OCI documents.
        self._documented: frozenset[str] = frozenset()
        if isolation.namespaces:
            self._documented = node_folders.prepare_oci_folder(plan, self._run_dir.path)
        #: Measured once, as it takes a dozen files.
        self._machine = Machine(count_cpus(), count_memory(), gpus.visible)
        #: Ranks that have no node for now.
        self.absent: set[int] = set()
        self._required = tuple(mounts.required_paths(plan, home))
        used = [home.root, *self.sources.values()]
        used += [Path(group.in_place) for group in plan.groups if group.in_place is not None]
        #: Whether each node has a private /dev/shm. Not if the run's files are in /dev/shm.
        self._private_shm = isolation.namespaces and not any(
            path.is_relative_to("/dev/shm") for path in used
        )

    def start(self, ref: NodeRef, attempt: int, outputs: NodeOutputs) -> LocalNode:
        """Fork a new node. If that fails, raises MusterError or OSError and reserves nothing."""
        node = self._context.plan.nodes[ref.rank]
        count = share_of_gpus(self._context.plan, ref.rank, self._machine.gpus)
        gpus = self._gpus.acquire(count) if count else ()
        limits = None
        try:
            limits = self._limits(node)
            launch = self._launch(ref, attempt, outputs, gpus)
            ours, theirs = socket.socketpair()
            ours.setblocking(False)  # the supervisor never waits for an agent
            pid = fork_node(self._setup(node, limits, launch), theirs)
        except BaseException:
            self._gpus.release(gpus)
            if limits is not None:
                limits.remove()
            raise
        theirs.close()
        started = LocalNode(ref, attempt, pid, Channel(ours), limits, gpus)
        started.record_oom_kills()
        return started

    def restart(self, node: LocalNode, ref: NodeRef, attempt: int, outputs: NodeOutputs) -> None:
        """Start the next incarnation of a kept node, which keeps its limits and GPUs."""
        node.begin_incarnation(ref, attempt)
        node.channel.send(messages.Restart(self._launch(ref, attempt, outputs, node.gpus)))

    def release_gpus(self, node: LocalNode) -> None:
        """Free the GPUs of a node whose agent has ended."""
        self._gpus.release(node.gpus)

    def close(self) -> None:
        """Free the ports, and remove the nodes' short folders; all nodes have ended."""
        self._held_ports.close()
        shutil.rmtree(short_folder(self._context.plan.run_id), ignore_errors=True)

    def _hides_gpus(self, group: GroupPlan) -> bool:
        """Whether a node without GPUs must not see the machine's: its shape has none."""
        resources = group.resources
        return resources.shape is not None and resources.cpus is not None and self._machine.gpus > 0

    def _limits(self, node: NodePlan) -> NodeLimits | None:
        limits = limits_of(self._context.plan.group(node.group).resources, self._machine)
        if limits.cpus is None and limits.memory is None:
            return None
        return NodeLimits(node.node_id, limits.cpus, limits.memory)

    def _launch(
        self,
        ref: NodeRef,
        attempt: int,
        outputs: NodeOutputs,
        gpus: tuple[int, ...],
    ) -> LaunchMessage:
        plan = self._context.plan
        node, group = plan.nodes[ref.rank], plan.group_of(ref.rank)
        folder = self._run_dir.node(ref.rank)
        folder.mkdir(parents=True, exist_ok=True)
        mounted: dict[str, str] = {}
        extra: dict[str, str] = {}
        if not self._isolation.namespaces:
            mounted = mounts.link_mounts(group.mounts, self.sources, folder)
            extra = addresses.wrapper_environment(self._run_dir.hosts, node)
        if group.name in self._documented:
            extra[node_folders.METADATA_VARIABLE] = str(node_folders.METADATA_FILE)
        paths = NodePaths(
            folder=folder,
            cluster_file=self._run_dir.cluster_file,
            work=self._work(ref.rank),
            outputs=outputs,
            tls=self._run_dir.tls,
            short=self._short(ref.rank),
        )
        values = EngineValues(
            token=self._token,
            interface=INTERFACE if plan.own_interfaces else None,
            gpus=",".join(map(str, gpus)) if gpus or self._hides_gpus(group) else None,
            mounted=mounted,
            extra=extra,
        )
        start = NodeStart(
            attempt=attempt,
            incarnation=ref.incarnation,
            ports=self._ports,
            values=values,
            cpus=share_of_cpus(plan, group, self._machine),
            memory=share_of_memory(plan, group, self._machine),
            contained=self._isolation.namespaces,
            absent=sorted(self.absent),
            fresh=mounts.emptied_folders(group.mounts, folder),
        )
        return launch_message(self._context, node, paths, start)

    def _work(self, rank: int) -> Path:
        """The folder of the code. It keeps its name: programs may import it as a package."""
        code = self._context.plan.artifact
        name = folder_name(code.kind, code.file_name) if code is not None else ""
        return self._run_dir.work(rank) / name

    def _short(self, rank: int) -> Path:
        if self._private_shm:
            return Path("/dev/shm/node")
        return short_folder(self._context.plan.run_id) / str(rank)

    def _install(self, output: str) -> Callable[[], None] | None:
        return None if self._environment is None else self._environment.installer(output)

    def _setup(self, node: NodePlan, limits: NodeLimits | None, launch: LaunchMessage) -> NodeSetup:
        group = self._context.plan.group(node.group)
        documented = group.name in self._documented
        shown = node_folders.with_oci_folder(group.mounts) if documented else group.mounts
        mounts.order_mounts(shown, self._required)  # cached, for all nodes of the group
        disk = group.resources.disk if group.resources.disk_image else None
        # what a node writes to its disk is measured, without what is mounted there
        mountable = self._isolation.namespaces and group.resources.disk is None
        return NodeSetup(
            node=node,
            isolation=self._isolation,
            network=self._context.plan.network,
            hosts=self._run_dir.hosts,
            resolver=self._run_dir.resolver,
            folder=self._run_dir.node(node.rank),
            work=self._work(node.rank),
            mounts=shown,
            metadata=self._run_dir.cluster_file if documented else None,
            sources=self.sources,
            required=self._required,
            limits=limits,
            disk=disk,
            prepare_code=partial(prepare_code, self._context, group, mountable=mountable),
            launch=launch,
            install=self._install(launch.processes[0].stderr),
            private_shm=self._private_shm,
            short=self._short(node.rank) if _uses_short_folder(group, launch) else None,
        )


def _write_certificates(plan: RunPlan, run_dir: RunDir) -> None:
    if plan.tls:
        from muster.storage.certificates import make_certificates

        make_certificates(run_dir.tls, plan.nodes)


def short_folder(run_id: str) -> Path:
    """The parent of the nodes' short folders, if nodes have no private /dev/shm."""
    return Path(tempfile.gettempdir()) / f"muster-{run_id[-8:]}"


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

    environment = locate(context.home, plan, context.python)
    variables = submitted(context.plan, context.environ)
    environ = {name: value for name, value in variables.items() if name not in _MISLEADING}
    kind = "VIRTUAL_ENV" if plan.conda is None else "CONDA_PREFIX"
    environ[kind] = str(environment.prefix)
    changed = replace(context, environ=environ, python=environment.python)
    return PreparedEnvironment(plan, environment, changed, variables, context.python)
