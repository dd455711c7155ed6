"""Why a slot has no node, or why its node has ended or is not reached: from what the cluster says
of its pod and its JobSet. Pure.
"""

from __future__ import annotations

from muster.engines.kubernetes.endings import End
from muster.engines.kubernetes.mount_failures import MountFailure
from muster.engines.kubernetes.pod_facts import JobSetFacts, PodFacts
from muster.lifecycle.status import Reason


def why_no_node(pod: PodFacts | None, jobset: JobSetFacts | None, address: str | None) -> str:
    """What a slot waits for, as a phrase. pod, jobset: None if they are not known. address: which
    pods dial that run."""
    if pod is None:
        return why_no_pods(jobset) or "its pod has not been created yet"
    if pod.runs:
        where = pod.node or pod.name
        return f"its pod runs on {where}, and has not connected to {address} yet"
    return pod.why_waiting


def why_no_pods(jobset: JobSetFacts | None) -> str:
    """Why no pods of a JobSet are created, as a phrase; "" if they are."""
    if jobset is None:
        return ""
    return jobset.why_waiting or ("the JobSet is suspended" if jobset.is_suspended else "")


def why_not_mounted(pod: PodFacts, failure: MountFailure) -> str:
    """Why the containers of a pod do not start whose volume cannot be mounted, as a phrase."""
    volume = f"volume {failure.volume} of its pod" if failure.volume else "a volume of its pod"
    text = f"{volume} cannot be mounted on {pod.node}"
    return f"{text}: {failure.why}" if failure.why else text


def why_ended(pod: PodFacts, jobset: JobSetFacts | None) -> tuple[str, Reason]:
    """Why a node has ended whose pod has ended or is gone."""
    where = _place(pod)
    reason, why = pod.end or (Reason.NODE_LOST, f"{where} was deleted")
    was_deleted = _was_deleted(pod)
    if was_deleted and (found := _suspension(jobset)) is not None:
        return found
    if was_deleted and reason is Reason.EXIT:  # its programs have got SIGTERM
        return f"{where} was deleted", Reason.NODE_LOST
    return why, reason


def _was_deleted(pod: PodFacts) -> bool:
    """Whether somebody has deleted a pod, and nothing says why."""
    return pod.disruption is None and (pod.is_ending or pod.end is None)


def may_be_suspended(pod: PodFacts | None, jobset: JobSetFacts | None) -> bool:
    """Whether the JobSet of a pod that has ended may have been suspended, which is not known. pod:
    None if the cluster has it no longer."""
    return (pod is None or _was_deleted(pod)) and _suspension(jobset) is None


def is_failed_start(pod: PodFacts, reason: Reason, *, placed: bool) -> bool:
    """Whether a pod that has ended counts as one that has failed by itself, as the next one may.
    placed: whether it had a node; that counts only if the pod has failed soon after its start."""
    if not placed:
        return reason is not Reason.PREEMPTED
    others = (Reason.NODE_LOST, Reason.PREEMPTED, Reason.OUT_OF_MEMORY)
    return reason is Reason.NOT_STARTED or (pod.crash is not None and reason not in others)


def explained_by_log(pod: PodFacts, reason: Reason) -> bool:
    """Whether the log of a pod that has ended may say why: not if others have ended it."""
    return pod.crash is not None and reason not in (Reason.NODE_LOST, Reason.PREEMPTED)


def why_of_no_use(jobset: JobSetFacts, name: str, *, is_gone: bool) -> str:
    """Why no pods of a JobSet are to come, as a sentence; "" if some may. name: of the JobSet, of
    which this may be one of several Jobs. is_gone: whether it is not in the cluster any more."""
    if jobset.has_succeeded and jobset.name == name:
        return f"JobSet {name} has ended"
    if is_gone or jobset.is_ending or jobset.failed:
        return jobset.failed or f"JobSet {jobset.name} was deleted"
    return ""


def why_gone(jobset: JobSetFacts | None, name: str, end: End | None) -> tuple[str, Reason]:
    """Why a node has ended whose pod is gone, and was not seen to end. name: of the pod; "" if it
    is not known. end: what events say of it."""
    if (found := _suspension(jobset)) is not None:
        return found
    if end is not None:
        return end.why, end.reason
    pod = f"pod {name}" if name else "its pod"
    return f"{pod} was deleted while no supervisor was running", Reason.NODE_LOST


def _suspension(jobset: JobSetFacts | None) -> tuple[str, Reason] | None:
    """Why a JobSet has no pods now, though it gets some later; None if it is not suspended."""
    if jobset is None or not (jobset.evicted or jobset.is_suspended):
        return None
    if jobset.evicted:
        text = f"{jobset.evicted}; its pod comes back when it is admitted again"
    else:
        text = f"JobSet {jobset.name} was suspended in the cluster"
        text = f"{text}; its pod comes back when it resumes"
    return text, Reason.PREEMPTED


def why_not_reached(pod: PodFacts, why: str = "") -> str:
    """Why there is no contact with a pod, or soon none, as a phrase. why: what its stream says."""
    if not pod.is_ending or pod.end is not None:
        return pod.why_unreachable or why
    ending, disruption = _why_ending(pod), pod.disruption
    # others end within their grace period
    if disruption is None or (disruption.reason is Reason.PREEMPTED and not pod.why_unreachable):
        return ending
    return (
        f"{ending}; its node has not confirmed that: it is replaced when the node answers, or is "
        "removed from the cluster"
    )


def _why_ending(pod: PodFacts) -> str:
    """Why a pod is about to end that was told to: the same for all that end alike."""
    if pod.disruption is None:
        return "its pod is being deleted"
    return f"its pod is ending: it {pod.disruption.why.removeprefix(_place(pod)).strip()}"


def _place(pod: PodFacts) -> str:
    return f"pod {pod.name} on {pod.node}" if pod.node else f"pod {pod.name}"
