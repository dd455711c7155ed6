"""Jobs that are read as arrays: their pods are replicas of one node, numbered by their index, and
not the nodes of a replica.

Kubernetes: a Job runs at most `parallelism` of its `completions` pods at a time; with limits for
single indexes, some of these may fail while the others continue; with a successPolicy, some need
not end. Muster's replicas of several nodes start, succeed and fail together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.spec.formats.jobset.kubernetes import Job
from muster.spec.formats.jobset.kubernetes_limits import MAX_INT32
from muster.spec.formats.jobset.model import DependsOnItem, JobSet, ReplicatedJob, Rule
from muster.spec.policies import EarlySuccess

_DEFAULT_BACKOFF_LIMIT = 6
#: The Jobs that a replicated Job may have if they are read as arrays, each as its own group.
MAX_JOBS = 100


def backoff_limit(job: Job) -> int:
    """The number of failed pods that a Job replaces, with Kubernetes' default."""
    if job.backoff_limit is not None:
        return job.backoff_limit
    return _DEFAULT_BACKOFF_LIMIT if job.backoff_limit_per_index is None else MAX_INT32


def pods_at_once(job: Job) -> int:
    """The number of pods that a Job runs at a time."""
    requested = 1 if job.parallelism is None else job.parallelism
    return requested if job.completions is None else min(requested, job.completions)


def is_work_queue(job: Job) -> bool:
    """Whether pods take work from a queue: the first success ends the Job once all pods have
    ended."""
    return job.completions is None and pods_at_once(job) > 1


def is_array(job: Job) -> bool:
    """Whether a Job's pods are replicas."""
    return (
        is_work_queue(job)
        or pods_at_once(job) < (job.completions or 1)
        or job.backoff_limit_per_index is not None
        or job.success_policy is not None
    )


def array_settings(job: Job) -> dict[str, Any]:
    """The settings of the group of a Job that is read as an array."""
    at_once, limit = pods_at_once(job), backoff_limit(job)
    made: dict[str, Any] = {
        "nodes": 1,
        "replicas": job.completions or at_once,
        "parallelism": at_once,
        "total_retries": None if limit == MAX_INT32 else limit,
        "early_success": _early_success(job),
    }
    if job.backoff_limit_per_index is not None:
        return made | {"retries": job.backoff_limit_per_index, "max_failed": job.max_failed_indexes}
    made |= {"retries": limit, "max_failed": 0}
    return made | ({"min_success": 1} if is_work_queue(job) else {})


def _early_success(job: Job) -> tuple[EarlySuccess, ...]:
    rules = () if job.success_policy is None else job.success_policy.rules
    return tuple(
        EarlySuccess(replicas=rule.succeeded_indexes or None, count=rule.succeeded_count)
        for rule in rules
    )


class GroupJob(Struct, frozen=True):
    """What becomes one node group: a replicated Job, or one of its Jobs if they are arrays."""

    #: Its name is the group's.
    rj: ReplicatedJob
    #: The replicated Job in the manifest, and its position there.
    source: ReplicatedJob
    position: int
    #: The number of the Job; None for all Jobs of the replicated Job.
    job: int | None = None


def group_jobs(jobset: JobSet) -> list[GroupJob]:
    """What becomes groups. Several Jobs that are arrays become a group each: the replicas of a
    group are the pods of one of them."""
    made: list[GroupJob] = []
    for position, rj in enumerate(jobset.spec.replicated_jobs):
        if not is_array(rj.template.spec):
            made.append(GroupJob(rj, rj, position))
            continue
        for job in range(min(rj.replicas, MAX_JOBS)):
            single = replace(rj, name=name, replicas=1) if (name := _name(rj, job)) else rj
            made.append(GroupJob(single, rj, position, job))
        if rj.replicas == 0:
            made.append(GroupJob(rj, rj, position))
    return made


def _name(rj: ReplicatedJob, job: int) -> str:
    """The name of the group of one of several Jobs. Replicated Jobs have no underscores."""
    return f"{rj.name}_{job}" if rj.replicas > 1 else ""


def with_single_jobs(jobset: JobSet, parts: Sequence[GroupJob]) -> JobSet:
    """The JobSet with a replicated Job for each group, also in what refers to them."""
    if len(parts) == len(jobset.spec.replicated_jobs):
        return jobset
    names: dict[str, list[str]] = {}
    for part in parts:
        names.setdefault(part.source.name, []).append(part.rj.name)

    def each(targets: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for target in targets for name in names.get(target, [target]))

    def items(depends_on: tuple[DependsOnItem, ...]) -> Iterator[DependsOnItem]:
        for item in depends_on:
            for name in names.get(item.name, [item.name]):
                yield replace(item, name=name)

    spec = jobset.spec
    jobs = tuple(replace(part.rj, depends_on=tuple(items(part.rj.depends_on))) for part in parts)
    success, failure = spec.success_policy, spec.failure_policy
    if success is not None:
        success = replace(success, target_replicated_jobs=each(success.target_replicated_jobs))
    if failure is not None:
        rules: tuple[Rule, ...] = tuple(
            replace(rule, target_replicated_jobs=each(rule.target_replicated_jobs))
            for rule in failure.rules
        )
        failure = replace(failure, rules=rules)
    changed = replace(spec, replicated_jobs=jobs, success_policy=success, failure_policy=failure)
    return replace(jobset, spec=changed)
