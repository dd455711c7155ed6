"""Why a pod, or a whole run, has not started, as phrases in plain words. Pure.

They follow "waits: " or "it waits since ": "none of the cluster's 12 machines can run the pod".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_COUNTS = re.compile(r"^(?:0/(\d+) nodes are available)[:.]?\s*(.*)$", re.DOTALL)
#: What the scheduler adds after its counts.
_PREEMPTION = re.compile(
    r"\.?\s*(?:preemption: |no new claims to deallocate|still not schedulable).*$",
    re.DOTALL,
)
_COUNTED = re.compile(r"(\d+) (.+)", re.DOTALL)
#: Before one of the scheduler's counts; there are commas in its texts, too.
_NEXT_COUNT = re.compile(r", (?=\d+ )")
#: The scheduler's words for nodes -> ours, for one and for several.
_OF_NODES: Sequence[tuple[re.Pattern[str], str, str]] = [
    (re.compile(one), single, several)
    for one, single, several in (
        (r"Insufficient (\S+)", "has too little free {0}", "have too little free {0}"),
        (r"Too many pods", "is at its limit of pods", "are at their limit of pods"),
        (
            r"node\(s\) were unschedulable|node\(s\) had untolerated taint(?:\(s\)|s)? "
            r"\{node\.kubernetes\.io/unschedulable: \}",
            "is cordoned",
            "are cordoned",
        ),
        (
            r"node\(s\) had untolerated taint(?:\(s\)|s)? "
            r"\{node\.kubernetes\.io/(?:not-ready|unreachable): \}",
            "is not ready",
            "are not ready",
        ),
        (
            r"node\(s\) had untolerated taint(?:\(s\)|s)?\s*\{(.*?):? ?\}",
            "has the taint {0}, which the pod does not tolerate",
            "have the taint {0}, which the pod does not tolerate",
        ),
        (
            r"node\(s\) had untolerated taint(?:\(s\)|s)?",
            "has a taint that the pod does not tolerate",
            "have taints that the pod does not tolerate",
        ),
        (
            r"node\(s\) didn't match Pod's node affinity(?:/selector)?|"
            r"node\(s\) didn't match node selector",
            "does not match the pod's node selector or affinity",
            "do not match the pod's node selector or affinity",
        ),
        (
            r"node\(s\) didn't (?:match|satisfy) (?:existing )?pods?'?s? anti-affinity(?: rules)?",
            "has a pod that keeps this one away (anti-affinity)",
            "have pods that keep this one away (anti-affinity)",
        ),
        (
            r"node\(s\) didn't match pod affinity rules",
            "does not match the pod's affinity to other pods",
            "do not match the pod's affinity to other pods",
        ),
        (
            r"node\(s\) didn't match pod topology spread constraints.*",
            "does not match the pod's topology spread",
            "do not match the pod's topology spread",
        ),
        (
            r"node\(s\) had volume node affinity conflict|"
            r"node\(s\) didn't match PersistentVolume's node affinity",
            "cannot reach the pod's volume",
            "cannot reach the pod's volume",
        ),
        (
            r"node\(s\) exceed max volume count",
            "is at its limit of volumes",
            "are at their limit of volumes",
        ),
        (
            r"node\(s\) didn't have free ports for the requested pod ports",
            "has a port in use that the pod needs",
            "have a port in use that the pod needs",
        ),
        (r"cannot allocate all claims", "lacks a device", "lack devices"),
    )
]
_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
#: Gate of a pod -> who opens it, and when.
_GATES = {
    "kueue.x-k8s.io/admission": "Kueue has not admitted its pod yet",
    "kueue.x-k8s.io/topology": "Kueue has not assigned its pod a place in the topology yet",
    "kueue.x-k8s.io/elastic-job": "Kueue has not admitted the larger run yet",
}
#: Reasons of a container that waits since its image cannot be had.
_IMAGE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}
    | {"ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}
)
_CREATING = frozenset({"ContainerCreating", "PodInitializing", ""})
_BACK_OFF = re.compile(r"^Back-off pulling image \"[^\"]*\":? ?(?:ErrImagePull: )?")


def is_mounting(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has a machine, where its volumes may not be mounted yet: no container has
    begun, nor has its network, which follows."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if status.get("phase", "Pending") != "Pending" or not spec.get("nodeName"):
        return False
    node = str(spec["nodeName"])
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    is_mounted = conditions.get("PodReadyToStartContainers") == "True"
    return not is_mounted and _why_not_created(node, status) == _being_created(node)


def why_pod_waits(pod: Mapping[str, Any]) -> str:
    """Why a pod has not started; "" if it has."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if status.get("phase", "Pending") != "Pending":
        return ""
    if gates := spec.get("schedulingGates"):
        names = [str(one.get("name", "")) for one in gates]
        known = next((_GATES[name] for name in names if name in _GATES), "")
        return known or f"its pod is held by the scheduling gate {', '.join(names)}"
    if not spec.get("nodeName"):
        return _why_not_scheduled(status.get("conditions") or ())
    return _why_not_created(str(spec["nodeName"]), status)


def _why_not_scheduled(conditions: Iterable[Mapping[str, Any]]) -> str:
    one = next((c for c in conditions if c.get("type") == "PodScheduled"), None)
    if one is None or not one.get("message"):
        return "its pod has not been scheduled yet"
    return unschedulable(str(one["message"]))


def unschedulable(message: str) -> str:
    """The scheduler's words in plain ones; unknown words stay."""
    text = " ".join(message.split())
    found = _COUNTS.match(text)
    if found is None:
        return _of_claims(text.rstrip("."))
    total, rest = int(found[1]), _PREEMPTION.sub("", found[2]).strip().rstrip(".")
    parts = [_counted(one) for one in _NEXT_COUNT.split(rest) if one]
    if total == 0:
        return "the cluster has no machines"
    text = f"none of the cluster's {total} machines can run the pod"
    if total == 1:
        text = "the cluster's only machine cannot run the pod"
    return f"{text}: {', '.join(parts)}" if parts else text


def _counted(text: str) -> str:
    """One of the scheduler's counts."""
    found = _COUNTED.fullmatch(text.strip())
    if found is None:
        return _of_claims(text.strip())
    count, words = int(found[1]), found[2].strip()
    for pattern, single, several in _OF_NODES:
        if (known := pattern.fullmatch(words)) is not None:
            says = (single if count == 1 else several).format(*known.groups())
            return f"{count} {says}"
    return f"{count}: {_of_claims(words.removeprefix('node(s) '))}"


def _of_claims(text: str) -> str:
    if _UNBOUND in text:
        return "a volume claim of the pod is not bound yet"
    if (found := _NO_CLAIM.search(text)) is not None:
        return f"there is no volume claim {found[1]}"
    return text


def _why_not_created(node: str, status: Mapping[str, Any]) -> str:
    """Why the containers of a pod that has a node do not run."""
    initial = status.get("initContainerStatuses") or ()
    for one in initial:
        state = one.get("state") or {}
        if (waiting := state.get("waiting")) is not None:
            if why := _why_container_waits(one, waiting):
                return why
        elif "running" in state and not one.get("started", False):
            return f"container {one.get('name')} of its pod runs first, on {node}"
    for one in status.get("containerStatuses") or ():
        waiting = (one.get("state") or {}).get("waiting")
        if waiting is not None and (why := _why_container_waits(one, waiting)):
            return why
    return _being_created(node)


def _being_created(node: str) -> str:
    return f"its pod is being created on {node}"


def _why_container_waits(container: Mapping[str, Any], waiting: Mapping[str, Any]) -> str:
    """Why a container waits; "" if it is only being created."""
    reason, message = (
        str(waiting.get("reason") or ""),
        " ".join(str(waiting.get("message") or "").split()),
    )
    if reason in _CREATING:
        return ""
    name = container.get("name")
    if reason in _IMAGE:
        said = _BACK_OFF.sub("", message) or message
        text = f"image {container.get('image')} cannot be pulled"
        return f"{text}: {said.rstrip('.')}" if said else f"{text} ({reason})"
    if reason == "CrashLoopBackOff":
        return f"container {name} of its pod keeps failing: {message or reason}"
    return f"container {name} of its pod cannot be created: {message or reason}"


# --- Kueue

#: Reason of a condition of a Workload -> words before its message.
_NOT_ADMITTED = {
    "Inadmissible": "cannot be admitted",
    "WaitingForQuota": "waits for quota",
    "ExceedsMaxQuota": "asks for more than the queue may ever have",
    "NoMatchingFlavor": "finds no resource flavor that matches its pods",
    "TopologyPlacementFailed": "finds no place in the topology",
    "WaitingForPreemptedWorkloads": "waits for others that are being preempted for it",
    "WaitingForPodsReady": "waits until the pods of others are ready",
    "Misconfigured": "waits in a queue that is not set up",
    "Suspended": "was suspended",
}
#: Kueue's words for a queue that is not there.
_NO_QUEUE = re.compile(r"LocalQueue (\S+) doesn't exist")
#: Reason of an eviction -> what has happened.
_EVICTED = {
    "Preempted": "Kueue has preempted it",
    "PodsReadyTimeout": "Kueue has evicted it since its pods were not ready in time",
    "AdmissionCheck": "Kueue has evicted it since an admission check has failed",
    "ClusterQueueStopped": "Kueue has evicted it since its cluster queue was stopped",
    "LocalQueueStopped": "Kueue has evicted it since its queue was stopped",
    "NodeFailures": "Kueue has evicted it since its nodes have failed",
    "FlavorMigration": "Kueue moves it to another resource flavor",
    "Deactivated": "Kueue has deactivated it",
    "DeactivatedDueToMaximumExecutionTimeExceeded": "it has reached its time limit in Kueue",
    "DeactivatedDueToRequeuingLimitExceeded": "Kueue has requeued it too often",
}


def why_queued(workload: Mapping[str, Any]) -> str:
    """Why Kueue has not admitted a Workload; "" if it has, or if it has ended."""
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    conditions = {str(one.get("type")): one for one in status.get("conditions") or ()}
    if _is_true(conditions, "Finished") or (
        _is_true(conditions, "Admitted") and not _is_true(conditions, "Evicted")
    ):
        return ""
    was_evicted = _is_true(conditions, "Evicted")
    if was_evicted and not _is_requeued(spec, conditions):
        return evicted(conditions["Evicted"])
    queue = str(spec.get("queueName") or "")
    waits = f"queue {queue} of Kueue has not admitted it {'again ' if was_evicted else ''}yet"
    if spec.get("active") is False:
        return "it is deactivated in Kueue"
    if _is_true(conditions, "BlockedOnPreemptionGates"):
        return _joined(waits, conditions["BlockedOnPreemptionGates"])
    if _is_true(conditions, "QuotaReserved"):
        return _why_not_admitted(status)
    one = conditions.get("QuotaReserved")
    if one is None:
        return waits
    if (missing := _NO_QUEUE.search(str(one.get("message") or ""))) is not None:
        text = f"the namespace has no LocalQueue {missing[1]}"
        return f"{text}: create it, or cancel the run, and start it in another queue"
    words = _NOT_ADMITTED.get(str(one.get("reason")))
    return _joined(waits if words is None else f"queue {queue} of Kueue: it {words}", one)


def _is_requeued(spec: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether Kueue has looked for quota again since it has evicted a Workload: it counts as
    evicted until it has some, and its quota is missing for the same reason at first."""
    quota = conditions.get("QuotaReserved") or {}
    if spec.get("active") is False or quota.get("status") != "False":
        return False
    return quota.get("message") != conditions["Evicted"].get("message")


def evicted(condition: Mapping[str, Any]) -> str:
    """What has become of a Workload that Kueue has evicted."""
    reason = str(condition.get("reason") or "")
    return _joined(_EVICTED.get(reason, f"Kueue has evicted it ({reason})"), condition)


def _why_not_admitted(status: Mapping[str, Any]) -> str:
    """Quota is reserved: what checks of the cluster queue say."""
    queue = str((status.get("admission") or {}).get("clusterQueue") or "")
    checks = [one for one in status.get("admissionChecks") or () if one.get("state") != "Ready"]
    if not checks:
        return f"Kueue has reserved quota in {queue}, and has not admitted it yet"
    one = checks[0]
    text = f"Kueue has reserved quota in {queue}, and waits for admission check {one.get('name')}"
    return _joined(text, one)


def _joined(start: str, condition: Mapping[str, Any]) -> str:
    message = " ".join(str(condition.get("message") or "").split()).rstrip(".")
    return f"{start}: {message}" if message else start


def _is_true(conditions: Mapping[str, Mapping[str, Any]], name: str) -> bool:
    return name in conditions and conditions[name].get("status") == "True"
