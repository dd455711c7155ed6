"""What objects of the cluster say, as far as it is of interest. Pure.

These facts are small: thousands are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.kubernetes.endings import (
    Crash,
    End,
    Failure,
    crash_of,
    disruption,
    end_of_deleted,
    end_of_pod,
    exit_of,
    failed_beside,
    node_termination,
    running_beside,
    why_unreachable,
)
from muster.engines.kubernetes.names import (
    JOB_INDEX,
    JOB_UID,
    JOBSET_GROUP,
    JOBSET_NAME,
    JOBSET_UID,
    POD_INDEX,
    RESTARTS,
    RUN,
)
from muster.engines.kubernetes.pods import NODE
from muster.engines.kubernetes.waiting import evicted, is_mounting, why_pod_waits, why_queued
from muster.lifecycle.status import Reason
from muster.node.pod import GROUP, JOB


class PodFacts(Struct, frozen=True):
    """A pod."""

    uid: str
    name: str
    #: The id of its run; "" if it belongs to none.
    run: str
    #: The name of its JobSet; without JobSet in the cluster, of what stands for it.
    jobset: str
    #: The name of its replicated Job.
    group: str
    #: Its Job among those of the group, and its index in that; -1: it has none.
    job: int
    index: int
    #: How often JobSet had restarted all pods when this one was made.
    restarts: int
    #: The name of its node; "" until it has one.
    node: str
    #: In the network of pods; the first one is the usual one.
    addresses: tuple[str, ...]
    phase: str
    #: Whether its container `node` runs.
    runs: bool
    #: When that container has started.
    started_at: float | None
    #: Why it has not started, as a phrase; "" if it has.
    why_waiting: str
    #: Why nobody knows how it is, as a phrase; "" if that is known. It has not ended then.
    why_unreachable: str
    #: Whether it is being deleted.
    is_ending: bool
    #: Why the cluster ends it, if it does and has said why: it may not have ended.
    disruption: End | None
    #: How it, or its container `node`, has ended; None if neither has.
    end: End | None
    #: Of its container `node`, if that has ended; see `endings.exit_of`.
    exit_code: int | None
    signal: int
    #: The container that has failed, if its log may say why.
    crash: Crash | None = None
    #: The containers that run with `node`: those that have failed, and the names of those that have
    #: not ended.
    failed: tuple[Failure, ...] = ()
    others: tuple[str, ...] = ()
    #: The name of the Job that owns it; "" if none does, as when somebody has made it.
    owner: str = ""
    #: The uid of its JobSet; "" from a JobSet that does not label pods with it (before 0.9).
    jobset_uid: str = ""
    #: Whether it has a machine, where its volumes may not be mounted yet.
    is_mounting: bool = False

    @property
    def is_of_job(self) -> bool:
        """Whether the Job owns it that its labels say: others may copy labels."""
        return self.owner == f"{self.jobset}-{self.group}-{self.job}"


class JobSetFacts(Struct, frozen=True):
    """A JobSet or, without JobSet in the cluster, a Job."""

    uid: str
    name: str
    run: str
    is_suspended: bool
    is_ending: bool
    #: How often JobSet has restarted it.
    restarts: int
    has_succeeded: bool
    #: Why it has failed, as a sentence; "" if it has not.
    failed: str
    #: Why Kueue has not admitted it, as a phrase; "" if it has, or does not queue it.
    why_waiting: str = ""
    #: What Kueue has done, as a sentence, if it was preempted or evicted; else "".
    evicted: str = ""


class WorkloadFacts(Struct, frozen=True):
    """A Workload of Kueue, which stands for a JobSet or a Job."""

    uid: str
    name: str
    #: The uid of that.
    owner: str
    why_waiting: str
    evicted: str


def pod_facts(pod: Mapping[str, Any], *, is_deleted: bool = False) -> PodFacts:
    """What a pod says. is_deleted: the API server does not have it any more."""
    about, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    labels = about.get("labels") or {}
    variables = _variables(spec)
    ended = node_termination(pod)
    code, signal = (None, 0) if ended is None else exit_of(ended)
    running = _running(status)
    addresses = [one.get("ip") for one in status.get("podIPs") or ()] or [status.get("podIP")]
    return PodFacts(
        uid=str(about.get("uid", "")),
        name=str(about.get("name", "")),
        run=_kept(labels.get(RUN)),
        jobset=_kept(labels.get(JOBSET_NAME) or spec.get("subdomain")),
        group=_kept(labels.get(JOBSET_GROUP) or variables.get(GROUP)),
        job=_number(labels.get(JOB_INDEX, variables.get(JOB))),
        index=_number(labels.get(POD_INDEX, (about.get("annotations") or {}).get(POD_INDEX))),
        restarts=max(_number(labels.get(RESTARTS, 0)), 0),
        node=_kept(spec.get("nodeName")),
        addresses=tuple(str(one) for one in addresses if one),
        phase=_kept(status.get("phase", "Pending")),
        runs=running is not None and status.get("phase") == "Running",
        started_at=None if running is None else seconds(running.get("startedAt")),
        why_waiting="" if ended is not None or is_deleted else why_pod_waits(pod),
        why_unreachable="" if is_deleted else why_unreachable(pod),
        is_ending=about.get("deletionTimestamp") is not None,
        disruption=disruption(pod),
        end=end_of_deleted(pod) if is_deleted else end_of_pod(pod),
        exit_code=code,
        signal=signal,
        crash=None if is_deleted else crash_of(pod),
        failed=() if is_deleted else failed_beside(pod),
        others=() if is_deleted else running_beside(pod),
        owner=_kept(_job_of(about)),
        jobset_uid=_kept(labels.get(JOBSET_UID)),
        is_mounting=not is_deleted and is_mounting(pod),
    )


def _job_of(about: Mapping[str, Any]) -> str:
    """The name of the Job that owns a pod; "" if none does. about: its metadata."""
    owners: Iterable[Mapping[str, Any]] = about.get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), {})
    if owner.get("kind") != "Job" or owner.get("apiVersion") != "batch/v1":
        return ""
    labeled = (about.get("labels") or {}).get(JOB_UID)
    return str(owner.get("name", "")) if labeled in (None, owner.get("uid")) else ""


def jobset_facts(jobset: Mapping[str, Any], kind: str = "JobSet") -> JobSetFacts:
    """What a JobSet, or a Job, says."""
    about, status = jobset.get("metadata") or {}, jobset.get("status") or {}
    conditions = {
        str(one.get("type")): one
        for one in status.get("conditions") or ()
        if one.get("status") == "True"
    }
    name = str(about.get("name", ""))
    return JobSetFacts(
        uid=str(about.get("uid", "")),
        name=name,
        run=_kept((about.get("labels") or {}).get(RUN)),
        is_suspended=bool((jobset.get("spec") or {}).get("suspend")),
        is_ending=about.get("deletionTimestamp") is not None,
        restarts=int(status.get("restarts") or 0),
        has_succeeded="Completed" in conditions or "Complete" in conditions,
        failed=_failed(kind, name, conditions.get("Failed")),
    )


def _failed(kind: str, name: str, condition: Mapping[str, Any] | None) -> str:
    if condition is None:
        return ""
    message = " ".join(str(condition.get("message") or "").split()).rstrip(".")
    reason = str(condition.get("reason") or "")
    why = f"{message} ({reason})" if message and reason else message or reason
    return f"{kind} {name} has failed" + (f": {why}" if why else "")


def workload_facts(workload: Mapping[str, Any]) -> WorkloadFacts:
    """What a Workload says."""
    about = workload.get("metadata") or {}
    conditions: Iterable[Mapping[str, Any]] = (workload.get("status") or {}).get("conditions") or ()
    one = next((c for c in conditions if _is_eviction(c)), None)
    owners: Iterable[Mapping[str, Any]] = about.get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), {})
    return WorkloadFacts(
        uid=str(about.get("uid", "")),
        name=str(about.get("name", "")),
        owner=str(owner.get("uid", "")),
        why_waiting=why_queued(workload),
        evicted="" if one is None else evicted(one),
    )


def _is_eviction(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == "Evicted" and condition.get("status") == "True"


def gone(pod: PodFacts) -> PodFacts:
    """A pod of which only these facts are known, and that is not in the cluster any more."""
    why = f"pod {pod.name} was deleted" if not pod.why_unreachable else pod.why_unreachable
    end = pod.end or pod.disruption or End(Reason.NODE_LOST, why)
    unknown = {"runs": False, "why_waiting": "", "why_unreachable": "", "is_mounting": False}
    return replace(pod, end=end, crash=None, others=(), **unknown)


def seconds(text: object) -> float | None:
    """Epoch seconds of a time as the API has it; None if it is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def _running(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The state of the container `node` if it runs."""
    for one in status.get("containerStatuses") or ():
        if one.get("name") == NODE:
            found: Mapping[str, Any] | None = (one.get("state") or {}).get("running")
            return found
    return None


def _variables(spec: Mapping[str, Any]) -> dict[str, str]:
    """By which a pod without JobSet knows its place."""
    containers: Iterable[Mapping[str, Any]] = spec.get("containers") or ()
    node = next((one for one in containers if one.get("name") == NODE), {})
    return {str(v.get("name")): str(v["value"]) for v in node.get("env") or () if "value" in v}


def _number(text: object) -> int:
    """-1 if it is none."""
    return int(str(text)) if str(text).isdecimal() else -1


def _kept(text: object) -> str:
    """One object for equal texts: thousands of pods have them."""
    return sys.intern(str(text or ""))
