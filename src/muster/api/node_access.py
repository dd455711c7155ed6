"""Commands, ports and files of running nodes, for a caller on the machine of the nodes.

They pass descriptors of the caller's process on: its terminal, its sockets. So they are apart from
`MusterAPI`, whose arguments and answers can be sent over a network.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from muster.engines.base import NodeCommand
from muster.store.records import NodeRecord

__all__ = ["NodeAccess", "NodeCommand", "Progress"]

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

    def execute(
        self, run_id: str, rank: int, command: NodeCommand, stdio: tuple[int, int, int]
    ) -> int:
        """Start a command inside a node. stdio: descriptors of its standard streams. Returns the
        pid of a child process of this one that ends with the command's exit code."""
        ...

    def forward(
        self, run_id: str, rank: int, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> int:
        """Forward connections to a listening socket to a port of a node, at the first of the hosts
        that accepts them. Returns the pid of a child process of this one that does it until it is
        killed or the node ends; its exit code is 1 then."""
        ...

    def copy(self, source: str, target: str, progress: Progress) -> tuple[str, ...]:
        """Copy a file or folder, as `cp -r` does; at least one end is on a node.

        source, target: `RUN:RANK:PATH`, `RUN:PATH`, a path on this machine, or `-` for standard
        input or output. Of a node that has ended, what is left can be read. Returns what was left
        out, with the reasons.
        """
        ...
