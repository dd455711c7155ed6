"""Which field of a job a field of its manifest comes from. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from muster.node.pod import GROUP
from muster.spec.formats.jobset.cluster_settings import (
    MAX_EXEC_TIME,
    OBJECTS,
    PRIORITY,
    QUEUE,
    TOPOLOGY,
)
from muster.spec.formats.jobset.own_parts import NODE, RUN

_REPLICATED = re.compile(r"spec\.replicatedJobs\[([^\]]+)\]\.?(.*)")
_LISTED = re.compile(r"(containers|initContainers)\[([^\]]+)\]\.?(.*)")
_JOB, _POD = "template.spec.", "template.spec.template."
#: Field of an object -> field of the job.
_OF_JOB = {
    "metadata.name": "name",
    "metadata.annotations": "annotations",
    f"metadata.labels[{QUEUE}]": "kueue.queue",
    f"metadata.labels[{PRIORITY}]": "kueue.priority",
    f"metadata.labels[{MAX_EXEC_TIME}]": "max_runtime",
    "metadata.labels": "tags",
    "spec.failurePolicy.maxRestarts": "failure.max_restarts",
    "spec.network.subdomain": "subdomain",
}
#: Field of a replicated Job -> field of the group.
_OF_GROUP = {
    "name": "name",
    "replicas": "replicas",
    "template.metadata": "job_metadata",
    f"{_JOB}parallelism": "nodes",
    f"{_JOB}completions": "nodes",
    **{
        f"{_POD}metadata.annotations[{annotation}]": f"kubernetes.topology.{name}"
        for name, annotation in TOPOLOGY.items()
    },
    f"{_POD}metadata": "pod_metadata",
    **{f"{_POD}spec.{field}": f"kubernetes.{name}" for name, field in OBJECTS.items()},
    f"{_POD}spec.imagePullSecrets": "kubernetes.image_pull_secrets",
    f"{_POD}spec.nodeSelector": "kubernetes.node_selector",
    f"{_POD}spec.tolerations": "kubernetes.tolerations",
    f"{_POD}spec.affinity": "kubernetes.affinity",
    f"{_POD}spec.securityContext.supplementalGroups": "container.groups",
    f"{_POD}spec.volumes": "mounts",
}
#: Field of a container -> field of the group, or of its further container.
_OF_CONTAINER = {
    "image": "image",
    "imagePullPolicy": "container.pull",
    "securityContext.capabilities.add": "container.cap_add",
    "securityContext.capabilities.drop": "container.cap_drop",
    "securityContext.privileged": "container.privileged",
    "securityContext.readOnlyRootFilesystem": "container.read_only",
    "securityContext.runAsUser": "container.user",
    "securityContext.runAsGroup": "container.user",
    "securityContext.runAsNonRoot": "container.non_root",
    "securityContext.allowPrivilegeEscalation": "container.no_new_privileges",
    "securityContext.seccompProfile": "container.seccomp",
    "securityContext": "container",
    "volumeMounts": "mounts",
    "env": "env",
    "workingDir": "working_dir",
    "startupProbe": "startup_probe",
    "name": "name",
    "command": "command",
    "args": "args",
}
_AMOUNTS = {
    "cpu": "cpus",
    "memory": "memory",
    "ephemeral-storage": "disk",
    "nvidia.com/gpu": "gpus",
}
_AMOUNT = re.compile(r"resources\.(?:limits|requests)[.\[]([^\]]+)\]?")


def spec_path(path: str, manifest: Mapping[str, Any]) -> str:
    """The field of the job for a field of its manifest; the path itself if it comes from none, as
    in a manifest of the user's that is applied as it is."""
    if _is_as_is(manifest):
        return path
    if (found := _REPLICATED.fullmatch(path)) is not None:
        jobs = (manifest.get("spec") or {}).get("replicatedJobs") or ()
        job = _item(jobs, found[1])
        return _of_group(str(job.get("name") or found[1]), found[2], job, path)
    if manifest.get("kind") == "Job" and path.startswith("spec."):
        job = {"template": {"spec": manifest.get("spec") or {}}}
        if group := _group_of(job):
            return _of_group(group, f"template.{path}", job, path)
    return _longest(path, _OF_JOB) or path


def _is_as_is(manifest: Mapping[str, Any]) -> bool:
    """Whether a JobSet is a user's: such a one has the label of its run, and its Jobs do not."""
    jobs = (manifest.get("spec") or {}).get("replicatedJobs") or ()
    templates = (one.get("template") or {} for one in jobs)
    return _has_label(manifest) and bool(jobs) and not any(map(_has_label, templates))


def _has_label(labelled: Mapping[str, Any]) -> bool:
    return RUN in ((labelled.get("metadata") or {}).get("labels") or {})


def _of_group(group: str, path: str, job: Mapping[str, Any], whole: str) -> str:
    start = f"node_groups[{group}]"
    if not path:
        return start
    pod = f"{_POD}spec."
    if path.startswith(pod) and (found := _LISTED.fullmatch(path[len(pod) :])) is not None:
        return f"{start}.{_of_container(found, job)}"
    known = _longest(path, _OF_GROUP)
    return f"{start}.{known}" if known else f"{start} ({whole})"


def _of_container(found: re.Match[str], job: Mapping[str, Any]) -> str:
    kind, key, field = found.groups()
    name = str(_item(_pod_spec(job).get(kind) or (), key).get("name", NODE))
    start = "" if name == NODE else f"extra_containers[{name}]"
    known = _amount(field) or _longest(field, _OF_CONTAINER) or field
    return ".".join(part for part in (start, known) if part) or "image"


def _item(items: Sequence[Mapping[str, Any]], key: str) -> Mapping[str, Any]:
    """The entry of a list for a position, or for `name="x"`; {} without one."""
    if key.isdecimal():
        return items[int(key)] if int(key) < len(items) else {}
    name = key.removeprefix("name=").strip('"')
    return next((one for one in items if one.get("name") == name), {"name": name})


def _amount(field: str) -> str:
    """The field of a job for an amount of a resource; "" if it is none."""
    if (found := _AMOUNT.fullmatch(field)) is not None:
        own = _AMOUNTS.get(found[1])
        return f"resources.{own}" if own else f"kubernetes.resources.{found[1]}"
    return "resources" if field.startswith("resources") else ""


def _pod_spec(job: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Any = job
    for key in ("template", "spec", "template", "spec"):
        spec = spec.get(key) or {}
    return spec if isinstance(spec, Mapping) else {}


def _group_of(job: Mapping[str, Any]) -> str:
    """The group of a plain Job, from the variables of its pods."""
    containers: Sequence[Mapping[str, Any]] = _pod_spec(job).get("containers") or ()
    variables = [one for made in containers for one in made.get("env") or ()]
    return next((str(v["value"]) for v in variables if v.get("name") == GROUP), "")


def _longest(path: str, known: Mapping[str, str]) -> str:
    """What the longest known start of a path stands for; "" if none is known."""
    starts = [one for one in known if path == one or path.startswith((f"{one}.", f"{one}["))]
    return known[max(starts, key=len)] if starts else ""
