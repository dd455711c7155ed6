"""The scheduler, and the life of nodes: which node a pod gets, or why none; nodes that do not
answer, and pods whose node is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from support.kube.amounts import Amounts, add, numbers, requests_of
from support.kube.manager import Clock, Key
from support.kube.objects import (
    ApiError,
    Obj,
    Resource,
    condition,
    has_condition,
    key_of,
    labels_of,
    set_condition,
)
from support.kube.storage import Event, Storage

UNREACHABLE = "node.kubernetes.io/unreachable"


class Scheduler:
    """All pods that wait are looked at together."""

    batch = 0.2

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def keys(self, resource: Resource, event: Event) -> Iterable[Key]:
        if resource.plural == "nodes":
            yield "", "all"
        elif resource.plural == "pods":
            spec, status = event.new["spec"], event.new.get("status", {})
            waits = "nodeName" not in spec
            frees = event.kind == "DELETED" or status.get("phase") in ("Succeeded", "Failed")
            if waits or frees:
                yield "", "all"

    def reconcile(self, _key: Key) -> float | None:
        waiting = [pod for pod in self._storage.listed("pods") if _waits(pod)]
        if not waiting:
            return None
        waiting.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        nodes = self._storage.listed("nodes")
        used = self._used()
        for pod in waiting:
            if pod["spec"].get("schedulingGates"):
                text = "Scheduling is blocked due to non-empty scheduling gates"
                self._refuse(pod, "SchedulingGated", text)
                continue
            reasons: Counter[str] = Counter()
            fitting = []
            for node in nodes:
                name = node["metadata"]["name"]
                if why := list(_misfits(pod, node, used.get(name, {}))):
                    reasons.update(why)
                else:
                    fitting.append(name)
            if fitting:
                chosen = min(fitting, key=lambda name: (used.get(name, {}).get("pods", 0), name))
                self._bind(pod, chosen)
                add(used.setdefault(chosen, {}), {**requests_of(pod), "pods": 1})
            else:
                self._unschedulable(pod, len(nodes), reasons)
        return None

    def _used(self) -> dict[str, Amounts]:
        found: dict[str, Amounts] = {}
        for pod in self._storage.listed("pods"):
            node = pod["spec"].get("nodeName")
            if node and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                add(found.setdefault(node, {}), {**requests_of(pod), "pods": 1})
        return found

    def _bind(self, pod: Obj, node: str) -> None:
        def change(obj: Obj) -> None:
            obj["spec"]["nodeName"] = node
            set_condition(obj, "PodScheduled", True)

        try:
            self._storage.update("pods", *key_of(pod), change, subresource="*")
        except ApiError:
            return  # it is gone
        text = f"Successfully assigned {'/'.join(key_of(pod))} to {node}"
        self._storage.event(pod, "Normal", "Scheduled", text, "default-scheduler")

    def _unschedulable(self, pod: Obj, count: int, reasons: Counter[str]) -> None:
        listed = ", ".join(sorted(f"{number} {why}" for why, number in reasons.items()))
        helpless = f"preemption: 0/{count} nodes are available: {count} Preemption is not helpful "
        text = f"0/{count} nodes are available: {listed}. {helpless}for scheduling."
        if not count:
            text = "no nodes available to schedule pods"
        if self._refuse(pod, "Unschedulable", text):
            self._storage.event(pod, "Warning", "FailedScheduling", text, "default-scheduler")

    def _refuse(self, pod: Obj, reason: str, text: str) -> bool:
        was = condition(pod, "PodScheduled")
        if (was.get("reason"), was.get("message")) == (reason, text):
            return False

        def change(obj: Obj) -> None:
            set_condition(obj, "PodScheduled", False, reason, text)

        self._storage.update("pods", *key_of(pod), change, subresource="*")
        return True


def _waits(pod: Obj) -> bool:
    meta = pod["metadata"]
    return "nodeName" not in pod["spec"] and "deletionTimestamp" not in meta


def _misfits(pod: Obj, node: Obj, used: Amounts) -> Iterable[str]:
    """Why a pod cannot have a node: the reasons of the filter that is first to refuse."""
    spec = pod["spec"]
    if node["spec"].get("unschedulable"):
        yield "node(s) were unschedulable"
        return
    for taint in node["spec"].get("taints", ()):
        if taint["effect"] != "PreferNoSchedule" and not tolerates(spec, taint):
            yield f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
            return
    if not _selected(spec, labels_of(node), node["metadata"]["name"]):
        yield "node(s) didn't match Pod's node affinity/selector"
        return
    free = numbers(node["status"]["allocatable"])
    add(free, used, -1.0)
    for name, wanted in {**requests_of(pod), "pods": 1.0}.items():
        if wanted > free.get(name, 0.0) + 1e-9:
            yield "Too many pods" if name == "pods" else f"Insufficient {name}"


def tolerates(spec: Obj, taint: Obj) -> bool:
    """Whether a pod may be on a node with a taint."""
    for one in spec.get("tolerations") or ():
        if one.get("effect") not in (None, "", taint["effect"]):
            continue
        if one.get("operator", "Equal") == "Exists":
            if one.get("key") in (None, "", taint["key"]):
                return True
        elif one.get("key") == taint["key"] and one.get("value", "") == taint.get("value", ""):
            return True
    return False


def _selected(spec: Obj, labels: object, name: str) -> bool:
    assert isinstance(labels, dict)
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        all(_expression(one, labels) for one in term.get("matchExpressions", ()))
        and all(_expression(one, {"metadata.name": name}) for one in term.get("matchFields", ()))
        for term in required["nodeSelectorTerms"]
    )


def _expression(one: Obj, labels: dict[str, str]) -> bool:
    value, operator = labels.get(one["key"]), str(one["operator"])
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (operator == "Exists")
    return bool(value in one["values"]) == (operator == "In")


class NodeLife:
    """What the cluster does with pods whose node does not answer, or is gone."""

    batch = 0.0

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage, self._clock = storage, clock
        #: Node -> since when it does not answer.
        self._silent: dict[str, float] = {}

    def keys(self, resource: Resource, event: Event) -> Iterable[Key]:
        if resource.plural == "nodes":
            yield key_of(event.new)

    def reconcile(self, key: Key) -> float | None:
        name = key[1]
        node = self._storage.find("nodes", "", name)
        pods = [p for p in self._storage.listed("pods") if p["spec"].get("nodeName") == name]
        if node is None:
            for pod in pods:
                self._collect(pod)
            return None
        if condition(node, "Ready").get("status") != "Unknown":
            self._silent.pop(name, None)
            return None
        since = self._silent.setdefault(name, self._clock.now())
        left = None
        for pod in pods:
            seconds = _tolerated(pod["spec"])
            if seconds is None or "deletionTimestamp" in pod["metadata"]:
                continue
            wait = since + seconds - self._clock.now()
            if wait <= 0:
                self._evict(pod, name)
            else:
                left = wait if left is None else min(left, wait)
        return left

    def _evict(self, pod: Obj, node: str) -> None:
        text = f"Taint manager: deleting due to NoExecute taint on {node}"
        disrupt(self._storage, pod, "DeletionByTaintManager", text)
        self._storage.delete("pods", *key_of(pod))

    def _collect(self, pod: Obj) -> None:
        """A pod whose node is no part of the cluster any more has failed."""
        text = "PodGC: node no longer exists"
        disrupt(self._storage, pod, "DeletionByPodGC", text, fails=True)
        try:
            self._storage.delete("pods", *key_of(pod), grace=0)
        except ApiError:
            pass  # it is gone


def _tolerated(spec: Obj) -> float | None:
    """Seconds that a pod stays on a node that does not answer; None: for ever."""
    taint = {"key": UNREACHABLE, "effect": "NoExecute"}
    for one in spec.get("tolerations") or ():
        if tolerates({"tolerations": [one]}, taint):
            seconds = one.get("tolerationSeconds")
            return None if seconds is None else float(seconds)
    return 0.0


def disrupt(storage: Storage, pod: Obj, reason: str, message: str, *, fails: bool = False) -> None:
    """Say in a pod's status that the cluster ends it. fails: it has ended with that."""

    def change(obj: Obj) -> None:
        if obj["status"].get("phase") in ("Succeeded", "Failed"):
            return
        if not has_condition(obj, "DisruptionTarget"):
            set_condition(obj, "DisruptionTarget", True, reason, message)
        if fails:
            obj["status"]["phase"] = "Failed"

    try:
        storage.update("pods", *key_of(pod), change, subresource="*")
    except ApiError:
        pass  # it is gone
