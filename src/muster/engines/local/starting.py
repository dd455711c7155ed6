"""Bringing one node up: what it needs, taken and written down, and then a fork."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Container, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.engines.base import RunContext
from muster.engines.local import metadata, mounting, names
from muster.engines.local.cgroups import NodeLimits
from muster.engines.local.fabric import INTERFACE
from muster.engines.local.gpus import GpuPool
from muster.engines.local.isolation import Isolation
from muster.engines.local.launch import NodePaths, launch_message, prepare_code
from muster.engines.local.machine import (
    Machine,
    count_cpus,
    count_memory,
    limits_of,
    share_of_cpus,
    share_of_gpus,
    share_of_memory,
)
from muster.engines.local.node_process import NodeSetup, fork_node
from muster.engines.local.outputs import NodeOutputs
from muster.lifecycle.status import NodeRef
from muster.node import error_file
from muster.node.channel import Channel
from muster.plan.model import GroupPlan, NodePlan
from muster.storage.entrypoint import folder_name
from muster.storage.home import RunDir


class LocalNode(Struct, eq=False):
    """A node whose agent has not ended. ref: the life it is in, or, of a kept one, was in last.

    begun: its program may have started; again: its agent has been through a life before; leaving:
    it was told to end; said: its last word; out_of_memory: what its limits had counted before.
    """

    ref: NodeRef
    attempt: int
    pid: int
    channel: Channel
    limits: NodeLimits | None
    gpus: tuple[int, ...]
    begun: bool = False
    again: bool = False
    leaving: bool = False
    said: dict[str, Any] | None = None
    out_of_memory: int = 0

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the kernel ended a process of this life at the node's memory limit."""
        return _out_of_memory(self.limits) > self.out_of_memory

    def tell(self, op: str, **more: Any) -> None:
        """Send its agent a message about this life."""
        self.channel.send(op=op, incarnation=self.ref.incarnation, **more)


class Starter:
    """Starts the nodes of one run. placed: mount source -> where its bytes are. documented: groups
    whose nodes have the metadata file where OCI's documents say."""

    def __init__(
        self,
        context: RunContext,
        isolation: Isolation,
        *,
        ports: Mapping[str, int],
        token: str,
        gpus: GpuPool,
        placed: dict[str, Path],
        documented: Container[str],
    ) -> None:
        self._furnishing = None
        if context.plan.environment is not None:
            from muster.engines.local.furnishing import furnish

            self._furnishing = furnish(context)
        self._context = context if self._furnishing is None else self._furnishing.context
        self._isolation = isolation
        self._ports = ports
        self._token = token
        self._gpus = gpus
        self._placed = placed
        self._documented = documented
        #: Asking takes a dozen files, too long to do it for each node that starts.
        self._machine = Machine(count_cpus(), count_memory(), gpus.size)
        #: Ranks of nodes that there are not to be for now.
        self.absent: set[int] = set()
        self._run_dir: RunDir = context.home.run_dir(context.plan.run_id)

    def start(self, ref: NodeRef, attempt: int, outputs: NodeOutputs) -> LocalNode:
        """Fork the node. Raises MusterError or OSError, holding nothing, if it cannot be."""
        node = self._context.plan.nodes[ref.rank]
        wanted = share_of_gpus(self._context.plan, ref.rank, self._gpus.size)
        gpus = self._gpus.take(wanted) if wanted else ()
        limits = None
        try:
            limits = self._limits(node)
            launch = self._launch(ref, attempt, outputs, gpus)
            ours, theirs = socket.socketpair()
            ours.setblocking(False)  # no agent, however it fares, keeps us waiting
            pid = fork_node(self._setup(node, limits, launch), theirs)
        except BaseException:
            self._gpus.release(gpus)
            if limits is not None:
                limits.remove()
            raise
        theirs.close()
        started = LocalNode(ref, attempt, pid, Channel(ours), limits, gpus)
        started.out_of_memory = _out_of_memory(limits)
        return started

    def start_again(
        self, node: LocalNode, ref: NodeRef, attempt: int, outputs: NodeOutputs
    ) -> None:
        """Have a node that was kept begin its next life, with what it holds already."""
        node.ref, node.attempt, node.said, node.leaving = ref, attempt, None, False
        node.begun = node.again = True
        node.out_of_memory = _out_of_memory(node.limits)
        node.tell("begin", launch=_packed(self._launch(ref, attempt, outputs, node.gpus)))

    def _hides_gpus(self, group: GroupPlan) -> bool:
        """Whether a shape keeps this machine's GPUs from a node that is given none of them."""
        asked = group.resources
        return asked.shape is not None and asked.cpus is not None and self._machine.gpus > 0

    def _limits(self, node: NodePlan) -> NodeLimits | None:
        asked = self._context.plan.group(node.group).resources
        limits = limits_of(asked, self._machine)
        if limits.cpus is None and limits.memory is None:
            return None
        return NodeLimits(node.node_id, limits.cpus, limits.memory)

    def _launch(
        self,
        ref: NodeRef,
        attempt: int,
        outputs: NodeOutputs,
        gpus: tuple[int, ...],
    ) -> dict[str, Any]:
        plan = self._context.plan
        node, group = plan.nodes[ref.rank], plan.group_of(ref.rank)
        folder = self._run_dir.node(ref.rank)
        folder.mkdir(parents=True, exist_ok=True)
        mounted: dict[str, str] = {}
        extra: dict[str, str] = {}
        if not self._isolation.namespaces:
            mounted = mounting.link_mounts(group.mounts, self._placed, folder)
            extra = names.wrapper_environment(self._run_dir.hosts, node)
        if group.name in self._documented:
            extra[metadata.VARIABLE] = str(metadata.FILE)
        paths = NodePaths(
            folder=folder,
            cluster_file=self._run_dir.cluster_file,
            work=self._work(ref.rank),
            outputs=outputs,
            tls=self._run_dir.tls,
            short=self._short(ref.rank),
        )
        launch = launch_message(
            self._context,
            node,
            paths,
            attempt=attempt,
            restart=ref.incarnation,
            ports=self._ports,
            token=self._token,
            gpus=gpus if gpus or self._hides_gpus(group) else None,
            interface=INTERFACE if plan.own_interfaces else None,
            mounted=mounted,
            extra=extra,
            contained=self._isolation.namespaces,
            cpus=share_of_cpus(plan, group, self._machine),
            memory=share_of_memory(plan, group, self._machine),
            absent=sorted(self.absent),
        )
        _add_error_files(launch, group, folder)
        return launch | {
            "folder": str(folder),
            "fresh": mounting.fresh(group.mounts, folder),
            "incarnation": ref.incarnation,
            "keep": self._context.keep,
        }

    def _work(self, rank: int) -> Path:
        """Where the code is: programs may import the folder they are in by its name."""
        code = self._context.plan.artifact
        name = folder_name(code.kind, code.file_name) if code is not None else ""
        return self._run_dir.work(rank) / name

    def _short(self, rank: int) -> Path:
        if self._private_shm:
            return Path("/dev/shm/node")
        return short_folder(self._context.plan.run_id) / str(rank)

    @property
    def _private_shm(self) -> bool:
        """Whether nodes have a /dev/shm of their own."""
        return self._isolation.namespaces and not any(
            path.is_relative_to("/dev/shm")
            for path in (self._context.home.root, *self._placed.values())
        )

    def _furnish(self, output: str) -> Callable[[], None] | None:
        return None if self._furnishing is None else self._furnishing.ready(output)

    def _setup(
        self, node: NodePlan, limits: NodeLimits | None, launch: dict[str, Any]
    ) -> NodeSetup:
        group = self._context.plan.group(node.group)
        documented = group.name in self._documented
        return NodeSetup(
            node=node,
            isolation=self._isolation,
            network=self._context.plan.network,
            hosts=self._run_dir.hosts,
            resolver=self._run_dir.resolver,
            folder=self._run_dir.node(node.rank),
            work=self._work(node.rank),
            mounts=metadata.with_folder(group.mounts) if documented else group.mounts,
            metadata=self._run_dir.cluster_file if documented else None,
            placed=self._placed,
            needed=mounting.lifelines(self._context.plan, self._context.home),
            limits=limits,
            disk=group.resources.disk if group.resources.disk_image else None,
            prepare=partial(prepare_code, self._context, group),
            launch=launch,
            furnish=self._furnish(launch["processes"][0]["stderr"]),
            private_shm=self._private_shm,
            short=self._short(node.rank) if _uses_short_folder(group, launch) else None,
        )


def short_folder(run_id: str) -> Path:
    """Where the run's nodes have their short folders, if they have no /dev/shm of their own."""
    return Path(tempfile.gettempdir()) / f"muster-{run_id[-8:]}"


def _uses_short_folder(group: GroupPlan, launch: Mapping[str, Any]) -> bool:
    """Whether anything that runs there knows the node's folder with a short path."""
    folder = os.path.join(launch["folder"], "")
    tmpdir = launch["processes"][0]["env"].get("TMPDIR", folder)
    return "${folder}" in str((group.role, group.framework_env)) or not tmpdir.startswith(folder)


def _packed(launch: dict[str, Any]) -> dict[str, Any]:
    """With what the processes' environments have in common said once: to say it for each of many
    takes more room than a socket has, and whoever sends it would have to wait for the agent."""
    every = [process["env"] for process in launch["processes"]]
    common = {k: v for k, v in every[0].items() if all(env.get(k) == v for env in every)}
    packed = [
        process | {"env": {k: v for k, v in process["env"].items() if k not in common}}
        for process in launch["processes"]
    ]
    return launch | {"env": common, "processes": packed}


def _out_of_memory(limits: NodeLimits | None) -> int:
    return 0 if limits is None else limits.out_of_memory()


def _add_error_files(launch: dict[str, Any], group: GroupPlan, folder: Path) -> None:
    """Ask for notes of errors, unless the job has its own use for them. One that is inherited from
    whoever submitted the run is not meant for its nodes. A launcher whose ranks write to files of
    their own knows another way to note them."""
    envs = (group.env, group.node_env, group.framework_env)
    taken = any(error_file.VARIABLE in env for env in envs)
    if taken and not launch["ranks"]:
        return
    for local_rank, process in enumerate(launch["processes"]):
        process["error_file"] = str(folder / f"error-{local_rank}.json")
        if not taken:
            process["env"][error_file.VARIABLE] = process["error_file"]
