"""The messages of Kubernetes' Job controller about failed Jobs.

Source: k8s.io/kubernetes, pkg/controller/job. JobSet matches
`onJobFailureMessagePatterns` with them. Parts that differ between nodes are placeholders, see
`FailureRule.text`.
"""

from __future__ import annotations

from muster.spec.formats.jobset.model import JobSet, ReplicatedJob
from muster.spec.placeholders import literal

LIMIT = "Job has reached the specified backoff limit"
DEADLINE = "Job was active longer than specified deadline"
#: Stands for the five random characters of a pod's name.
_SUFFIX = "xxxxx"


def by_exit_code(jobset: JobSet, rj: ReplicatedJob, rule: int) -> str:
    """The message for a rule on exit codes. rule: its number in the pod failure policy."""
    containers = rj.template.spec.template.spec.containers
    container = literal(containers[0].name if containers else "")
    return (
        f"Container {container} for pod {_pod(jobset, rj)} failed with exit code ${{exit_code}} "
        f"matching FailJob rule at index {rule}"
    )


def by_condition(jobset: JobSet, rj: ReplicatedJob, rule: int) -> str:
    """The message for a rule on conditions."""
    pod = _pod(jobset, rj)
    return f"Pod {pod} has condition DisruptionTarget matching FailJob rule at index {rule}"


def _pod(jobset: JobSet, rj: ReplicatedJob) -> str:
    return f"{jobset.namespace}/{jobset.name}-{rj.name}-${{replica}}-${{index}}-{_SUFFIX}"
