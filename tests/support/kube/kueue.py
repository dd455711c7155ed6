"""Kueue for JobSets, as a model: one ClusterQueue a LocalQueue names, one flavor, quota, priorities
and preemption within the queue."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from support.kube.amounts import Amounts, add, numbers, requests_of
from support.kube.manager import Clock, Key
from support.kube.objects import (
    BY_PLURAL,
    KUEUE_GROUP,
    ApiError,
    Obj,
    Resource,
    condition,
    has_condition,
    key_of,
    labels_of,
    owner_reference,
    set_condition,
)
from support.kube.patches import own_changes
from support.kube.storage import Event, Storage

QUEUE, PRIORITY = f"{KUEUE_GROUP}/queue-name", f"{KUEUE_GROUP}/priority-class"
MAX_EXEC_TIME = f"{KUEUE_GROUP}/max-exec-time-seconds"
FLAVOR = "default"


class Kueue:
    """The controller. Quota is `spec.nominalQuota` of a ClusterQueue: resource -> quantity."""

    batch = 0.0

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage, self._clock = storage, clock
        #: WorkloadPriorityClass -> its value.
        self.priorities: dict[str, int] = {}
        #: Labels of nodes, and tolerations, that the flavor gives to pods.
        self.node_labels: dict[str, str] = {}
        self.tolerations: list[Obj] = []
        #: uid of a workload -> seconds that it was admitted before, and since when it is.
        self._ran: dict[str, float] = {}
        #: uid of a JobSet -> its replicated Jobs as they were before they were admitted.
        self._before: dict[str, list[Obj]] = {}
        self._since: dict[str, float] = {}

    def keys(self, resource: Resource, event: Event) -> Iterable[Key]:
        if resource.plural in ("jobsets", "workloads", "localqueues", "clusterqueues"):
            yield "", "all"

    def reconcile(self, _key: Key) -> float | None:
        for jobset in self._storage.listed("jobsets"):
            if QUEUE in labels_of(jobset) and "deletionTimestamp" not in jobset["metadata"]:
                self._follow(jobset)
        waits = [self._limit(one) for one in self._storage.listed("workloads")]
        self._admit()
        return min((one for one in waits if one is not None), default=None)

    # --- a JobSet and its workload

    def _follow(self, jobset: Obj) -> None:
        namespace, _name = key_of(jobset)
        place = namespace, workload_name(jobset)
        workload = self._storage.find("workloads", *place)
        if workload is None:
            if not (has_condition(jobset, "Completed") or has_condition(jobset, "Failed")):
                self._storage.create("workloads", self._workload(jobset))
            return
        for kind, reason in (("Completed", "Succeeded"), ("Failed", "Failed")):
            if has_condition(jobset, kind):
                text = condition(jobset, kind).get("message", "")
                self._set(workload, "Finished", True, reason, text)
                return
        suspended = bool(jobset["spec"].get("suspend"))
        if has_condition(workload, "Admitted"):
            if suspended:
                self._start(jobset)
            if _ready(jobset):
                text = "All pods were ready or succeeded since the workload admission"
                self._set(workload, "PodsReady", True, "PodsReady", text)
        elif not suspended:
            self._suspend(jobset)
        elif has_condition(workload, "QuotaReserved") and not _active(jobset):
            # evicted: nothing of it runs any more
            evicted = condition(workload, "Evicted")
            text = evicted.get("message", "")
            self._set(workload, "QuotaReserved", False, "Pending", text)

    def _workload(self, jobset: Obj) -> Obj:
        namespace, _ = key_of(jobset)
        labels = labels_of(jobset)
        spec: Obj = {
            "queueName": labels[QUEUE],
            "active": True,
            "priority": self.priorities.get(labels.get(PRIORITY, ""), 0),
            "podSets": [
                {
                    "name": one["name"].lower(),
                    "count": one["replicas"] * _pods(one["template"]["spec"]),
                    "template": copy.deepcopy(one["template"]["spec"]["template"]),
                }
                for one in jobset["spec"]["replicatedJobs"]
            ],
        }
        if PRIORITY in labels:
            spec["priorityClassRef"] = {
                "group": KUEUE_GROUP,
                "kind": "WorkloadPriorityClass",
                "name": labels[PRIORITY],
            }
        if MAX_EXEC_TIME in labels:
            spec["maximumExecutionTimeSeconds"] = int(labels[MAX_EXEC_TIME])
        meta = {
            "name": workload_name(jobset),
            "namespace": namespace,
            "labels": {f"{KUEUE_GROUP}/job-uid": jobset["metadata"]["uid"]},
            "ownerReferences": [owner_reference(jobset)],
            "finalizers": [],
        }
        return {"metadata": meta, "spec": spec}

    def _start(self, jobset: Obj) -> None:
        uid = jobset["metadata"]["uid"]
        self._before[uid] = copy.deepcopy(jobset["spec"]["replicatedJobs"])

        def change(obj: Obj) -> None:
            obj["spec"]["suspend"] = False
            for one in obj["spec"]["replicatedJobs"]:
                pod = one["template"]["spec"]["template"]["spec"]
                if self.node_labels:
                    pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), **self.node_labels}
                if self.tolerations:
                    pod["tolerations"] = [*(pod.get("tolerations") or ()), *self.tolerations]

        self._write(jobset, change)

    def _suspend(self, jobset: Obj) -> None:
        def change(obj: Obj) -> None:
            obj["spec"]["suspend"] = True
            if (before := self._before.pop(obj["metadata"]["uid"], None)) is not None:
                obj["spec"]["replicatedJobs"] = before

        self._write(jobset, change)

    def _write(self, jobset: Obj, change: Callable[[Obj], object]) -> None:
        """Change a JobSet as Kueue does: what it changes is its own then."""

        def owned(obj: Obj) -> None:
            old = copy.deepcopy(obj)
            change(obj)
            own_changes(BY_PLURAL["jobsets"], obj, old, "kueue")

        self._storage.update("jobsets", *key_of(jobset), owned)

    # --- quota

    def _admit(self) -> None:
        waiting = [one for one in self._storage.listed("workloads") if _waits(one)]
        waiting.sort(
            key=lambda one: (-one["spec"]["priority"], one["metadata"]["creationTimestamp"])
        )
        for workload in waiting:
            queue = self._cluster_queue(workload)
            if queue is None:
                continue
            needs = _needs(workload)
            quota = numbers(queue["spec"]["nominalQuota"])
            used = self._used(queue)
            short = {n: used.get(n, 0) + v - quota.get(n, 0) for n, v in needs.items()}
            short = {name: value for name, value in short.items() if value > 1e-9}
            if not short:
                self._reserve(workload, queue)
                continue
            self._tell_pending(workload, needs, quota, short)
            self._preempt(workload, queue, short)

    def _cluster_queue(self, workload: Obj) -> Obj | None:
        namespace, _ = key_of(workload)
        name = workload["spec"]["queueName"]
        local = self._storage.find("localqueues", namespace, name)
        if local is None:
            text = f"LocalQueue {name} doesn't exist"
            self._set(workload, "QuotaReserved", False, "Inadmissible", text)
            return None
        queue = self._storage.find("clusterqueues", "", local["spec"]["clusterQueue"])
        if queue is None or queue["spec"].get("stopPolicy", "None") != "None":
            what = "doesn't exist" if queue is None else "is stopped"
            text = f"ClusterQueue {local['spec']['clusterQueue']} {what}"
            self._set(workload, "QuotaReserved", False, "Inadmissible", text)
            return None
        return queue

    def _used(self, queue: Obj) -> Amounts:
        total: Amounts = {}
        for one in self._holders(queue):
            add(total, _needs(one))
        return total

    def _holders(self, queue: Obj) -> list[Obj]:
        """Workloads that hold quota of a queue."""
        return [
            one
            for one in self._storage.listed("workloads")
            if has_condition(one, "QuotaReserved")
            and not has_condition(one, "Finished")
            and one["status"]["admission"]["clusterQueue"] == queue["metadata"]["name"]
        ]

    def _reserve(self, workload: Obj, queue: Obj) -> None:
        name = queue["metadata"]["name"]

        def change(obj: Obj) -> None:
            sets = [
                {
                    "name": one["name"],
                    "count": one["count"],
                    "flavors": dict.fromkeys(requests_of(one["template"]), FLAVOR),
                }
                for one in obj["spec"]["podSets"]
            ]
            obj.setdefault("status", {})["admission"] = {
                "clusterQueue": name,
                "podSetAssignments": sets,
            }
            text = f"Quota reserved in ClusterQueue {name}"
            set_condition(obj, "QuotaReserved", True, "QuotaReserved", text)
            set_condition(obj, "Admitted", True, "Admitted", "The workload is admitted")
            for kind in ("Evicted", "Preempted"):
                if has_condition(obj, kind):
                    set_condition(obj, kind, False, "QuotaReserved", f"Previously: {kind}")

        made = self._storage.update("workloads", *key_of(workload), change, subresource="*")
        self._since[made["metadata"]["uid"]] = self._clock.now()
        self._storage.event(made, "Normal", "Admitted", f"Admitted by ClusterQueue {name}", "kueue")

    def _tell_pending(self, workload: Obj, needs: Amounts, quota: Amounts, short: Amounts) -> None:
        sets = ", ".join(one["name"] for one in workload["spec"]["podSets"])
        parts = []
        for name in sorted(short):
            if needs[name] > quota.get(name, 0.0):
                text = f"request > maximum capacity ({needs[name]:g} > {quota.get(name, 0.0):g})"
                parts.append(f"insufficient quota for {name} in flavor {FLAVOR}, {text}")
            else:
                text = f"insufficient unused quota for {name} in flavor {FLAVOR}"
                parts.append(f"{text}, {short[name]:g} more needed")
        text = f"couldn't assign flavors to pod set {sets}: {', '.join(parts)}"
        if self._set(workload, "QuotaReserved", False, "Pending", text):
            self._storage.event(workload, "Warning", "Pending", text, "kueue")

    def _preempt(self, workload: Obj, queue: Obj, short: Amounts) -> None:
        """Evict workloads of lower priority, the lowest first, if that is enough."""
        if queue["spec"].get("preemption", {}).get("withinClusterQueue", "Never") == "Never":
            return
        own = workload["spec"]["priority"]
        lower = [one for one in self._holders(queue) if one["spec"]["priority"] < own]
        lower.sort(key=lambda one: int(one["spec"]["priority"]))
        victims, freed = [], dict[str, float]()
        for one in lower:
            if all(freed.get(name, 0.0) >= value for name, value in short.items()):
                break
            victims.append(one)
            add(freed, _needs(one))
        if all(freed.get(name, 0.0) >= value for name, value in short.items()):
            uid = workload["metadata"]["uid"]
            text = f"Preempted to accommodate a workload (UID: {uid}, JobUID: "
            text += f"{labels_of(workload)[f'{KUEUE_GROUP}/job-uid']}) due to prioritization in the"
            for one in victims:
                self.evict(one, "Preempted", f"{text} ClusterQueue", preempted="InClusterQueue")

    def evict(self, workload: Obj, reason: str, text: str, preempted: str = "") -> None:
        """Take a workload's admission: its JobSet is suspended, and has its quota until its pods
        have ended."""
        if has_condition(workload, "Evicted"):
            return

        def change(obj: Obj) -> None:
            set_condition(obj, "Evicted", True, reason, text)
            if preempted:
                set_condition(obj, "Preempted", True, preempted, text)
            set_condition(
                obj, "Admitted", False, "NoReservation", "The workload has no reservation"
            )
            if condition(obj, "PodsReady"):
                set_condition(obj, "PodsReady", False, "PodsReady", "Not all pods are ready")

        uid = workload["metadata"]["uid"]
        if uid in self._since:
            self._ran[uid] = self._ran.get(uid, 0.0) + self._clock.now() - self._since.pop(uid)
        made = self._storage.update("workloads", *key_of(workload), change, subresource="*")
        self._storage.event(made, "Normal", f"EvictedDueTo{reason}", text, "kueue")

    def _limit(self, workload: Obj) -> float | None:
        """Deactivate a workload that has run for too long."""
        seconds = workload["spec"].get("maximumExecutionTimeSeconds")
        uid = workload["metadata"]["uid"]
        if seconds is None or not has_condition(workload, "Admitted") or uid not in self._since:
            return None
        if has_condition(workload, "Finished"):
            return None
        left = float(seconds - self._ran.get(uid, 0.0) - (self._clock.now() - self._since[uid]))
        if left > 0:
            return left

        def change(obj: Obj) -> None:
            obj["spec"]["active"] = False

        now = self._storage.update("workloads", *key_of(workload), change, subresource="*")
        text = "The workload is deactivated due to exceeding the maximum execution time"
        self.evict(now, "Deactivated", text)
        return None

    def _set(self, workload: Obj, kind: str, value: bool, reason: str, text: str) -> bool:
        changed = []

        def change(obj: Obj) -> None:
            changed.append(set_condition(obj, kind, value, reason, text))
            if kind == "QuotaReserved" and not value:
                obj["status"].pop("admission", None)

        try:
            self._storage.update("workloads", *key_of(workload), change, subresource="*")
        except ApiError:
            return False  # it is gone
        return changed[0]


def workload_name(jobset: Obj) -> str:
    name, uid = jobset["metadata"]["name"], jobset["metadata"]["uid"]
    digest = hashlib.sha1(f"JobSet{name}{uid}".encode()).hexdigest()
    return f"jobset-{name}-{digest[:5]}"


def _waits(workload: Obj) -> bool:
    if has_condition(workload, "QuotaReserved") or has_condition(workload, "Finished"):
        return False
    meta = workload["metadata"]
    return bool(workload["spec"]["active"]) and "deletionTimestamp" not in meta


def _needs(workload: Obj) -> Amounts:
    total: Amounts = {}
    for one in workload["spec"]["podSets"]:
        add(total, requests_of(one["template"]), one["count"])
    return total


def _pods(job: Obj) -> int:
    parallelism = job.get("parallelism", 1)
    return int(min(parallelism, job.get("completions", parallelism)))


def _rows(jobset: Obj) -> list[Any]:
    return list(jobset.get("status", {}).get("replicatedJobsStatus", ()))


def _active(jobset: Obj) -> bool:
    return any(row["active"] for row in _rows(jobset))


def _ready(jobset: Obj) -> bool:
    total = sum(one["replicas"] for one in jobset["spec"]["replicatedJobs"])
    return bool(sum(row["ready"] + row["succeeded"] for row in _rows(jobset)) == total)
