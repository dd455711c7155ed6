"""One run on this machine: forks its nodes, hears from them, notes their logs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence

from muster.engines.base import RunContext
from muster.engines.local import gpus, mounting, names
from muster.engines.local.attempts import Attempts
from muster.engines.local.begun import begun
from muster.engines.local.crew import Crew
from muster.engines.local.ends import NOT_BEGUN, not_started, verdict
from muster.engines.local.fabric import Fabric
from muster.engines.local.isolation import Isolation
from muster.engines.local.joining import Joining
from muster.engines.local.ports import Ports
from muster.engines.local.starting import LocalNode, Starter
from muster.engines.local.synced import SyncedMounts
from muster.errors import EngineError, MusterError
from muster.lifecycle.events import NodeEnded, NodeEvent, NodeReady, NodeStarted
from muster.lifecycle.status import NodeRef
from muster.node.processes import become_subreaper, kill_everything, wake_on_signals

_LONGEST_WAIT = 86400.0  # seconds
#: What an agent has to answer an order to end its node at once (seconds) before it is ended itself.
_ANSWER = 5.0


class LocalSession:
    """See `engines.base.Session`. Lives in the run's supervisor, whose children the nodes are."""

    def __init__(self, context: RunContext, isolation: Isolation) -> None:
        plan = context.plan
        if plan.network == "isolated" and not isolation.namespaces:
            # without them its cables would be laid in the machine's own network
            raise EngineError(f"network: isolated needs namespaces: {isolation.reason}")
        self._isolation = isolation
        self._keep = context.keep
        self._run_dir = context.home.run_dir(plan.run_id)
        self._crew = Crew()
        self._events: list[NodeEvent] = []
        self._overdue: dict[int, float] = {}  # pid -> when its agent will not be waited for longer
        self._closed = False
        self._wake = wake_on_signals()
        if not isolation.namespaces:
            become_subreaper()
        self._ports = Ports(plan.ports, isolated=plan.network == "isolated")
        fabric = Fabric() if plan.network == "isolated" else None
        self._joining = Joining(plan, self._run_dir.cluster_file, fabric)
        wanted = any(group.resources.gpus for group in plan.groups)
        self._gpus = gpus.GpuPool(context.home.root / "gpus", gpus.devices() if wanted else [])
        placed = mounting.place(plan, self._run_dir.mounts)
        mounting.mount_exports(plan, placed)
        self._synced = SyncedMounts(plan, placed)
        names.write_hosts(self._run_dir.hosts, plan.nodes)
        self._attempts = Attempts(plan, self._run_dir)
        self._starter = Starter(
            context, isolation, ports=self._ports.numbers, gpus=self._gpus, placed=placed
        )
