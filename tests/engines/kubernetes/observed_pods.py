"""Pods of a JobSet that is observed."""

from __future__ import annotations

from typing import Any

from muster.engines.kubernetes.observed_facts import ObservedPod, observed_pod
from muster.spec.formats.jobset.as_is import Part

_JOBSET = "jobset.sigs.k8s.io"
_INDEX = "batch.kubernetes.io/job-completion-index"


def part(name: str = "w", jobs: int = 1, pods: int = 2) -> Part:
    """A replicated Job with a main container."""
    return Part(name, name, jobs, pods, "main", "busybox", 30.0)


def manifest(
    name: str, index: int | None = 0, *, job: int = 0, restarts: int = 0, **status: Any
) -> dict[str, Any]:
    """A pod as the API server has it. status: of the pod; `code` is that of its main container."""
    labels = {
        f"{_JOBSET}/replicatedjob-name": "w",
        f"{_JOBSET}/job-index": str(job),
        f"{_JOBSET}/restart-attempt": str(restarts),
        f"{_JOBSET}/jobset-uid": "js",
    }
    if index is not None:
        labels[_INDEX] = str(index)
    code, deleting = status.pop("code", None), status.pop("deleting", False)
    at = status.pop("at", "2026-01-02T03:04:05Z")
    if code is not None:
        state = {"terminated": {"exitCode": code, "finishedAt": at, "reason": "Error"}}
        status["phase"] = "Failed" if code else "Succeeded"
    else:
        state = {"running": {"startedAt": at}} if status.get("phase") == "Running" else {}
    status["containerStatuses"] = [{"name": "main", "state": state}]
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
    if deleting:
        metadata["deletionTimestamp"] = at
    spec = {"nodeName": "m1", "containers": [{"name": "main"}, {"name": "log"}]}
    return {"metadata": metadata, "spec": spec, "status": {"podIP": "10.0.0.1", **status}}


def pod(name: str, index: int | None = 0, **more: Any) -> ObservedPod:
    return observed_pod(manifest(name, index, **more), "r1", {"w": "main"})


def runs(name: str, index: int | None = 0, **more: Any) -> ObservedPod:
    return pod(name, index, phase="Running", **more)
