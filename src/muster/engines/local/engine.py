"""The local engine: nodes are process trees on this machine. It needs nothing installed."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from muster.engines.base import Capabilities
from muster.engines.local.namespaces import Isolation, create_namespaces, set_up_mounts
from muster.engines.local.resources import describe_limits, share_of_memory
from muster.engines.local.sharing import shares_process
from muster.engines.machine import this_machine
from muster.engines.reservations.demands import may_reserve
from muster.errors import EngineError
from muster.unix_account import as_root

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
    from muster.engines.local.agent_pool import AgentPool
    from muster.engines.loop import RunLoop
    from muster.errors import Problem
    from muster.frameworks.base import Network
    from muster.lifecycle.status import NodeRef
    from muster.node.counters import Counters
    from muster.plan.model import ResourcePlan, RunPlan
    from muster.storage.home import Home, RunDir


class LocalEngine:
    """See `engines.base.Engine`."""

    name = "local"
    capabilities = Capabilities(
        in_place=True,
        replace_node=True,
        exec=True,
        forward=True,
        stacks=True,
        counters=True,
        suspend=True,
        resize=True,
        shared_files=True,
        queueing=True,
        mounts=True,
        limits=True,
        gpus=True,
        arrays=True,
        principals=True,
        separates_owners=True,
    )

    def __init__(self) -> None:
        #: The isolation of this process.
        self._isolation = Isolation("plain", reason="no namespaces were created")
        #: The agents of this process, once it has opened a session that is not alone.
        self._agents: AgentPool | None = None

    def available(self) -> str:
        """See `Engine.available`."""
        return ""

    def findings(self) -> list[Finding]:
        """See `Engine.findings`."""
        from muster.engines.local.doctor import examine

        return examine()

    def misconfigured(self, environ: Mapping[str, str]) -> str:
        """See `Engine.misconfigured`."""
        return ""

    def rights(self, grantees: Grantees) -> str:
        """See `Engine.rights`."""
        return ""

    def addresses(self, network: Network, nodes: int) -> Sequence[str]:
        """See `Engine.addresses`."""
        from muster.engines.local.network import addresses

        return addresses.allocate(network, nodes)

    def check(self, plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
        """See `Engine.check`."""
        from muster.engines.local import plan_checks  # many commands only read what runs do

        return plan_checks.problems(plan, root, replicas)

    def lacking_here(self, plan: RunPlan, replicas: Mapping[str, int]) -> str:
        """See `Engine.lacking_here`."""
        from muster.engines.local.capacity import check_open_files

        problem = check_open_files(plan, replicas)
        return "" if problem is None else f"{problem.message} ({problem.hint})"

    def replicas_at_once(self, resources: ResourcePlan, nodes: int) -> int:
        """See `Engine.replicas_at_once`. As many as have a CPU for each node, and their memory and
        GPUs."""
        from muster.engines.local.resources import count_fitting

        return count_fitting(resources, nodes, this_machine())

    def notes(self, plan: RunPlan) -> list[str]:
        """See `Engine.notes`."""
        from muster.engines.local import plan_checks

        return plan_checks.notes(plan)

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
        """See `Engine.read_workload`. There are none."""
        raise NotImplementedError

    def dry_run(self, plan: RunPlan) -> list[Finding]:
        """See `Engine.dry_run`."""
        return []

    def check_added(
        self, plan: RunPlan, root: Path, replicas: Mapping[str, int], group: str, added: int
    ) -> list[Problem]:
        """See `Engine.check_added`."""
        from muster.engines.local import plan_checks

        return plan_checks.problems_of_added(plan, root, replicas, group, added)

    def limits(self, resources: Mapping[str, ResourcePlan]) -> dict[str, str]:
        """See `Engine.limits`."""
        machine = this_machine()
        texts = {name: describe_limits(given, machine) for name, given in resources.items()}
        return {name: text for name, text in texts.items() if text}

    def shares_of_memory(self, plan: RunPlan) -> dict[str, int]:
        """See `Engine.shares_of_memory`."""
        machine = this_machine()
        return {group.name: share_of_memory(plan, group, machine) for group in plan.groups}

    def may_queue(self, plan: RunPlan) -> bool:
        """See `Engine.may_queue`."""
        return may_reserve(plan)

    def reserve(self, home: Home, claim: Claim, in_progress: InProgress, record: RecordRun) -> None:
        """See `Engine.reserve`."""
        from muster.engines.reservations import reserve  # few runs reserve anything

        reserve.reserve(home, claim, in_progress, record)

    def reserve_again(
        self, home: Home, claim: Claim, in_progress: InProgress
    ) -> Sequence[Shortage]:
        """See `Engine.reserve_again`."""
        from muster.engines.reservations import reserve

        return reserve.reserve_again(home, claim, in_progress)

    def reserve_scaled(
        self, home: Home, claim: Claim, in_progress: InProgress
    ) -> Sequence[Shortage]:
        """See `Engine.reserve_scaled`."""
        from muster.engines.reservations import reserve

        return reserve.reserve_scaled(home, claim, in_progress)

    def drop_lapsed_reservations(self, home: Home) -> None:
        """See `Engine.drop_lapsed_reservations`."""
        from muster.engines.reservations.table import Reservations

        Reservations(home).drop_lapsed()

    def waiting(self, home: Home) -> dict[str, str]:
        """See `Engine.waiting`."""
        from muster.engines.reservations import reserve

        return reserve.waiting(home)

    def started_ranks(self, folder: RunDir, refs: Iterable[NodeRef]) -> frozenset[int]:
        """See `Engine.started_ranks`."""
        from muster.engines.local.nodes import started_ranks  # few commands recover a run

        return started_ranks(folder, refs)

    def clean_up(self, run_id: str) -> None:
        """See `Engine.clean_up`."""
        from muster.node.control_groups import remove_groups_of

        with as_root():
            remove_groups_of(run_id)

    def prepare_cancel(self, run_id: str, *, force: bool, keep: bool) -> None:
        """See `Engine.prepare_cancel`."""

    def left_behind(self, run_id: str) -> bool:
        """See `Engine.left_behind`."""
        return False

    def warm(self) -> None:
        """See `Engine.warm`."""
        import muster.engines.local.session
        import muster.node.control_groups  # noqa: F401
        from muster.node.messages import prepare_agents

        prepare_agents()

    def may_share(self, plan: RunPlan | None = None) -> bool:
        """See `Engine.may_share`."""
        if plan is None:
            return self._isolation.namespaces and hasattr(os, "pidfd_open")
        return shares_process(plan)

    def prepare_parent(self, *, plain: bool) -> None:
        """See `Engine.prepare_parent`. plain: where a container forbids to mount /proc in a
        namespace, or the user cannot be mapped into one."""
        if plain:
            self._isolation = Isolation("plain", reason="/proc cannot be mounted")
        else:
            self._isolation = create_namespaces()

    def prepare_supervisor(self) -> None:
        """See `Engine.prepare_supervisor`."""
        if self._isolation.namespaces:
            set_up_mounts()

    def open(self, context: RunContext, loop: RunLoop, report: Report) -> Session:
        """See `Engine.open`. A session that is alone in its process kills and waits for any child,
        and may mount what its nodes see."""
        plan = context.plan
        if plan.own_interfaces and not self._isolation.namespaces:
            # the nodes' interfaces would be created in the machine's network
            text = f"network: {plan.network} needs namespaces: {self._isolation.reason}"
            raise EngineError(text)
        if context.account is not None and not plan.own_interfaces:
            text = "the run would share the machine's network with the runs of other owners"
            raise EngineError(f"{text}: use network: cluster, or isolated")
        # imported here because most processes only check plans
        from muster.engines.local.session import LocalSession

        if not context.alone:
            from muster.engines.local.agent_pool import AgentPool

            self._agents = self._agents or AgentPool()
            return LocalSession(context, self._isolation, loop, report, pool=self._agents)
        if not may_reserve(plan):
            return LocalSession(context, self._isolation, loop, report)
        from muster.engines.reservations.queued import QueuedSession

        open_session = partial(LocalSession, context, self._isolation, loop, report)
        return QueuedSession(context, loop, report, open_session)

    def counters(self, folder: RunDir, supervisor: int) -> dict[int, Counters]:
        """See `Engine.counters`."""
        from muster.engines.local import entry
        from muster.node import counters, gpu_usage

        if not os.path.exists("/proc/self/stat"):
            raise EngineError("resource usage is not measured here: this system has no /proc")
        agents = entry.find_agents(folder, supervisor)
        with as_root():
            found = counters.read_nodes(agents.values())
        gpus = gpu_usage.read_gpus()
        return {
            rank: gpu_usage.with_gpus(found[pid].counters, pid, gpus)
            for rank, pid in agents.items()
            if pid in found
        }

    def stacks(
        self, folder: RunDir, supervisor: int, ranks: Collection[int]
    ) -> tuple[list[ThreadStack], list[str]]:
        """See `Engine.stacks`."""
        from muster.engines.local.stacks import read_stacks

        return read_stacks(folder, supervisor, ranks)

    def forward(
        self, node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> PortForward:
        """See `Engine.forward`."""
        from muster.engines.local.forward import forward

        return forward(node, hosts, port, listener)

    def run_in_node(self, node: RunningNode, command: NodeCommand, stdio: Stdio) -> NodeProcess:
        """See `Engine.run_in_node`."""
        from muster.engines.local import entry  # few processes enter a node

        return entry.run(node, command, stdio)


if TYPE_CHECKING:
    from muster.engines.base import Engine

    _checked: type[Engine] = LocalEngine
