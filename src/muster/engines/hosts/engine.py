"""The engine `hosts`: nodes on machines that OpenSSH reaches, and on which nothing is installed."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.engines.hosts.profile import read_settings
from muster.engines.remote.engine import CAPABILITIES, RemoteEngine
from muster.errors import Problem
from muster.identity import user_name
from muster.spec.quantities import format_duration

if TYPE_CHECKING:
    from muster.engines.base import RunContext
    from muster.engines.findings import Finding
    from muster.engines.hosts.hosts import RunHosts
    from muster.engines.hosts.ssh import SshSettings
    from muster.engines.loop import RunLoop
    from muster.engines.profiles import Profile
    from muster.engines.remote.hosts import HostsOwner
    from muster.plan.model import ResourcePlan, RunPlan
    from muster.storage.home import Home


class HostsEngine(RemoteEngine):
    """See `engines.base.Engine`. Raises InvalidInput for a wrong profile."""

    capabilities = replace(CAPABILITIES, limits=True, gpus=True, queueing=True)

    def __init__(self, profile: Profile, home: Home) -> None:
        self.name = profile.name
        self._profile = read_settings(profile.settings)
        self._home = home

    def available(self) -> str:
        """See `Engine.available`."""
        return "" if shutil.which("ssh") else "ssh is not installed"

    def findings(self) -> list[Finding]:
        """See `Engine.findings`."""
        from muster.engines.hosts.examine import examine

        # one that is shared may have been made with other keys, or to another machine
        ssh = replace(self._ssh(), shared=False)
        return examine(self._profile.machines, self._profile.folder, ssh)

    def check(self, plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
        """See `Engine.check`."""
        from muster.engines.remote import plan_checks

        problems = [*self._too_many(plan), *self._too_many_gpus(plan)]
        if plan.network == "isolated":
            text = "the nodes of engine hosts share the network of their machines"
            problems.append(Problem("network", text, "use cluster or shared"))
        if problem := plan_checks.check_open_files(plan, replicas):
            problems.append(problem._replace(hint=f"{problem.hint}, or run fewer nodes"))
        return [*problems, *plan_checks.problems(self.name, plan)]

    def replicas_at_once(self, resources: ResourcePlan, nodes: int) -> int:
        """See `Engine.replicas_at_once`."""
        return max(1, self._room // nodes)

    @property
    def _room(self) -> int:
        """The most nodes that run at the same time."""
        return sum(machine.slots for machine in self._profile.machines)

    def _too_many(self, plan: RunPlan) -> list[Problem]:
        room = self._room
        # of an array, one replica at a time will do
        alone = [group.size for group in plan.groups if not group.is_array]
        nodes = sum(alone) + max((one.nodes for one in plan.groups if one.is_array), default=0)
        if nodes <= room:
            return []
        text = f"{nodes} nodes run at the same time, and engine {self.name} has room for {room}"
        hint = f"add machines or `slots` to {self._home.engines / self.name}.toml"
        return [Problem("", text, hint)]

    def _too_many_gpus(self, plan: RunPlan) -> list[Problem]:
        known = [one.gpus for one in self._profile.machines]
        if None in known:
            return []
        most = max(one for one in known if one is not None)
        return [
            Problem(
                f"node_groups[{group.name}].resources.gpus",
                f"{group.resources.gpus} GPUs are more than a machine of {self.name} has: {most}",
            )
            for group in plan.groups
            if group.resources.demands("gpus") and group.resources.gpus > most
        ]

    def explain(self, plan: RunPlan) -> list[str]:
        """See `Engine.explain`."""
        alone = self._profile.isolation_timeout
        if alone is None:
            return ["a node without contact is not replaced, since it may still run"]
        after = format_duration(alone)
        return [f"a machine ends its node after {after} without contact; then it is replaced"]

    def clean_up(self, run_id: str) -> None:
        """See `Engine.clean_up`."""
        from muster.engines.hosts.clean_up import end_nodes

        end_nodes(self._home.run_dir(run_id), run_id, self._ssh())

    def make_hosts(self, context: RunContext, loop: RunLoop, owner: HostsOwner) -> RunHosts:
        """See `RemoteEngine.make_hosts`."""
        from muster.engines.hosts.hosts import RunHosts

        user = f"{user_name()}@{socket.gethostname()}"
        return RunHosts(context, self._profile, self._ssh(), user, loop, owner)

    def _ssh(self) -> SshSettings:
        from muster.engines.hosts.ssh import SshSettings, socket_folder

        config = self._profile.ssh_config
        return SshSettings(socket_folder(), None if config is None else os.path.expanduser(config))
