"""Bringing one node up: what it needs, taken and written down, and then a fork."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from muster.engines.base import RunContext
from muster.engines.local import mounting, names
from muster.engines.local.cgroups import NodeLimits
from muster.engines.local.fabric import INTERFACE
from muster.engines.local.gpus import GpuPool
from muster.engines.local.isolation import Isolation
from muster.engines.local.launch import NodePaths, launch_message, prepare_code
from muster.engines.local.node_process import NodeSetup, fork_node
from muster.engines.local.outputs import Outputs
from muster.node.channel import Channel
from muster.plan.model import NodePlan


class LocalNode(Struct):
    """A node whose agent has not ended. begun: its program may have started; said: its last
    word."""

    rank: int
    pid: int
    channel: Channel
    limits: NodeLimits | None
    gpus: tuple[int, ...]
    begun: bool = False
    said: dict[str, Any] | None = None


class Starter:
    """Starts the nodes of one attempt. placed: mount source -> where its bytes are."""

    def __init__(
        self,
        context: RunContext,
        isolation: Isolation,
        *,
        outputs: Outputs,
        ports: Mapping[str, int],
        gpus: GpuPool,
        placed: dict[str, Path],
    ) -> None:
        self._context = context
        self._isolation = isolation
        self._outputs = outputs
        self._ports = ports
        self._gpus = gpus
        self._placed = placed
        self._run_dir = context.home.run_dir(context.plan.run_id)

    def start(self, node: NodePlan) -> LocalNode:
        """Fork the node. Raises MusterError or OSError, holding nothing, if it cannot be."""
        group = self._context.plan.group(node.group)
        asked = group.resources
        # a shape's are advice: with fewer here, a node takes what there is
        wanted = asked.gpus if asked.shape is None else min(asked.gpus, self._gpus.size)
        gpus = self._gpus.take(wanted) if wanted else ()
        try:
            limits = self._limits(node)
            setup = self._setup(node, limits, gpus)
            ours, theirs = socket.socketpair()
            pid = fork_node(setup, theirs)
        except BaseException:
            self._gpus.release(gpus)
            raise
        theirs.close()
        return LocalNode(node.rank, pid, Channel(ours), limits, gpus)

    def _limits(self, node: NodePlan) -> NodeLimits | None:
        asked = self._context.plan.group(node.group).resources
        if asked.shape is not None or (asked.cpus is None and asked.memory is None):
            return None
        return NodeLimits(node.node_id, asked.cpus, asked.memory)

    def _setup(self, node: NodePlan, limits: NodeLimits | None, gpus: tuple[int, ...]) -> NodeSetup:
        group = self._context.plan.group(node.group)
        folder = self._run_dir.node(node.rank)
        folder.mkdir(parents=True, exist_ok=True)
        mounted: dict[str, str] = {}
        extra: dict[str, str] = {}
        if not self._isolation.namespaces:
            mounted = mounting.link_mounts(group.mounts, self._placed, folder)
            extra = names.wrapper_environment(self._run_dir.hosts, node)
        isolated = self._context.plan.network == "isolated"
        paths = NodePaths(
            folder=folder,
            cluster_file=self._run_dir.cluster_file,
            work=self._run_dir.work(node.rank),
            outputs=self._outputs.of(node.rank),
        )
        launch = launch_message(
            self._context,
            node,
            paths,
            ports=self._ports,
            gpus=gpus,
            interface=INTERFACE if isolated else None,
            mounted=mounted,
            extra=extra,
            contained=self._isolation.namespaces,
        )
        return NodeSetup(
            node=node,
            isolation=self._isolation,
            isolated_network=isolated,
            hosts=self._run_dir.hosts,
            folder=folder,
            mounts=group.mounts,
            placed=self._placed,
            limits=limits,
            prepare=partial(prepare_code, self._context, group),
            launch=launch,
            private_shm=not any(
                path.is_relative_to("/dev/shm")
                for path in (self._context.home.root, *self._placed.values())
            ),
        )
