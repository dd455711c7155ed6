"""Manifests of JobSets and Jobs: written and read for tests, and run by hand.

Jobs have the names that JobSet gives them, without the JobSet's own name: `b-1` is the second Job
of the replicated Job b. A Job is a replica of one or more nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.lifecycle.events import ControllerStarted
from muster.lifecycle.states import NodeState
from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.formats.documents import Manifest, documents
from muster.spec.formats.jobset.plain_job_read import read_job
from muster.spec.formats.jobset.read import read_jobset
from muster.spec.override_models import RunOverrides
from muster.spec.resolve import resolve
from support.run_driver import RunDriver

MAX_INT32 = 2**31 - 1
#: The replicated Jobs of JobSet's controller tests: one with one Job, and one with three.
TWO = {"a": 1, "b": 3}


def replicated(name: str, replicas: int = 1, pods: int = 1, **more: Any) -> dict[str, Any]:
    """A replicated Job. `more` has command, env, probe and container (fields of its container),
    pod, job, and fields of the replicated Job."""
    container: dict[str, Any] = {"name": "main", "image": "busybox"}
    container["command"] = more.pop("command", ["true"])
    if "env" in more:
        container["env"] = [{"name": k, "value": v} for k, v in more.pop("env").items()]
    if "probe" in more:
        container["startupProbe"] = more.pop("probe")
    container |= more.pop("container", {})
    pod = {"restartPolicy": "Never", "containers": [container], **more.pop("pod", {})}
    job = {"parallelism": pods, "completions": pods, "backoffLimit": 0, **more.pop("job", {})}
    template = {"spec": {**job, "template": {"spec": pod}}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def jobset(
    jobs: Mapping[str, int] | list[dict[str, Any]] = TWO, *, name: str = "demo", **spec: Any
) -> dict[str, Any]:
    """A manifest; `spec` has the fields of the JobSet other than its replicated Jobs."""
    replicated_jobs = (
        [replicated(*item) for item in jobs.items()] if isinstance(jobs, Mapping) else jobs
    )
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": replicated_jobs, **spec},
    }


def rules(*listed: dict[str, Any], most: int = 0, **more: Any) -> dict[str, Any]:
    """A failurePolicy with `most` restarts and these rules."""
    return {"failurePolicy": {"maxRestarts": most, "rules": list(listed), **more}}


def read(manifest: dict[str, Any]) -> Manifest:
    """Read the manifest of a JobSet or Job."""
    (document,) = documents(json.dumps(manifest, indent=1), "jobset.yaml")
    return read_job(document) if manifest["kind"] == "Job" else read_jobset(document)


def plan_of(manifest: dict[str, Any]) -> RunPlan:
    spec = resolve(read(manifest).spec, RunOverrides()).spec
    return build_plan(
        arrange(spec),
        Identity("r1", "demo-1", "j1", "demo"),
        artifact=None,
        addresses=lambda _, nodes: [f"127.1.0.{i + 1}" for i in range(nodes)],
        source_kind=lambda _: "directory",
        shape_of=lambda name: ResourcePlan(cpus=8, shape=name),
    )


def write(manifest: dict[str, Any], folder: Path) -> str:
    """Write the manifest to a file in a folder that is mounted at the same path in its programs."""
    shown = json.loads(json.dumps(manifest))
    for job in shown["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        pod.setdefault("volumes", []).append({"name": "here", "hostPath": {"path": str(folder)}})
        for container in pod["containers"]:
            mounts = container.setdefault("volumeMounts", [])
            mounts.append({"name": "here", "mountPath": str(folder)})
    path = folder / f"{manifest['metadata']['name']}.yaml"
    path.write_text(json.dumps(shown))
    return str(path)


class Jobs(RunDriver):
    """A run of a manifest, driven by Job."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.plan = plan_of(manifest)
        spec = manifest["spec"]
        super().__init__(self.plan.policy, suspended=spec.get("suspend", False))
        self.step(ControllerStarted())

    def ranks(self, job: str) -> range:
        name, _, replica = job.rpartition("-")
        group = next(group for group in self.policy.groups if group.name == name)
        return group.replica_ranks(int(replica))

    def jobs_ready(self, *jobs: str) -> Jobs:
        """All pods of these Jobs become ready."""
        self.up(*(rank for job in jobs for rank in self.ranks(job)))
        return self

    def all_ready(self) -> Jobs:
        """All started nodes become ready."""
        self.up(*(r for r, node in enumerate(self.status.nodes) if node.alive))
        return self

    def complete(self, *jobs: str) -> Jobs:
        self.step(*(self.ended(rank) for job in jobs for rank in self.ranks(job)))
        return self

    def fail(self, *jobs: str, code: int = 1, **more: Any) -> Jobs:
        """The first pod of each Job fails, in one step."""
        self.step(*(self.ended(self.ranks(job)[0], code, **more) for job in jobs))
        return self

    def finish_stopping(self, *jobs: str) -> Jobs:
        """The pods of these Jobs that are being stopped end."""
        ranks = [r for job in jobs for r in self.ranks(job) if self.node(r).leaving]
        self.step(*(self.ended(rank, 143, signal=15) for rank in ranks))
        return self

    def names(self) -> list[str]:
        return [
            f"{group.name}-{replica}"
            for group in self.policy.groups
            for replica in range(group.replicas)
        ]

    def _which(self, ok: Any) -> list[str]:
        return [job for job in self.names() if all(ok(self.node(r)) for r in self.ranks(job))]

    def current(self) -> list[str]:
        """Jobs that were created and are not stopping."""
        return self._which(lambda node: node.alive and not node.leaving)

    def stopping(self) -> list[str]:
        return self._which(lambda node: node.leaving)

    def missing(self) -> list[str]:
        return self._which(lambda node: node.state is NodeState.PENDING)

    def succeeded(self) -> list[str]:
        return self._which(lambda node: node.state is NodeState.SUCCEEDED)

    def attempts(self) -> list[int]:
        """The incarnation of each Job."""
        return [self.node(self.ranks(job)[0]).incarnation for job in self.names()]

    @property
    def state(self) -> str:
        return str(self.status.state)
