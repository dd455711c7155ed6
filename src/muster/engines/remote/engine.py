"""A base class for engines whose nodes are on other machines."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from muster.engines.base import Capabilities
from muster.engines.basic import BasicEngine

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Mapping, Sequence

    from muster.describe.stacks import ThreadStack
    from muster.engines.base import (
        DetachedSession,
        NodeCommand,
        NodeProcess,
        PortForward,
        Report,
        RunContext,
        RunningNode,
        Stdio,
    )
    from muster.engines.loop import RunLoop
    from muster.engines.remote.hosts import Hosts, HostsOwner
    from muster.frameworks.base import Network
    from muster.node.counters import Counters
    from muster.plan.model import ResourcePlan, RunPlan
    from muster.storage.home import Home, RunDir


#: What sessions of `remote.session` can do on any infrastructure.
CAPABILITIES = Capabilities(
    in_place=True,
    replace_node=True,
    exec=True,
    forward=True,
    stacks=True,
    counters=True,
    suspend=True,
    detached=True,
    mounts=True,
    arrays=True,
    principals=True,
)


class RemoteEngine(BasicEngine):
    """Its sessions are those of `remote.session`, with the hosts that the engine makes. They open
    the way to their nodes (`remote.proxy`) for the capabilities `exec`, `forward`, `counters` and
    `stacks`, whose methods are here.
    """

    _home: Home

    @abstractmethod
    def make_hosts(self, context: RunContext, loop: RunLoop, owner: HostsOwner) -> Hosts:
        """The hosts of a run that is opened. owner: the session, which learns of them."""

    def open(self, context: RunContext, loop: RunLoop, report: Report) -> DetachedSession:
        """See `Engine.open`."""
        from muster.engines.remote.contact import SupervisorId  # other commands need none of it
        from muster.engines.remote.session import RemoteSession

        supervisor = SupervisorId(context.plan.run_id, context.turn)
        return RemoteSession(
            *(context, supervisor, loop, report),
            lambda owner: self.make_hosts(context, loop, owner),
        )

    def prepare_cancel(self, run_id: str, *, force: bool, keep: bool) -> None:
        """See `Engine.prepare_cancel`."""
        from muster.engines.remote.cancel_orders import add_order

        add_order(self._home.run_dir(run_id).path, force=force, keep=keep)

    def addresses(self, network: Network, nodes: int) -> Sequence[str]:
        """See `Engine.addresses`. They are known when nodes have hosts."""
        return [""] * nodes

    def notes(self, plan: RunPlan) -> list[str]:
        """See `Engine.notes`."""
        from muster.engines.remote import plan_checks

        return [*super().notes(plan), *plan_checks.notes(plan)]

    def limits(self, resources: Mapping[str, ResourcePlan]) -> dict[str, str]:
        """See `Engine.limits`."""
        from muster.engines.remote.resources import describe_resources

        texts = {name: describe_resources(given) for name, given in resources.items()}
        return {name: text for name, text in texts.items() if text}

    def shares_of_memory(self, plan: RunPlan) -> dict[str, int]:
        """See `Engine.shares_of_memory`."""
        shares = super().shares_of_memory(plan)
        return {group.name: group.resources.memory or shares[group.name] for group in plan.groups}

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
