"""What is wrong with a Job inside a JobSet, and what Muster cannot do of it."""

from __future__ import annotations

from collections.abc import Iterator

from muster.errors import Problem
from muster.spec.formats.jobset_model import ReplicatedJob
from muster.spec.formats.kubernetes import Job, PodFailureRule
from muster.spec.wording import short

_MOST_RULES = 20


def job_problems(rj: ReplicatedJob, path: str) -> Iterator[Problem]:
    """Everything that is wrong with the Job of a replicated Job. path: where that stands."""
    job, path = rj.template.spec, f"{path}.template.spec"
    yield from _size(job, path)
    yield from _pod_failures(job, f"{path}.podFailurePolicy", path)


def _size(job: Job, path: str) -> Iterator[Problem]:
    if job.parallelism == 0:
        text = "is 0: no pod would ever start"
        yield Problem(f"{path}.parallelism", text, "use spec.suspend to hold it back")
        return
    if job.completions == 0:
        yield Problem(f"{path}.completions", "is 0: there is nothing to do", "use replicas: 0")
        return
    if job.completions is None and job.parallelism not in (None, 1):
        if job.completion_mode == "Indexed":
            text = "is missing, and an Indexed Job needs it"
        else:
            text = "is missing: this is a queue of work, which Muster does not run"
        yield Problem(f"{path}.completions", text, f"write completions: {job.parallelism}")
    parallelism = 1 if job.parallelism is None else job.parallelism
    if job.completions is not None and parallelism < job.completions:
        text = f"only {parallelism} of {job.completions} pods at a time"
        hint = "Muster starts all pods of a Job together: make them alike"
        yield Problem(f"{path}.parallelism", text, f"{hint}, or use replicas")


def _pod_failures(job: Job, path: str, job_path: str) -> Iterator[Problem]:
    policy = job.pod_failure_policy
    if policy is None:
        return
    if job.template.spec.restart_policy != "Never":
        text = "needs restartPolicy Never, so that pods fail at all"
        yield Problem(path, text, f"set it in {job_path}.template.spec")
    if len(policy.rules) > _MOST_RULES:
        text = f"there are {len(policy.rules)}"
        yield Problem(f"{path}.rules", text, f"{_MOST_RULES} are allowed")
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
            yield Problem(f"{path}.onExitCodes.values", "is empty", "name a code")
        if codes.operator == "In" and 0 in codes.values:
            text = "holds 0, which is no failure"
            yield Problem(f"{path}.onExitCodes.values", text, "remove it")
        if codes.container_name and codes.container_name not in containers:
            text = f"there is no container {short(codes.container_name)}"
            hint = f"there are: {', '.join(containers)}"
            yield Problem(f"{path}.onExitCodes.containerName", text, hint)
    for number, condition in enumerate(rule.on_pod_conditions):
        where = f"{path}.onPodConditions[{number}]"
        if condition.type != "DisruptionTarget":
            text = f"Muster knows of no {short(condition.type)}"
            yield Problem(f"{where}.type", text, "it knows DisruptionTarget: a node was lost")
        if condition.status != "True":
            text = f"{short(condition.status)} would fit every other failure"
            yield Problem(f"{where}.status", text, 'write "True", or remove it')
