"""Check the Jobs of a JobSet: Kubernetes' rules, and what Muster does not support."""

from __future__ import annotations

from collections.abc import Iterator

from muster.errors import Problem
from muster.spec.formats.jobset.kubernetes import Job, PodFailureRule
from muster.spec.formats.jobset.model import ReplicatedJob
from muster.spec.wording import alternatives, short

_MAX_RULES = 20


def job_problems(rj: ReplicatedJob, path: str) -> Iterator[Problem]:
    """Every problem of a replicated Job's Job. path: of the replicated Job."""
    job, path = rj.template.spec, f"{path}.template.spec"
    yield from _size(job, path)
    yield from _pod_failures(job, f"{path}.podFailurePolicy", path)


def _size(job: Job, path: str) -> Iterator[Problem]:
    if job.parallelism == 0:
        text = "is 0: no pod would ever start"
        yield Problem(f"{path}.parallelism", text, "use spec.suspend to hold it back")
        return
    if job.completions == 0:
        yield Problem(f"{path}.completions", "is 0: the Job has no pods", "use replicas: 0")
        return
    if job.completions is None and job.parallelism not in (None, 1):
        if job.completion_mode == "Indexed":
            text = "is missing, and an Indexed Job requires it"
        else:
            text = "is missing: Muster does not run work queues"
        yield Problem(f"{path}.completions", text, f"write completions: {job.parallelism}")
    parallelism = 1 if job.parallelism is None else job.parallelism
    if job.completions is not None and parallelism < job.completions:
        text = f"runs only {parallelism} of {job.completions} pods at a time"
        hint = "Muster starts all pods of a Job together: make both equal"
        yield Problem(f"{path}.parallelism", text, f"{hint}, or use replicas")


def _pod_failures(job: Job, path: str, job_path: str) -> Iterator[Problem]:
    policy = job.pod_failure_policy
    if policy is None:
        return
    if job.template.spec.restart_policy != "Never":
        text = "requires restartPolicy Never, as pods cannot fail otherwise"
        yield Problem(path, text, f"set it in {job_path}.template.spec")
    if len(policy.rules) > _MAX_RULES:
        text = f"has {len(policy.rules)} entries"
        yield Problem(f"{path}.rules", text, f"at most {_MAX_RULES} are allowed")
    containers = [container.name for container in job.template.spec.containers]
    for number, rule in enumerate(policy.rules):
        yield from _pod_rule(rule, f"{path}.rules[{number}]", containers)


def _pod_rule(rule: PodFailureRule, path: str, containers: list[str]) -> Iterator[Problem]:
    if rule.action == "FailIndex":
        text = "FailIndex: Muster counts retries for a Job, not for each index"
        yield Problem(f"{path}.action", text, "use replicas of one pod each, and FailJob")
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
