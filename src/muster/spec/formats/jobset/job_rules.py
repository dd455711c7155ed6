"""Check Jobs: Kubernetes' rules, and what Muster does not support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.errors import Problem
from muster.spec.formats.jobset.job_arrays import MAX_JOBS, is_array
from muster.spec.formats.jobset.kubernetes import Job, PodFailureRule, SuccessRule
from muster.spec.formats.jobset.model import ReplicatedJob
from muster.spec.replica_numbers import parse_numbers
from muster.spec.wording import Refused, alternatives, short

_MAX_RULES = 20
#: Kubernetes: maximum parallelism of an Indexed Job.
_MAX_PARALLELISM = 100_000
#: Kubernetes: completions above which a Job with backoffLimitPerIndex requires maxFailedIndexes,
#: and the maximum of that and of parallelism then.
_MANY_INDEXES = 100_000
_MAX_OF_MANY = 10_000


def job_problems(rj: ReplicatedJob, path: str) -> Iterator[Problem]:
    """Every problem of a replicated Job's Job. path: of the replicated Job."""
    job, path = rj.template.spec, f"{path}.template.spec"
    yield from _size(job, path)
    yield from _array(rj, path)
    yield from _pod_failures(job, f"{path}.podFailurePolicy", path)


def _size(job: Job, path: str) -> Iterator[Problem]:
    if job.parallelism == 0:
        text = "is 0: no pod would ever start"
        yield Problem(f"{path}.parallelism", text, "use spec.suspend to hold it back")
        return
    if job.completions == 0:
        yield Problem(f"{path}.completions", "is 0: the Job has no pods", "leave the Job out")
        return
    alone = job.completions is None and job.parallelism is not None
    if alone and job.completion_mode == "Indexed":
        text = "is missing, and an Indexed Job requires it"
        yield Problem(f"{path}.completions", text, f"write completions: {job.parallelism}")
    if job.completion_mode == "Indexed" and (job.parallelism or 1) > _MAX_PARALLELISM:
        text = f"{job.parallelism:,} is too many for an Indexed Job"
        yield Problem(f"{path}.parallelism", text, f"at most {_MAX_PARALLELISM:,}")


def _array(rj: ReplicatedJob, path: str) -> Iterator[Problem]:
    """Problems of Jobs whose indexes are limited, or that run a few at a time."""
    job = rj.template.spec
    if is_array(job) and rj.replicas > MAX_JOBS:
        text = f"{rj.replicas:,} Jobs with more completions than parallelism, or limits of indexes"
        hint = f"each is a node group here, and {MAX_JOBS} are allowed: use more completions"
        yield Problem(f"{path.removesuffix('.template.spec')}.replicas", text, hint)
    yield from _per_index(job, path)
    if job.success_policy is not None:
        yield from _success(job, f"{path}.successPolicy", job.success_policy.rules)


def _per_index(job: Job, path: str) -> Iterator[Problem]:
    """Kubernetes: batch/validation, of backoffLimitPerIndex and maxFailedIndexes."""
    limit, failed = job.backoff_limit_per_index, job.max_failed_indexes
    completions = job.completions or 1
    if failed is not None and limit is None:
        hint = "add it; 0 fails an index at its first failure"
        yield Problem(f"{path}.maxFailedIndexes", "requires backoffLimitPerIndex", hint)
    if limit is None:
        return
    field = f"{path}.backoffLimitPerIndex"
    if job.completion_mode != "Indexed":
        yield Problem(field, "requires completionMode Indexed", "write it, or use backoffLimit")
    if job.template.spec.restart_policy != "Never":
        text = "requires restartPolicy Never, as pods cannot fail otherwise"
        yield Problem(field, text, f"set it in {path}.template.spec")
    if failed is not None and failed > completions:
        text = f"{failed:,} indexes may fail, but there are {completions:,}"
        yield Problem(f"{path}.maxFailedIndexes", text, f"at most {completions:,}")
    if completions <= _MANY_INDEXES:
        return
    many = f"a Job with over {_MANY_INDEXES:,} completions"
    if failed is None:
        text = f"is missing, and {many} requires it"
        yield Problem(f"{path}.maxFailedIndexes", text, "add it")
    for name, number in (("maxFailedIndexes", failed), ("parallelism", job.parallelism)):
        if number is not None and number > _MAX_OF_MANY:
            text = f"{number:,} is too many for {many} and backoffLimitPerIndex"
            yield Problem(f"{path}.{name}", text, f"at most {_MAX_OF_MANY:,}")


def _success(job: Job, path: str, rules: Sequence[SuccessRule]) -> Iterator[Problem]:
    """Kubernetes: batch/validation, of successPolicy."""
    completions = job.completions or 1
    if job.completion_mode != "Indexed":
        yield Problem(path, "requires completionMode Indexed", "write it")
    if not 1 <= len(rules) <= _MAX_RULES:
        text = f"has {len(rules)} entries"
        yield Problem(f"{path}.rules", text, f"give one to {_MAX_RULES}")
    for number, rule in enumerate(rules):
        here, chosen = f"{path}.rules[{number}]", completions
        if not rule.succeeded_indexes and rule.succeeded_count is None:
            text = "has neither succeededIndexes nor succeededCount"
            yield Problem(here, text, "give one of them, or both")
        if rule.succeeded_indexes:
            try:
                chosen = _indexes(rule.succeeded_indexes, completions)
            except Refused as error:
                yield Problem(f"{here}.succeededIndexes", error.message, error.hint)
                continue
        if rule.succeeded_count is not None and rule.succeeded_count > chosen:
            text = f"{rule.succeeded_count:,} indexes must succeed, of {chosen:,}"
            yield Problem(f"{here}.succeededCount", text, f"at most {chosen:,}")


def _indexes(text: str, completions: int) -> int:
    """The number of indexes that a text such as 0-3,7 names. Raises Refused: Kubernetes requires
    ascending order."""
    last, found = -1, 0
    for part in text.split(","):
        (span,) = parse_numbers(part)
        if span.start <= last:
            raise Refused(f"{short(part)} does not come after {last}", "name them in their order")
        if span.stop > completions:
            hint = f"indexes go from 0 to {completions - 1}"
            raise Refused(f"there is no index {span.stop - 1}", hint)
        last, found = span.stop - 1, found + len(span)
    return found


def _pod_failures(job: Job, path: str, job_path: str) -> Iterator[Problem]:
    policy = job.pod_failure_policy
    if policy is None:
        return
    if job.template.spec.restart_policy != "Never":
        text = "requires restartPolicy Never, as pods cannot fail otherwise"
        yield Problem(path, text, f"set it in {job_path}.template.spec")
    if job.pod_replacement_policy == "TerminatingOrFailed":
        text = "conflicts with podFailurePolicy, which requires Failed"
        yield Problem(f"{job_path}.podReplacementPolicy", text, "remove it, or write Failed")
    if len(policy.rules) > _MAX_RULES:
        text = f"has {len(policy.rules)} entries"
        yield Problem(f"{path}.rules", text, f"at most {_MAX_RULES} are allowed")
    pod = job.template.spec
    containers = [container.name for container in (*pod.init_containers, *pod.containers)]
    for number, rule in enumerate(policy.rules):
        where = f"{path}.rules[{number}]"
        if rule.action == "FailIndex" and job.backoff_limit_per_index is None:
            hint = f"add it in {job_path}, or use FailJob"
            yield Problem(f"{where}.action", "FailIndex requires backoffLimitPerIndex", hint)
        yield from _pod_rule(rule, where, containers)


def _pod_rule(rule: PodFailureRule, path: str, containers: list[str]) -> Iterator[Problem]:
    codes = rule.on_exit_codes
    if (codes is None) == (not rule.on_pod_conditions):
        given = "both onExitCodes and" if codes is not None else "neither onExitCodes nor"
        yield Problem(path, f"has {given} onPodConditions", "give one of them")
    if codes is not None:
        if not codes.values:
            yield Problem(f"{path}.onExitCodes.values", "is empty", "add a code")
        if codes.operator == "In" and 0 in codes.values:
            text = "has 0, which is not a failure"
            yield Problem(f"{path}.onExitCodes.values", text, "remove it")
        if codes.container_name and codes.container_name not in containers:
            text = f"container {short(codes.container_name)} not found"
            hint = f"use {alternatives(containers)}"
            yield Problem(f"{path}.onExitCodes.containerName", text, hint)
    for number, condition in enumerate(rule.on_pod_conditions):
        where = f"{path}.onPodConditions[{number}]"
        if condition.type != "DisruptionTarget":
            text = f"Muster does not know {short(condition.type)}"
            yield Problem(f"{where}.type", text, "it knows DisruptionTarget: a node was lost")
        if condition.status != "True":
            text = f"{short(condition.status)} would match every other failure"
            yield Problem(f"{where}.status", text, 'write "True", or remove it')
