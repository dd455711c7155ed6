"""A `JobSpec` as a JobSet manifest, and a list of what that cannot say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.spec.formats.failures_write import Written
from muster.spec.formats.group_names import as_kubernetes_names
from muster.spec.formats.jobset_model import API_VERSION
from muster.spec.formats.jobset_names import LONGEST
from muster.spec.formats.losses import Loss
from muster.spec.formats.metadata import DESCRIPTION
from muster.spec.formats.pods import hostname_template
from muster.spec.formats.pods_write import Whole, replicated_job
from muster.spec.formats.volumes_write import Volumes, as_label
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.override_models import RunOverrides
from muster.spec.resolve import resolve

_LABEL_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_MOST_PARENTS = 5
_DEFAULT = JobSpec()
#: What no JobSet can say, where it is not the default.
_WHYS = {
    "display_name": "an object has one name there, which is name",
    "framework": "nobody sets MASTER_ADDR, RANK and the like there; the command has to",
    "processes_per_node": "a pod runs one program; the command has to start more",
    "network": "is the cluster's: each pod has an address, and its ports",
    "clean_env": "pods get the variables of the manifest and of their image, no others",
    "max_runtime": "nothing is canceled there; attempt_timeout is said as a deadline",
    "attempt_timeout": "needs a JobSet that has activeDeadlineSeconds (KEP-1186)",
    "checkpoint": "pods get SIGTERM, and terminationGracePeriodSeconds to save",
    "keep_attempts": "logs of earlier pods are kept by nobody",
    "logging": "what becomes of output is the cluster's affair",
}


class JobSetFile(Struct, frozen=True):
    """data: the manifest. losses: what of the spec it does not say, or says otherwise."""

    data: dict[str, Any]
    losses: tuple[Loss, ...]


def write_jobset(job: JobSpec) -> JobSetFile:
    """The manifest of a job. Raises InvalidInput if the spec breaks a rule."""
    resolved = replace(resolve(job, RunOverrides()).spec, failure=job.failure)
    before, old_names = as_kubernetes_names(resolved)
    groups = _ordered(before.node_groups)
    spec = replace(before, node_groups=groups)
    name = as_label(spec.name or "job", _room(groups))
    losses = [*_unsaid(job, spec, name), *_moved(spec, before)]
    failure = Written(spec)
    volumes = Volumes(name, groups)
    whole = Whole(spec, name, volumes, spec.failure.strategy == "in_place")
    jobs = []
    for group in groups:
        rules = failure.pods.get(group.name, [])
        made, more = replicated_job(whole, group, f"node_groups[{group.name}]", rules)
        jobs.append(made)
        losses += more
    metadata: dict[str, Any] = {"name": name}
    if spec.namespace not in (None, "default"):
        metadata["namespace"] = spec.namespace
    labels = {key: value for key, value in spec.tags.items() if _is_label(key, value)}
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
    return JobSetFile(data, (*_renamed(old_names), *_with_old_names(losses, old_names)))


def _renamed(old_names: Mapping[str, str]) -> Iterator[Loss]:
    for name, old in old_names.items():
        yield Loss(f"node_groups[{old}].name", f"is {name} there")


def _with_old_names(losses: Iterable[Loss], old_names: Mapping[str, str]) -> Iterator[Loss]:
    """Each at the path that the job's author knows."""
    for loss in losses:
        path = loss.path
        for name, old in old_names.items():
            path = path.replace(f"node_groups[{name}]", f"node_groups[{old}]")
        yield loss._replace(path=path)


def _room(groups: Sequence[NodeGroup]) -> int:
    """Characters that the JobSet's name may have: those of its pods are longer, and five random
    ones follow."""
    ends = (f"-{g.name}-{g.replicas - 1}-{g.nodes - 1}-xxxxx" for g in groups)
    return max(LONGEST - max(map(len, ends)), 1)


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
    if spec.subdomain is None and _as_jobset_does(spec, name):
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


def _as_jobset_does(spec: JobSpec, name: str) -> bool:
    """Whether nodes are called as pods are: then a subdomain was left out on purpose."""
    groups = spec.node_groups
    return all(group.hostname == hostname_template(name, group.name) for group in groups)


def _success(spec: JobSpec) -> dict[str, Any] | None:
    said = spec.success
    needed = [group.name for group in spec.node_groups if group.min_success != 0]
    targets = list(said.groups)
    if not targets and 0 < len(needed) < len(spec.node_groups):
        targets = needed
    if said.when == "all" and not targets:
        return None
    made: dict[str, Any] = {"operator": "Any" if said.when == "any" else "All"}
    return made | ({"targetReplicatedJobs": targets} if targets else {})


def _ordered(groups: Sequence[NodeGroup]) -> tuple[NodeGroup, ...]:
    """Each behind those it depends on, which is the order JobSet wants."""
    left, made = list(groups), []
    while left:
        names = {group.name for group in left}
        ready = next(g for g in left if not names & {other.group for other in g.depends_on})
        made.append(ready)
        left.remove(ready)
    return tuple(made)


def _moved(spec: JobSpec, before: JobSpec) -> Iterator[Loss]:
    if [g.name for g in spec.node_groups] != [g.name for g in before.node_groups]:
        why = "stand in another order, each behind those it depends on; so do ranks"
        yield Loss("node_groups", why)
    for group in spec.node_groups:
        if len(group.depends_on) > _MOST_PARENTS:
            why = f"has {len(group.depends_on)} groups; {_MOST_PARENTS} are allowed there"
            yield Loss(f"node_groups[{group.name}].depends_on", why)


def _unsaid(job: JobSpec, spec: JobSpec, name: str) -> Iterator[Loss]:
    for field, why in _WHYS.items():
        # a pod has no environment but its own: the only thing that is not said by leaving it out
        if getattr(spec, field) != (True if field == "clean_env" else getattr(_DEFAULT, field)):
            yield Loss(field, why)
    if name != spec.name:
        yield Loss("name", f"is {name} there: names of pods, which begin with it, are labels")
    if job.artifact is not None:
        yield Loss("artifact", "has to be in the image")
    for field in ("git", "notebook", "requirements", "conda"):
        if getattr(job, field) is not None:
            yield Loss(field, "has to be in the image, and the command has to run it")
    if spec.subdomain is None and not _as_jobset_does(spec, name):
        yield Loss("subdomain", f"is {name} there: without one, names would not resolve")
    if spec.success.others == "wait":
        yield Loss("success.others", "what still runs then is ended there")
    for field in ("grace_period", "ttl_after_finished"):
        value = getattr(spec, field)
        if value is not None and value != int(value):
            yield Loss(field, "is rounded up to whole seconds")
    for key, value in spec.tags.items():
        if not _is_label(key, value):
            yield Loss(f"tags.{key}", "is left out: it cannot be a label")


def _is_label(key: str, value: str) -> bool:
    return bool(_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value))
