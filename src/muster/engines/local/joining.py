"""Nodes join: the others hear of them and they are connected; then they may begin."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from muster.engines.local.ends import cannot_begin
from muster.engines.local.fabric import Fabric
from muster.engines.local.starting import LocalNode
from muster.errors import EngineError
from muster.node.roster import member, write_hostfile, write_roster
from muster.plan.model import RunPlan


class Joining:
    """The roster of one run, and its network, if it has one of its own."""

    def __init__(self, plan: RunPlan, cluster_file: Path, fabric: Fabric | None) -> None:
        self._plan = plan
        self._cluster_file = cluster_file
        self._fabric = fabric
        self._way_out = fabric.way_out if fabric is not None else None
        self._joined: list[LocalNode] = []  # and not told to begin yet
        self._members: dict[int, dict[str, Any]] = {}  # by rank
        wanted = zip(plan.nodes, plan.policy.first_nodes(), strict=True)
        addresses = [node.address for node, status in wanted if not status.parked]
        write_hostfile(str(cluster_file), addresses, plan.processes_per_node)

    def join(self, node: LocalNode) -> None:
        """The node is ready to begin."""
        self._joined.append(node)

    def forget(self, node: LocalNode) -> None:
        """The node has ended."""
        self._joined = [other for other in self._joined if other is not node]

    def leave(self, ranks: Iterable[int]) -> None:
        """Nodes of these ranks are not of the run for now."""
        gone = [rank for rank in ranks if self._members.pop(rank, None) is not None]
        if gone:
            write_roster(str(self._cluster_file), self._members.values())

    def welcome(self) -> None:
        """Have those begin that have joined, now that all can know of them."""
        if self._way_out is not None:
            self._way_out.step()
        if not self._joined or (self._way_out is not None and self._way_out.starting):
            return
        joined = [node for node in self._joined if node.said is None]
        self._joined = []
        if any(node.ref.rank not in self._members for node in joined):
            self._members |= {node.ref.rank: self._member(node.ref.rank) for node in joined}
            write_roster(str(self._cluster_file), self._members.values())
        for node in joined:
            if self._fabric is None or self._connect(self._fabric, node):
                node.begun = True
                node.tell("begin")

    def watched(self) -> int | None:
        """The descriptor to wait on for the network's way out; None where none is starting."""
        return self._way_out.watched() if self._way_out is not None else None

    def patience(self) -> float | None:
        """Seconds after which `welcome` wants to be called although nothing happened."""
        return self._way_out.patience() if self._way_out is not None else None

    def _member(self, rank: int) -> dict[str, Any]:
        node = self._plan.nodes[rank]
        return member(node.rank, node.address, node.fqdn, node.group, node.node_id)

    def _connect(self, fabric: Fabric, node: LocalNode) -> bool:
        try:
            fabric.connect(node.ref.rank, node.pid)
        except EngineError as error:
            node.said = cannot_begin(str(error))
            os.kill(node.pid, signal.SIGKILL)
            return False
        return True

    def reaped(self, pid: int) -> bool:
        """Whether this child of ours that has ended was the network's."""
        return self._fabric is not None and self._fabric.reaped(pid)

    def close(self) -> None:
        """Release the network."""
        if self._fabric is not None:
            self._fabric.close()
