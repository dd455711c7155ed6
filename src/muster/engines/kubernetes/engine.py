"""The engine `kubernetes`: nodes in pods of a cluster, a JobSet for each run.

Importing this module imports no client of Kubernetes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from muster.engines.kubernetes.profile import read_settings
from muster.engines.remote.engine import CAPABILITIES, RemoteEngine
from muster.errors import EngineError, Problem

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Sequence

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
    from muster.engines.findings import Finding
    from muster.engines.grantees import Grantees
    from muster.engines.kubernetes.hosts import KubernetesHosts
    from muster.engines.loop import RunLoop
    from muster.engines.profiles import Profile
    from muster.engines.remote.hosts import HostsOwner
    from muster.node.counters import Counters
    from muster.plan.model import ResourcePlan, RunPlan
    from muster.storage.home import Home, RunDir

#: Replicas of an array that run at once if the job does not say.
_AT_ONCE = 8


class KubernetesEngine(RemoteEngine):
    """See `engines.base.Engine`. Raises InvalidInput for a wrong profile."""

    capabilities = replace(
        CAPABILITIES,
        limits=True,
        gpus=True,
        queueing=True,
        run_network=True,
        extra_containers=True,
        native_restarts=True,
        principals=False,
        workloads=True,
        pod_patches=True,
    )

    def __init__(self, profile: Profile, home: Home) -> None:
        self.name = profile.name
        self._profile = read_settings(profile.settings)
        self._home = home

    def available(self) -> str:
        """See `Engine.available`."""
        from muster.engines.kubernetes.cluster import why_not_installed

        return why_not_installed()

    def findings(self) -> list[Finding]:
        """See `Engine.findings`."""
        from muster.engines.kubernetes.examine import examine

        return examine(self._profile, self.name, self._home)

    def misconfigured(self, environ: Mapping[str, str]) -> str:
        """See `Engine.misconfigured`."""
        from muster.engines.kubernetes.access import why_no_cluster

        return why_no_cluster(self._profile, environ)

    def rights(self, grantees: Grantees) -> str:
        """See `Engine.rights`."""
        from muster.engines.kubernetes.rights import rights

        return rights(self._profile, grantees)

    def check(self, plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
        """See `Engine.check`."""
        from muster.engines.kubernetes.plan_problems import problems
        from muster.engines.remote import plan_checks

        if plan.workload is not None:
            return []  # the API server checks it
        found = list(problems(plan, self._profile))
        if problem := plan_checks.check_open_files(plan, replicas, 0):
            found.append(problem._replace(hint=f"{problem.hint}, or run fewer nodes"))
        return [*found, *plan_checks.problems(self.name, plan, own_names=True)]

    def replicas_at_once(self, resources: ResourcePlan, nodes: int) -> int:
        """See `Engine.replicas_at_once`."""
        return _AT_ONCE

    def notes(self, plan: RunPlan) -> list[str]:
        """See `Engine.notes`."""
        from muster.engines.kubernetes.found_versions import found_versions
        from muster.engines.kubernetes.namespaces import namespace_notes
        from muster.engines.kubernetes.notes import notes

        if plan.workload is not None:
            return []
        found = notes(plan, self._profile, lambda: found_versions(self._home, self._profile))
        return [*namespace_notes(plan, self._profile, os.environ), *found]

    def explain(self, plan: RunPlan) -> list[str]:
        """See `Engine.explain`."""
        if plan.workload is not None:
            return ["the cluster runs the JobSet as it is, and decides about restarts and its end"]
        from muster.engines.kubernetes.found_versions import found_versions
        from muster.engines.kubernetes.native_restarts import restarts_left
        from muster.engines.kubernetes.notes import versions_text
        from muster.spec.quantities import format_duration

        versions = found_versions(self._home, self._profile)
        found = ["programs restart in their pods; only a pod that is lost is replaced"]
        if not plan.policy.restarts:
            found = [
                "failure.max_restarts is 0: the run fails when a program fails or a pod is lost, "
                "unless the pod was drained or preempted"
            ]
        found.append(versions_text(versions))
        if self._profile.contact == "exec":
            found.append("messages go through the API server, by exec streams into the pods")
        has_jobset = versions is None or versions.jobset is not None
        if has_jobset and (most := restarts_left(plan, self._profile)):
            window = format_duration(self._profile.decision_window or 0.0)
            found.append(
                f"if a program fails and no Muster process drives the run for {window}, JobSet "
                f"replaces all pods, at most {most} times; programs start in them when a Muster "
                "process drives the run again"
            )
        return found

    def preview(self, plan: RunPlan) -> dict[str, str]:
        """See `Engine.preview`."""
        from muster.engines.kubernetes.applied import shown
        from muster.engines.kubernetes.found_versions import found_versions
        from muster.engines.kubernetes.versions import Versions
        from muster.spec.formats.yaml_write import dump

        if plan.workload is not None:
            from muster.engines.kubernetes.observed_record import preview

            return preview(plan, self._profile)
        versions = found_versions(self._home, self._profile) or Versions()
        made = shown(plan, self._profile, versions)
        return {f"{one['kind']} {one['metadata']['name']}": dump(one) for one in made}

    def dry_run(self, plan: RunPlan) -> list[Finding]:
        """See `Engine.dry_run`."""
        from muster.engines.kubernetes.dry_run import dry_run

        return dry_run(plan, self._profile, self._home)

    def clean_up(self, run_id: str) -> None:
        """See `Engine.clean_up`."""
        from muster.engines.kubernetes.clean_up import delete_all, delete_observed

        delete_observed(self._home.run_dir(run_id), run_id, self._profile)
        delete_all(self._home.run_dir(run_id), run_id, self._profile)

    def left_behind(self, run_id: str) -> bool:
        """See `Engine.left_behind`."""
        from muster.engines.kubernetes.clean_up import has_jobsets

        return has_jobsets(self._home.run_dir(run_id))

    def images(self, plan: RunPlan) -> Sequence[str]:
        """See `Engine.images`."""
        from muster.engines.kubernetes.applied import images
        from muster.engines.kubernetes.versions import Versions
        from muster.spec.formats.jobset.as_is import images as images_of

        if plan.workload is not None:  # one that was adopted is in the cluster already
            return () if plan.workload.uid else images_of(plan.workload.manifest)
        return images(plan, self._profile, Versions())

    def read_workload(self, reference: str, namespace: str | None) -> Mapping[str, Any]:
        """See `Engine.read_workload`."""
        from muster.engines.kubernetes.workloads import read_jobset

        return read_jobset(self._profile, reference, namespace)

    def open(self, context: RunContext, loop: RunLoop, report: Report) -> DetachedSession:
        """See `Engine.open`."""
        if context.plan.workload is None:
            return super().open(context, loop, report)
        from muster.engines.kubernetes.observed_session import ObservedSession

        try:
            return ObservedSession(context, self._profile, loop, report)
        except OSError as error:
            raise EngineError(f"the JobSet of the run is not known: {error}") from None

    def counters(self, folder: RunDir, supervisor: int) -> dict[int, Counters]:
        """See `Engine.counters`."""
        from muster.engines.kubernetes.observed_nodes import observed

        if (found := observed(folder)) is None:
            return super().counters(folder, supervisor)
        from muster.engines.kubernetes.observed_usage import read_counters

        return read_counters(folder, found, self._profile)

    def stacks(
        self, folder: RunDir, supervisor: int, ranks: Collection[int]
    ) -> tuple[list[ThreadStack], list[str]]:
        """See `Engine.stacks`."""
        from muster.engines.kubernetes.observed_nodes import refuse_stacks

        refuse_stacks(folder)
        return super().stacks(folder, supervisor, ranks)

    def forward(
        self, node: RunningNode, hosts: Sequence[str], port: int, listener: socket.socket
    ) -> PortForward:
        """See `Engine.forward`."""
        from muster.engines.kubernetes.observed_nodes import refuse_forward

        refuse_forward(node.folder, node.rank, port)
        return super().forward(node, hosts, port, listener)

    def run_in_node(self, node: RunningNode, command: NodeCommand, stdio: Stdio) -> NodeProcess:
        """See `Engine.run_in_node`."""
        from muster.engines.kubernetes.observed_nodes import node_pod, observed

        if (found := observed(node.folder)) is None:
            return super().run_in_node(node, command, stdio)
        from muster.engines.kubernetes.pod_commands import run

        pod = node_pod(node.folder, node.rank, found)
        return run(pod, found, self._profile, command, stdio)

    def make_hosts(self, context: RunContext, loop: RunLoop, owner: HostsOwner) -> KubernetesHosts:
        """See `RemoteEngine.make_hosts`."""
        from muster.engines.kubernetes.hosts import KubernetesHosts

        try:
            return KubernetesHosts(context, self._profile, loop, owner)
        except OSError as error:
            raise EngineError(f"the JobSets of the run are not known: {error}") from None
