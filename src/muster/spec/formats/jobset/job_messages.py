"""The messages of Kubernetes' Job controller about failed Jobs.

Source: k8s.io/kubernetes, pkg/controller/job. JobSet matches
`onJobFailureMessagePatterns` with them. Parts that differ between nodes are placeholders, see
`FailureRule.text`.
"""

from __future__ import annotations

from muster.spec.formats.jobset.downward_api import Pod
from muster.spec.placeholders import literal

LIMIT = "Job has reached the specified backoff limit"
FAILED_INDEXES = "Job has failed indexes"
MAX_FAILED_INDEXES = "Job has exceeded the specified maximal number of failed indexes"
DEADLINE = "Job was active longer than specified deadline"
#: The messages that name no pod.
OF_JOBS = (LIMIT, DEADLINE, FAILED_INDEXES, MAX_FAILED_INDEXES)
#: Stands for the five random characters of a pod's name.
_SUFFIX = "xxxxx"


def by_exit_code(pod: Pod, rule: int) -> str:
    """The message for a rule on exit codes. rule: its number in the pod failure policy."""
    containers = pod.rj.template.spec.template.spec.containers
    container = literal(containers[0].name if containers else "")
    return (
        f"Container {container} for pod {_name(pod)} failed with exit code ${{exit_code}} "
        f"matching FailJob rule at index {rule}"
    )


def by_condition(pod: Pod, rule: int) -> str:
    """The message for a rule on conditions."""
    return f"Pod {_name(pod)} has condition DisruptionTarget matching FailJob rule at index {rule}"


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.hostname}-{_SUFFIX}"
