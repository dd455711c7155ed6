"""JobSet manifests, read as Muster reads them and then driven by hand.

Jobs are called by what JobSet calls them, less the JobSet's own name: `b-1` is the second Job of
the replicated Job b. A Job here is a replica of one or more nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.lifecycle.events import RunBegan
from muster.lifecycle.states import NodeState
from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.formats.documents import documents
from muster.spec.formats.jobset_read import Manifest, read_jobset
from muster.spec.override_models import RunOverrides
from muster.spec.resolve import resolve
from support.life import Life

MAX_INT32 = 2**31 - 1
#: As JobSet's own controller tests have it: one Job, and three of them.
TWO = {"a": 1, "b": 3}


def replicated(name: str, replicas: int = 1, pods: int = 1, **more: Any) -> dict[str, Any]:
    """A replicated Job. more: command, env, probe (of its container), job (fields of its Job), and
    fields of its own."""
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
    """A manifest. spec: fields of the JobSet besides its replicated Jobs."""
    made = [replicated(*item) for item in jobs.items()] if isinstance(jobs, Mapping) else jobs
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": made, **spec},
    }


def rules(*made: dict[str, Any], most: int = 0, **more: Any) -> dict[str, Any]:
    """A failurePolicy with so many restarts and these rules."""
    return {"failurePolicy": {"maxRestarts": most, "rules": list(made), **more}}


def read(manifest: dict[str, Any]) -> Manifest:
    (document,) = documents(json.dumps(manifest, indent=1), "jobset.yaml")
    return read_jobset(document)


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
    """The manifest as a file, in a folder that its programs can see where it is."""
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


class Jobs(Life):
    """A run of a manifest. What its nodes do is told by Job."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.plan = plan_of(manifest)
        spec = manifest["spec"]
        super().__init__(self.plan.policy, suspended=spec.get("suspend", False))
        self.tell(RunBegan())

    def ranks(self, job: str) -> range:
        name, _, replica = job.rpartition("-")
        group = next(group for group in self.policy.groups if group.name == name)
        return group.replica_ranks(int(replica))

    def jobs_ready(self, *jobs: str) -> Jobs:
        """Their pods are."""
        self.up(*(rank for job in jobs for rank in self.ranks(job)))
        return self

    def all_ready(self) -> Jobs:
        """Whatever has been started is."""
        self.up(*(r for r, node in enumerate(self.status.nodes) if node.alive))
        return self

    def complete(self, *jobs: str) -> Jobs:
        self.tell(*(self.ended(rank) for job in jobs for rank in self.ranks(job)))
        return self

    def fail(self, *jobs: str, code: int = 1, **more: Any) -> Jobs:
        """The first pod of each fails, in one moment."""
        self.tell(*(self.ended(self.ranks(job)[0], code, **more) for job in jobs))
        return self

    def gone(self, *jobs: str) -> Jobs:
        """What was told to end of these has."""
        ranks = [r for job in jobs for r in self.ranks(job) if self.node(r).leaving]
        self.tell(*(self.ended(rank, 143, signal=15) for rank in ranks))
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
        """Jobs that have been created, and are not on their way out."""
        return self._which(lambda node: node.alive and not node.leaving)

    def leaving(self) -> list[str]:
        return self._which(lambda node: node.leaving)

    def missing(self) -> list[str]:
        return self._which(lambda node: node.state is NodeState.PENDING)

    def succeeded(self) -> list[str]:
        return self._which(lambda node: node.state is NodeState.SUCCEEDED)

    def attempts(self) -> list[int]:
        """Which life each Job is in."""
        return [self.node(self.ranks(job)[0]).incarnation for job in self.names()]

    @property
    def state(self) -> str:
        return str(self.status.state)
