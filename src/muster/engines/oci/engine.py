"""The engine `oci`: nodes in job runs of OCI Data Science, or of a server that answers as it does.

Importing this module imports nothing of Oracle's SDK.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.engines.oci.profile import read_settings
from muster.engines.remote.engine import CAPABILITIES, RemoteEngine
from muster.errors import EngineError, Problem
from muster.spec.values import MAX_RUNTIME

if TYPE_CHECKING:
    from muster.engines.base import RunContext
    from muster.engines.findings import Finding
    from muster.engines.loop import RunLoop
    from muster.engines.oci.hosts import OciHosts
    from muster.engines.profiles import Profile
    from muster.engines.remote.hosts import HostsOwner
    from muster.plan.model import ResourcePlan, RunPlan
    from muster.storage.home import Home

#: Replicas of an array that run at once if the job does not say: each is a job run of its own.
_AT_ONCE = 8


class OciEngine(RemoteEngine):
    """See `engines.base.Engine`. Raises InvalidInput for a wrong profile."""

    #: Nodes have the credentials of their job run in OCI, which are not to be hidden.
    capabilities = replace(CAPABILITIES, limits=True, gpus=True, queueing=True, principals=False)

    def __init__(self, profile: Profile, home: Home) -> None:
        self.name = profile.name
        self._profile = read_settings(profile.settings)
        self._home = home

    def available(self) -> str:
        """See `Engine.available`."""
        from muster.engines.oci.client import why_not_installed

        return why_not_installed()

    def findings(self) -> list[Finding]:
        """See `Engine.findings`."""
        from muster.engines.oci.examine import examine

        return examine(self._profile)

    def check(self, plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
        """See `Engine.check`."""
        from muster.engines.oci import details
        from muster.engines.oci.listen import is_reachable
        from muster.engines.remote import plan_checks
        from muster.node import tunnel

        found = list(details.problems(plan, self._profile))
        if not is_reachable(self._profile):
            text = f"nodes of engine {self.name} cannot reach this machine"
            hint = (
                "set `bucket` in the profile to a bucket through which they do, or `address` to an "
                "address of this machine that they reach, as from its own subnet"
            )
            found.append(Problem("engine", text, hint))
        if plan.network == "isolated":
            text = f"nodes of engine {self.name} are on a network of the service"
            found.append(Problem("network", text, "use cluster or shared"))
        carrying = 0 if self._profile.bucket is None else tunnel.OPEN_FILES
        if problem := plan_checks.check_open_files(plan, replicas, carrying):
            found.append(problem._replace(hint=f"{problem.hint}, or run fewer nodes"))
        return [*found, *plan_checks.problems(self.name, plan)]

    def replicas_at_once(self, resources: ResourcePlan, nodes: int) -> int:
        """See `Engine.replicas_at_once`."""
        return _AT_ONCE

    def notes(self, plan: RunPlan) -> list[str]:
        """See `Engine.notes`."""
        from muster.engines.oci.notes import notes

        return notes(plan, self._profile)

    def explain(self, plan: RunPlan) -> list[str]:
        """See `Engine.explain`."""
        found = []
        if self._profile.multi_node:
            found.append(
                "a machine that the service loses ends its job run: all nodes of that are replaced "
                "together, in a new one"
            )
        elif len(plan.nodes) > 1:
            found.append(
                "each node has a job run of its own: those that have a machine wait for the others"
            )
        if self._profile.bucket is not None:
            found.append(
                "messages go through a bucket: commands take up to a second longer, and a node "
                "that is lost is noticed after up to 40 s"
            )
        if len(plan.nodes) > 1 and self._profile.subnet is None and self._profile.multi_node:
            found.append(
                "nodes of different job runs, such as replacements, reach each other only with "
                "`subnet` in the profile"
            )
        if plan.policy.max_runtime >= MAX_RUNTIME:
            found.append("the service cancels its job run after 30 days")
        if not self._profile.keep_jobs:
            found.append("its job is deleted in the service when its nodes have ended")
        return found

    def preview(self, plan: RunPlan) -> dict[str, str]:
        """See `Engine.preview`."""
        from muster.engines.oci.details import job_details, parts_of
        from muster.engines.remote.hosts import first_parts

        jobs = parts_of(first_parts(plan), self._profile)
        titles = ["CreateJob"] if len(jobs) == 1 else [f"CreateJob {n}" for n in range(len(jobs))]
        bodies = [job_details(plan, s, number, self._profile) for number, s in enumerate(jobs)]
        return {
            title: json.dumps(body, indent=2) + "\n"
            for title, body in zip(titles, bodies, strict=True)
        }

    def clean_up(self, run_id: str) -> None:
        """See `Engine.clean_up`."""
        from muster.engines.oci.clean_up import end_jobs

        end_jobs(self._home.run_dir(run_id), run_id, self._profile)

    def left_behind(self, run_id: str) -> bool:
        """See `Engine.left_behind`."""
        from muster.engines.oci.clean_up import has_jobs

        return has_jobs(self._home.run_dir(run_id))

    def make_hosts(self, context: RunContext, loop: RunLoop, owner: HostsOwner) -> OciHosts:
        """See `RemoteEngine.make_hosts`."""
        from muster.engines.oci.hosts import OciHosts
        from muster.engines.oci.listen import is_reachable

        if not is_reachable(self._profile):
            text = "nodes cannot reach this machine: set `bucket` or `address` in the profile"
            raise EngineError(text)
        try:
            return OciHosts(context, self._profile, loop, owner)
        except OSError as error:
            raise EngineError(f"the jobs of the run are not known: {error}") from None
