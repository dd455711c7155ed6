"""Commands, ports and files of running nodes.

They take what is open in the caller's process: its terminal, its sockets. So they are apart from
`MusterAPI`, whose arguments and answers can be sent as they are: behind a server, what is read from
these and written to them goes through WebSockets (`api.node_messages`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from muster.engines.base import NodeCommand, NodeProcess, OpenFile, PortForward, Stdio
from muster.store.records import NodeRecord

__all__ = [
    "NodeAccess",
    "NodeCommand",
    "NodeProcess",
    "OpenFile",
    "PortForward",
    "Progress",
    "Stdio",
]

#: Is called with the size in bytes of each block that is copied.
Progress = Callable[[int], None]


class NodeAccess(Protocol):
    """Every method raises InvalidInput if the run is not in progress or the node does not run,
    NotFound if the caller's project has no such run, Forbidden, and EngineError."""

    def check_in_progress(self, run_id: str) -> None:
        """Only checks the run."""
        ...

    def find(self, run_id: str, rank: int | None) -> NodeRecord:
        """A running node of a run; its only one if rank is None."""
        ...

    def execute(self, run_id: str, rank: int, command: NodeCommand, stdio: Stdio) -> NodeProcess:
        """Start a command inside a node. It ends with the node, and with this process."""
        ...

    def forward(
        self, run_id: str, rank: int, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> PortForward:
        """Start to forward connections to a listening socket to a port of a node, at the first of
        the hosts that accepts them, until the node ends. The caller may then close its listener."""
        ...

    def copy(self, source: str, target: str, progress: Progress) -> tuple[str, ...]:
        """Copy a file or folder, as `cp -r` does; at least one end is on a node.

        source, target: `RUN:RANK:PATH`, `RUN:PATH`, a path on this machine, or `-` for standard
        input or output. Of a node that has ended, what is left can be read. Returns what was left
        out, with the reasons.
        """
        ...
