"""Write a `JobSpec` as a JobSet manifest, with a list of what JobSet cannot express."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.spec.formats.jobset.cluster_settings import queue_labels
from muster.spec.formats.jobset.config_write import WrittenObjects, secret_ref
from muster.spec.formats.jobset.failures_write import WrittenFailures
from muster.spec.formats.jobset.group_names import as_kubernetes_names
from muster.spec.formats.jobset.group_read import hostname_template
from muster.spec.formats.jobset.group_write import JobContext, replicated_job
from muster.spec.formats.jobset.job_arrays_write import is_job
from muster.spec.formats.jobset.metadata import DESCRIPTION
from muster.spec.formats.jobset.model import API_VERSION
from muster.spec.formats.jobset.name_rules import MAX_LENGTH, kubernetes_label
from muster.spec.formats.jobset.volumes_write import Volumes
from muster.spec.formats.notes import Loss
from muster.spec.models import DEFAULT_ENGINE, JobSpec, Kueue, NodeGroup
from muster.spec.override_models import RUN_WIDE, RunOverrides
from muster.spec.resolve import resolve
from muster.spec.secret_names import stored_secrets
from muster.spec.values import MAX_RUNTIME

_LABEL_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_MAX_DEPENDENCIES = 5
_DEFAULT = JobSpec(engine=DEFAULT_ENGINE)
#: Run-wide settings that a JobSet has. All others are lost if they are not the default.
_WRITTEN = (
    *("startup", "success", "failure", "grace_period", "ttl_after_finished", "suspend"),
    *("subdomain", "namespace", "kueue"),
)
#: Why a setting is lost.
_WHYS = {
    "notify": "the cluster tells nobody of the end of a run",
    "display_name": "an object has one name there, `name`",
    "framework": "JobSet does not set MASTER_ADDR, RANK and the like; the command has to",
    "engine": "the cluster runs the pods",
    "processes_per_node": "a pod runs one program; the command has to start more",
    "network": "is the cluster's: each pod has an address, and its ports",
    "clean_env": "pods get the variables of the manifest and of their image, no others",
    "max_runtime": "JobSet does not cancel; attempt_timeout becomes a deadline, and so does "
    "max_runtime of a job with kueue.queue",
    "attempt_timeout": "needs a JobSet that has activeDeadlineSeconds (KEP-1186)",
    "checkpoint": "pods get SIGTERM, and terminationGracePeriodSeconds to save",
    "keep_attempts": "the logs of earlier pods are not kept",
    "logging": "the cluster decides what happens to output",
}


class JobSetFile(Struct, frozen=True):
    """A written manifest."""

    data: dict[str, Any]
    #: What the manifest leaves out of the spec, or changes.
    losses: tuple[Loss, ...]
    #: The ConfigMaps and Secrets to which it refers.
    objects: tuple[dict[str, Any], ...] = ()


def write_jobset(job: JobSpec) -> JobSetFile:
    """Write the manifest of a job. Raises InvalidInput if the spec breaks a rule."""
    resolved = replace(resolve(job, RunOverrides()).spec, failure=job.failure)
    renamed, old_names = as_kubernetes_names(resolved)
    groups = _in_dependency_order(renamed.node_groups)
    spec = replace(renamed, node_groups=groups)
    name = kubernetes_label(spec.name or "job", _max_name_length(groups))
    losses = [
        *_losses(job, spec, name),
        *_order_losses(spec, renamed),
        *_secret_losses(spec, name),
    ]
    failure = WrittenFailures(spec)
    objects = WrittenObjects(spec, name)
    volumes = Volumes(name, groups, objects)
    context = JobContext(spec, name, volumes, spec.failure.strategy == "in_place")
    jobs = []
    for group in groups:
        rules = failure.pods.get(group.name, [])
        made, more = replicated_job(context, group, f"node_groups[{group.name}]", rules)
        jobs.append(made)
        losses += more
    metadata: dict[str, Any] = {"name": name}
    if spec.namespace not in (None, "default"):
        metadata["namespace"] = spec.namespace
    labels = {key: value for key, value in spec.tags.items() if is_label(key, value)}
    labels |= _queue_labels(spec)
    if labels:
        metadata["labels"] = labels
    annotations = {**spec.annotations}
    if spec.description:
        annotations[DESCRIPTION] = spec.description
    if annotations:
        metadata["annotations"] = annotations
    body = _body(spec, name, failure.failure, volumes)
    data = {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": body | {"replicatedJobs": jobs},
    }
    losses += [*failure.losses, *volumes.losses]
    every = (*_name_losses(old_names), *_at_old_names(losses, old_names))
    return JobSetFile(data, every, tuple(objects.objects()))


def _queue_labels(spec: JobSpec) -> dict[str, str]:
    kueue = spec.kueue or Kueue()
    seconds = spec.max_runtime if _has_time_limit(spec) else None
    return queue_labels(kueue.queue, kueue.priority, seconds)


def _has_time_limit(spec: JobSpec) -> bool:
    """Whether Kueue ends the JobSet after `max_runtime`."""
    queue = None if spec.kueue is None else spec.kueue.queue
    return queue is not None and spec.max_runtime < MAX_RUNTIME


def _name_losses(old_names: Mapping[str, str]) -> Iterator[Loss]:
    for name, old in old_names.items():
        yield Loss(f"node_groups[{old}].name", f"is named {name} in the JobSet")


def _at_old_names(losses: Iterable[Loss], old_names: Mapping[str, str]) -> Iterator[Loss]:
    """The losses, with group names as in the spec."""
    for loss in losses:
        path = loss.path
        for name, old in old_names.items():
            path = path.replace(f"node_groups[{name}]", f"node_groups[{old}]")
        yield loss._replace(path=path)


def _max_name_length(groups: Sequence[NodeGroup]) -> int:
    """The characters that the JobSet's name may have, so that its pods' names are not too long."""
    # the pods of an array are those of one Job, or its Jobs have one pod each
    ends = (f"-{g.name}-{g.replicas - 1}-{g.nodes - 1}-xxxxx" for g in groups)
    return max(MAX_LENGTH - max(map(len, ends)), 1)


def _body(
    spec: JobSpec, name: str, failure: dict[str, Any] | None, volumes: Volumes
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if spec.suspend:
        made["suspend"] = True
    if spec.ttl_after_finished is not None:
        made["ttlSecondsAfterFinished"] = math.ceil(spec.ttl_after_finished)
    if spec.attempt_timeout is not None:
        made["activeDeadlineSeconds"] = math.ceil(spec.attempt_timeout)
    if spec.subdomain is None and _has_jobset_hostnames(spec, name):
        made["network"] = {"enableDNSHostnames": False}
    elif spec.subdomain not in (None, name):
        made["network"] = {"subdomain": spec.subdomain}
    if spec.startup == "in_order":
        made["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    success = _success(spec)
    if success is not None:
        made["successPolicy"] = success
    if failure is not None:
        made["failurePolicy"] = failure
    claims = volumes.claims()
    if claims:
        made["volumeClaimPolicies"] = claims
    return made


def _has_jobset_hostnames(spec: JobSpec, name: str) -> bool:
    """Whether nodes have pods' host names, so that the missing subdomain is intended."""
    return all(
        group.hostname == hostname_template(name, group.name, is_array=is_job(spec, group))
        for group in spec.node_groups
    )


def _success(spec: JobSpec) -> dict[str, Any] | None:
    success = spec.success
    needed = [group.name for group in spec.node_groups if group.min_success != 0]
    targets = list(success.groups)
    if not targets and 0 < len(needed) < len(spec.node_groups):
        targets = needed
    if success.when == "all" and not targets:
        return None
    made: dict[str, Any] = {"operator": "Any" if success.when == "any" else "All"}
    return made | ({"targetReplicatedJobs": targets} if targets else {})


def _in_dependency_order(groups: Sequence[NodeGroup]) -> tuple[NodeGroup, ...]:
    """The groups in JobSet's order: each after the groups it depends on."""
    left, made = list(groups), []
    while left:
        names = {group.name for group in left}
        ready = next(g for g in left if not names & {other.group for other in g.depends_on})
        made.append(ready)
        left.remove(ready)
    return tuple(made)


def _order_losses(spec: JobSpec, before: JobSpec) -> Iterator[Loss]:
    if [g.name for g in spec.node_groups] != [g.name for g in before.node_groups]:
        why = "are in another order, each after the groups it depends on; so are ranks"
        yield Loss("node_groups", why)
    for group in spec.node_groups:
        if len(group.depends_on) > _MAX_DEPENDENCIES:
            why = f"has {len(group.depends_on)} groups; JobSet allows {_MAX_DEPENDENCIES}"
            yield Loss(f"node_groups[{group.name}].depends_on", why)


def _secret_losses(spec: JobSpec, name: str) -> Iterator[Loss]:
    for secret, path in stored_secrets(spec).items():
        ref = secret_ref(name, secret)
        group = re.match(r"node_groups\[(\d+)\]", path)
        where = path
        if group is not None:
            named = spec.node_groups[int(group[1])].name
            where = f"node_groups[{named}]{path[group.end() :]}"
        why = f"needs a Secret {ref['name']} with the key {ref['key']}: Muster's are not written"
        yield Loss(where, why)


def _losses(job: JobSpec, spec: JobSpec, name: str) -> Iterator[Loss]:
    limit = ("max_runtime",) if _has_time_limit(spec) else ()
    for field in ("display_name", "framework", "notify", *RUN_WIDE):
        # a pod's environment is always clean: the only default that differs from the spec's
        usual = True if field == "clean_env" else getattr(_DEFAULT, field)
        if field not in (*_WRITTEN, *limit) and getattr(spec, field) != usual:
            yield Loss(field, _WHYS.get(field, "a JobSet has no such setting"))
    if name != spec.name:
        yield Loss("name", f"is {name} in the JobSet: pods' names start with it and are labels")
    if job.artifact is not None:
        yield Loss("artifact", "must be in the image")
    for field in ("git", "notebook", "requirements", "conda"):
        if getattr(job, field) is not None:
            yield Loss(field, "must be in the image, and the command has to run it")
    if spec.subdomain is None and not _has_jobset_hostnames(spec, name):
        yield Loss("subdomain", f"the JobSet gets subdomain {name}, so that pod names resolve")
    if spec.success.others == "wait":
        yield Loss("success.others", "JobSet ends what still runs then")
    for field in ("grace_period", "ttl_after_finished", *limit):
        value = getattr(spec, field)
        if value is not None and value != int(value):
            yield Loss(field, "is rounded up to whole seconds")
    for key, value in spec.tags.items():
        if not is_label(key, value):
            yield Loss(f"tags.{key}", "is left out: it cannot be a label")


def is_label(key: str, value: str) -> bool:
    """Whether an object in Kubernetes can have this label."""
    return bool(_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value))
