"""Names of what a run has in a cluster, and the labels by which it is found. Pure.

JobSet: a Job is named <jobset>-<replicated job>-<job>, a pod <job>-<index>-<5 characters>, and each
has to fit into a label of 63 characters.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.plan.model import GroupPlan, RunPlan
from muster.spec.formats.jobset import own_parts
from muster.spec.formats.jobset.name_rules import MAX_LENGTH, kubernetes_label

#: Labels of all objects of a run. Their selector finds what is left of one.
RUN, PART_OF = own_parts.RUN, own_parts.PART_OF
MANAGER = "muster"
#: Who owns the fields of what is applied.
FIELD_MANAGER = "muster"
#: Labels that JobSet puts on pods.
_JOBSET = "jobset.sigs.k8s.io"
JOBSET_NAME, JOBSET_GROUP = f"{_JOBSET}/jobset-name", f"{_JOBSET}/replicatedjob-name"
JOB_INDEX, RESTARTS = f"{_JOBSET}/job-index", f"{_JOBSET}/restart-attempt"
JOBSET_UID = f"{_JOBSET}/jobset-uid"
#: Of the Job controller: annotation and label of pods, and a label with the uid of their Job.
POD_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_UID = "batch.kubernetes.io/controller-uid"
#: The number of an allocation that no run reaches: names have space for it.
_MOST_ALLOCATIONS = 99_999
#: What the Job controller appends to the names of pods.
_RANDOM = "-xxxxx"


def run_labels(run_id: str) -> dict[str, str]:
    """By which all that belongs to a run is found."""
    return {PART_OF: MANAGER, RUN: run_id}


def group_names(groups: Iterable[GroupPlan]) -> dict[str, str]:
    """Group -> its name as a replicated Job: the same, if Kubernetes accepts that."""
    found = dict[str, str]()
    for group in groups:
        name, number = kubernetes_label(group.name), 2
        while name in found.values():
            name, number = f"{kubernetes_label(group.name, MAX_LENGTH - 5)}-{number}", number + 1
        found[group.name] = name
    return found


def key_name(plan: RunPlan, group: str, job: object, index: object) -> str:
    """The name of a pod's entry in the Secret: short, as there may be thousands."""
    number = next(n for n, one in enumerate(plan.groups) if one.name == group)
    return f"{number}-{job}-{index}"


def replicas_at_once(group: GroupPlan) -> int:
    """Replicas of a group that have pods at the same time."""
    return group.replicas if group.parallelism is None else group.parallelism


def jobset_name(plan: RunPlan, number: int) -> str:
    """The name of a JobSet: the run's, as far as there is space for it, then what makes it unique.

    number: of the allocation; the first one has the plain name.
    """
    end = f"-{plan.run_id}" + (f"-{number}" if number else "")
    space = MAX_LENGTH - len(end) - max(map(len, _pod_ends(plan)))
    return (kubernetes_label(plan.run_name, space) if space > 0 else "r") + end


def longest_pod_name(plan: RunPlan) -> str:
    """The longest name that a pod of the run may have, in whatever JobSet."""
    return jobset_name(plan, _MOST_ALLOCATIONS) + max(_pod_ends(plan), key=len)


def _pod_ends(plan: RunPlan) -> list[str]:
    """For each group, what the Job controller appends to the name of a JobSet for its last pod. One
    Job may have all pods of a group."""
    names = group_names(plan.groups)
    last = ((g, replicas_at_once(g)) for g in plan.groups)
    return [f"-{names[g.name]}-{max(r - 1, 0)}-{max(r * g.nodes - 1, 0)}{_RANDOM}" for g, r in last]
