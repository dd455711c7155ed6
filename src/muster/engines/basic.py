"""A base class for engines: all that one without optional capabilities need not write itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from muster.engines.base import Capabilities

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from muster.describe.stacks import ThreadStack
    from muster.engines.admission import Shortage
    from muster.engines.base import (
        Claim,
        InProgress,
        NodeCommand,
        NodeProcess,
        PortForward,
        RecordRun,
        Report,
        RunContext,
        RunningNode,
        Session,
        Stdio,
    )
    from muster.engines.findings import Finding
    from muster.engines.grantees import Grantees
    from muster.engines.loop import RunLoop
    from muster.errors import Problem
    from muster.frameworks.base import Network
    from muster.lifecycle.status import NodeRef
    from muster.node.counters import Counters
    from muster.plan.model import ResourcePlan, RunPlan
    from muster.storage.home import Home, RunDir


class BasicEngine(ABC):
    """See `engines.base.Engine`. A subclass has to have `name`, `addresses` and `open`; for each
    capability that it declares, it replaces what belongs to it.

    Runs never wait for each other and nothing is reserved, nodes may use the whole machine without
    an image, and the supervisor is an ordinary process.
    """

    name: str
    capabilities = Capabilities()

    def available(self) -> str:
        """See `Engine.available`."""
        return ""

    def findings(self) -> list[Finding]:
        """See `Engine.findings`."""
        return []

    def misconfigured(self, environ: Mapping[str, str]) -> str:
        """See `Engine.misconfigured`."""
        return ""

    def rights(self, grantees: Grantees) -> str:
        """See `Engine.rights`."""
        return ""

    @abstractmethod
    def addresses(self, network: Network, nodes: int) -> Sequence[str]:
        """See `Engine.addresses`."""

    def check(self, plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
        """See `Engine.check`."""
        return []

    def lacking_here(self, plan: RunPlan, replicas: Mapping[str, int]) -> str:
        """See `Engine.lacking_here`."""
        return ""

    def replicas_at_once(self, resources: ResourcePlan, nodes: int) -> int:
        """See `Engine.replicas_at_once`."""
        return 1

    def notes(self, plan: RunPlan) -> list[str]:
        """See `Engine.notes`."""
        from muster.plan.model import ContainerPlan

        given = {
            group.name: [
                *([f"image {group.image}"] if group.image is not None else ()),
                *(["container"] if group.container != ContainerPlan() else ()),
            ]
            for group in plan.groups
        }
        return [
            f"group {name}: {what} is not used by engine {self.name}"
            for name, found in given.items()
            for what in found
        ]

    def explain(self, plan: RunPlan) -> list[str]:
        """See `Engine.explain`."""
        return []

    def preview(self, plan: RunPlan) -> dict[str, str]:
        """See `Engine.preview`."""
        return {}

    def images(self, plan: RunPlan) -> Sequence[str]:
        """See `Engine.images`. There are none."""
        return ()

    def read_workload(self, reference: str, namespace: str | None) -> Mapping[str, Any]:
        """See `Engine.read_workload`."""
        raise NotImplementedError

    def dry_run(self, plan: RunPlan) -> list[Finding]:
        """See `Engine.dry_run`."""
        return []

    def check_added(
        self, plan: RunPlan, root: Path, replicas: Mapping[str, int], group: str, added: int
    ) -> list[Problem]:
        """See `Engine.check_added`."""
        return []

    def limits(self, resources: Mapping[str, ResourcePlan]) -> dict[str, str]:
        """See `Engine.limits`."""
        return {}

    def shares_of_memory(self, plan: RunPlan) -> dict[str, int]:
        """See `Engine.shares_of_memory`."""
        from muster.node.machine import count_memory

        share = count_memory() // max(1, plan.policy.size_at_once)
        return {group.name: share for group in plan.groups}

    def may_queue(self, plan: RunPlan) -> bool:
        """See `Engine.may_queue`."""
        return False

    def reserve(self, home: Home, claim: Claim, in_progress: InProgress, record: RecordRun) -> None:
        """See `Engine.reserve`."""
        record(())

    def reserve_again(
        self, home: Home, claim: Claim, in_progress: InProgress
    ) -> Sequence[Shortage]:
        """See `Engine.reserve_again`."""
        return ()

    def reserve_scaled(
        self, home: Home, claim: Claim, in_progress: InProgress
    ) -> Sequence[Shortage]:
        """See `Engine.reserve_scaled`."""
        return ()

    def drop_lapsed_reservations(self, home: Home) -> None:  # noqa: B027  nothing to do
        """See `Engine.drop_lapsed_reservations`."""

    def waiting(self, home: Home) -> dict[str, str]:
        """See `Engine.waiting`."""
        return {}

    def started_ranks(self, folder: RunDir, refs: Iterable[NodeRef]) -> frozenset[int]:
        """See `Engine.started_ranks`."""
        return frozenset(ref.rank for ref in refs)

    def clean_up(self, run_id: str) -> None:  # noqa: B027  nothing to do
        """See `Engine.clean_up`."""

    def prepare_cancel(  # noqa: B027  nothing to do
        self, run_id: str, *, force: bool, keep: bool
    ) -> None:
        """See `Engine.prepare_cancel`."""

    def left_behind(self, run_id: str) -> bool:
        """See `Engine.left_behind`."""
        return False

    def warm(self) -> None:  # noqa: B027  nothing to do
        """See `Engine.warm`."""

    def may_share(self, plan: RunPlan | None = None) -> bool:
        """See `Engine.may_share`."""
        return False

    def prepare_parent(self, *, plain: bool) -> None:  # noqa: B027  nothing to do
        """See `Engine.prepare_parent`."""

    def prepare_supervisor(self) -> None:  # noqa: B027  nothing to do
        """See `Engine.prepare_supervisor`."""

    @abstractmethod
    def open(self, context: RunContext, loop: RunLoop, report: Report) -> Session:
        """See `Engine.open`."""

    def counters(self, folder: RunDir, supervisor: int) -> dict[int, Counters]:
        """See `Engine.counters`."""
        raise NotImplementedError

    def stacks(
        self, folder: RunDir, supervisor: int, ranks: Collection[int]
    ) -> tuple[list[ThreadStack], list[str]]:
        """See `Engine.stacks`."""
        raise NotImplementedError

    def forward(
        self, node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> PortForward:
        """See `Engine.forward`."""
        raise NotImplementedError

    def run_in_node(self, node: RunningNode, command: NodeCommand, stdio: Stdio) -> NodeProcess:
        """See `Engine.run_in_node`."""
        raise NotImplementedError
