"""What is applied for a run: one JobSet or, without JobSet in the cluster, a Job for each replica.
Pure: `muster explain` shows what is applied, from the same code.

The lifecycle decides about order, failure and success while anybody drives the run: all pods start
together, and each has succeeded for the cluster when its node program has left. A pod that is lost
is replaced by its Job alone, and so is one that fails by itself, as when it cannot start. The
failure policies here are for when nobody answers: a node program whose program has failed exits
with a code of its own then, which fails its Job, and JobSet restarts all (`native_restarts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from muster.engines.kubernetes.layout import JobLayout, layout
from muster.engines.kubernetes.names import jobset_name, run_labels
from muster.engines.kubernetes.native_restarts import restarts_left
from muster.engines.kubernetes.pods import PodContext, pod_template
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.versions import RESTART_STRATEGY, Versions
from muster.node.server import UNDECIDED
from muster.plan.model import GroupPlan, KueuePlan, RunPlan
from muster.spec.formats.jobset import cluster_settings
from muster.spec.formats.jobset.cluster_settings import (
    job_annotations,
    merged,
)
from muster.spec.formats.jobset.kubernetes_limits import MAX_INT32
from muster.spec.formats.jobset.model import API_VERSION
from muster.spec.formats.jobset.own_parts import NODE
from muster.spec.formats.jobset.write import is_label
from muster.spec.values import MAX_RUNTIME

QUEUE = cluster_settings.QUEUE
#: Seconds that Kueue allows a run beyond its own limit: to save, to copy outputs, and to end.
_MARGIN = 300.0
#: Rules for pods that have ended. All that no rule is about are replaced by their Job, alone.
_DISRUPTIONS_DO_NOT_COUNT = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
_UNDECIDED_FAILS = {
    "action": "FailJob",
    "onExitCodes": {"containerName": NODE, "operator": "In", "values": [UNDECIDED]},
}


def manifest(
    plan: RunPlan,
    profile: KubernetesProfile,
    versions: Versions,
    slots: Iterable[int] | None = None,
    number: int = 0,
    avoid: Sequence[str] = (),
    *,
    max_restarts: int | None = None,
) -> list[dict[str, Any]]:
    """The objects with pods, without the ConfigMap and Secret that belong to them (`objects`).
    slots: None for all. avoid: names of machines that get no pod. number, max_restarts: of the
    allocation, see `record.Allocation`; None: of the first one."""
    most = restarts_left(plan, profile) if max_restarts is None else max_restarts
    name = jobset_name(plan, number)
    every = layout(plan, range(len(plan.nodes)) if slots is None else slots)
    context = PodContext(plan, profile, name, avoid=avoid)
    if versions.jobset is None:
        return [_service(plan, profile, name), *_jobs(context, every)]
    made = _jobset(context, every, is_restarted=most > 0)
    if most:
        made["spec"]["failurePolicy"] = _failure_policy(most, versions)
    return [made]


def _jobset(
    context: PodContext, every: Sequence[JobLayout], *, is_restarted: bool
) -> dict[str, Any]:
    """is_restarted: whether JobSet makes all pods again when a Job has failed."""
    plan, profile, name = context.plan, context.profile, context.name
    templates = [_job_template(context, one) for one in every]
    if is_restarted:
        for template in templates:
            template["spec"]["podFailurePolicy"]["rules"].append(_UNDECIDED_FAILS)
    spec: dict[str, Any] = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [
            {"name": one.name, "replicas": one.jobs, "template": template}
            for one, template in zip(every, templates, strict=True)
        ],
        "successPolicy": {"operator": "All"},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": _metadata(plan, profile, name),
        "spec": spec,
    }


def _failure_policy(max_restarts: int, versions: Versions) -> dict[str, Any]:
    """No new pod is made before all old ones have ended: two must never be the same node. An older
    JobSet may make some before; nothing runs in these until Muster has seen the others end."""
    made: dict[str, Any] = {"maxRestarts": max_restarts}
    if versions.has(RESTART_STRATEGY):
        made["restartStrategy"] = "BlockingRecreate"
    return made


def _metadata(plan: RunPlan, profile: KubernetesProfile, name: str) -> dict[str, Any]:
    labels = {key: value for key, value in plan.tags.items() if is_label(key, value)}
    labels |= {**queue_labels(plan, profile), **run_labels(plan.run_id)}
    made: dict[str, Any] = {"name": name, "labels": labels}
    if plan.annotations:
        made["annotations"] = dict(plan.annotations)
    return in_namespace(made, profile)


def in_namespace(metadata: dict[str, Any], profile: KubernetesProfile) -> dict[str, Any]:
    """Metadata with the profile's namespace; without one, it is that of the context."""
    return metadata if profile.namespace is None else metadata | {"namespace": profile.namespace}


def queue_labels(plan: RunPlan, profile: KubernetesProfile) -> dict[str, str]:
    """The labels of Kueue; empty if it is not asked."""
    kueue = plan.kueue or KueuePlan()
    queue, priority = kueue.queue or profile.queue, kueue.priority or profile.queue_priority
    if queue is None:
        return {}
    limit = plan.policy.max_runtime
    seconds = limit + _MARGIN if limit < MAX_RUNTIME else None
    return cluster_settings.queue_labels(queue, priority, seconds)


def _job_template(context: PodContext, one: JobLayout) -> dict[str, Any]:
    group = context.plan.group(one.group)
    settings = merged(context.profile.pods, group.kubernetes)
    annotations = {**group.job_metadata.annotations, **job_annotations(settings)}
    labels = {**group.job_metadata.labels, **run_labels(context.plan.run_id)}
    metadata: dict[str, Any] = {"labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": _job_spec(context, group, one)}


def _job_spec(context: PodContext, group: GroupPlan, one: JobLayout) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "parallelism": one.nodes,
        "completions": one.nodes,
        # the budget is Muster's: pods that are lost do not use it up
        "backoffLimit": MAX_INT32,
        # not before the old one has ended: two must never be the same node
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [_DISRUPTIONS_DO_NOT_COUNT]},
        "template": pod_template(context, group, one),
    }


# --- without JobSet


def _service(plan: RunPlan, profile: KubernetesProfile, name: str) -> dict[str, Any]:
    """By which pods have the names that JobSet gives them (JobSet: network.enableDNSHostnames)."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": run_labels(plan.run_id),
    }
    metadata = in_namespace({"name": name, "labels": run_labels(plan.run_id)}, profile)
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _jobs(context: PodContext, every: Sequence[JobLayout]) -> list[dict[str, Any]]:
    """A Job for each replica, with the names that JobSet gives them."""
    plan, profile, name = context.plan, context.profile, context.name
    made = []
    for one in every:
        for job in range(one.jobs):
            template = _job_template(replace(context, job=job), one)
            metadata = template["metadata"]
            metadata["labels"] = {**metadata["labels"], **queue_labels(plan, profile)}
            metadata = in_namespace({"name": f"{name}-{one.name}-{job}", **metadata}, profile)
            spec = template["spec"]
            spec["template"]["spec"]["subdomain"] = name
            made.append(
                {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
            )
    return made
