"""A base class for engines whose nodes are on other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.engines.basic import BasicEngine

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Mapping, Sequence

    from muster.describe.stacks import ThreadStack
    from muster.engines.base import NodeCommand, NodeProcess, PortForward, RunningNode, Stdio
    from muster.node.counters import Counters
    from muster.plan.model import RunPlan
    from muster.storage.home import RunDir


class RemoteEngine(BasicEngine):
    """Has the methods of the capabilities `exec`, `forward`, `counters` and `stacks`, for sessions
    that are a `remote.session.RemoteSession`: these open the way to their nodes (`remote.proxy`).
    """

    def notes(self, plan: RunPlan) -> list[str]:
        """See `Engine.notes`."""
        from muster.engines.remote import plan_checks

        return [*super().notes(plan), *plan_checks.notes(plan)]

    def lacking_here(self, plan: RunPlan, replicas: Mapping[str, int]) -> str:
        """See `Engine.lacking_here`."""
        from muster.engines.remote import plan_checks

        problem = plan_checks.check_open_files(plan, replicas)
        return "" if problem is None else f"{problem.message} ({problem.hint})"

    def counters(self, folder: RunDir, supervisor: int) -> dict[int, Counters]:
        """See `Engine.counters`."""
        from muster.engines.remote.questions import read_counters  # most commands enter no node

        return read_counters(folder)

    def stacks(
        self, folder: RunDir, supervisor: int, ranks: Collection[int]
    ) -> tuple[list[ThreadStack], list[str]]:
        """See `Engine.stacks`."""
        from muster.engines.remote.questions import read_stacks

        return read_stacks(folder, ranks)

    def forward(
        self, node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> PortForward:
        """See `Engine.forward`."""
        from muster.engines.remote.forward import forward

        return forward(node, hosts, port, listener)

    def run_in_node(self, node: RunningNode, command: NodeCommand, stdio: Stdio) -> NodeProcess:
        """See `Engine.run_in_node`."""
        from muster.engines.remote.commands import run

        return run(node, command, stdio)
