"""What Kubernetes' Job controller says of a failed Job, which is what a JobSet's
`onJobFailureMessagePatterns` look at (k8s.io/kubernetes, pkg/controller/job).

Nodes are told apart by placeholders, see `FailureRule.text`.
"""

from __future__ import annotations

from muster.spec.formats.jobset_model import JobSet, ReplicatedJob
from muster.spec.placeholders import literal

LIMIT = "Job has reached the specified backoff limit"
DEADLINE = "Job was active longer than specified deadline"
#: Kubernetes: five random characters.
_SUFFIX = "xxxxx"


def by_exit_code(jobset: JobSet, rj: ReplicatedJob, rule: int) -> str:
    """A rule of a pod failure policy, by its number, that looks at exit codes."""
    containers = rj.template.spec.template.spec.containers
    container = literal(containers[0].name if containers else "")
    return (
        f"Container {container} for pod {_pod(jobset, rj)} failed with exit code ${{exit_code}} "
        f"matching FailJob rule at index {rule}"
    )


def by_condition(jobset: JobSet, rj: ReplicatedJob, rule: int) -> str:
    """One that looks at conditions."""
    pod = _pod(jobset, rj)
    return f"Pod {pod} has condition DisruptionTarget matching FailJob rule at index {rule}"


def _pod(jobset: JobSet, rj: ReplicatedJob) -> str:
    return f"{jobset.namespace}/{jobset.name}-{rj.name}-${{replica}}-${{index}}-{_SUFFIX}"
