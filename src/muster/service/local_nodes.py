"""`NodeAccess` for nodes on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.engines.base import NodeCommand, NodeProcess, PortForward, Stdio
from muster.service import inside
from muster.store.records import NodeFilter, NodeRecord

if TYPE_CHECKING:
    from muster.api.node_access import Progress
    from muster.service.embedded import EmbeddedAPI


class LocalNodes:
    """See `NodeAccess`, which documents the methods."""

    def __init__(self, api: EmbeddedAPI) -> None:
        self._api = api

    def check_in_progress(self, run_id: str) -> None:
        self._api.supervisor_of(run_id)

    def find(self, run_id: str, rank: int | None) -> NodeRecord:
        found = self._api.running_node(run_id, rank).rank
        (node,) = self._api.nodes(run_id, NodeFilter(ranks=[found]))
        return node

    def execute(self, run_id: str, rank: int, command: NodeCommand, stdio: Stdio) -> NodeProcess:
        node = self._api.node_to_execute(run_id, rank, os.path.basename(command.argv[0]))
        return inside.run_in_node(node, command, stdio)

    def forward(
        self, run_id: str, rank: int, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> PortForward:
        node = self._api.node_to_forward(run_id, rank, f"port {port}")
        return inside.forward(node, hosts, port, listener)

    def copy(self, source: str, target: str, progress: Progress) -> tuple[str, ...]:
        from muster.service.copying import copy

        return copy(self._api, source, target, progress)
