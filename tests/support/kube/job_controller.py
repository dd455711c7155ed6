"""The Job controller, as a model: Indexed Jobs with failure policies, back-off and replacement.

Events of pods are collected for a second; a Job is Failed, or Complete, only when none of its pods
is left: it has `FailureTarget` until then.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from support.kube.manager import Clock, Key
from support.kube.objects import (
    ApiError,
    Obj,
    Resource,
    condition,
    controller_uid,
    has_condition,
    key_of,
    labels_of,
    owner_reference,
    set_condition,
    timestamp,
)
from support.kube.storage import Event, Storage

PREFIX = "batch.kubernetes.io"
TRACKING, POD_INDEX = f"{PREFIX}/job-tracking", f"{PREFIX}/job-completion-index"
#: Seconds of the back-off.
_FIRST_DELAY, _LONGEST_DELAY = 10.0, 600.0
LIMIT = "Job has reached the specified backoff limit"
DEADLINE = "Job was active longer than specified deadline"
FAILED_INDEXES = "Job has failed indexes"
MAX_FAILED_INDEXES = "Job has exceeded the specified maximal number of failed indexes"
#: Begins the namespace of keys of pods whose Job is gone.
_ORPHAN = "orphan/"
_POD_POLICY = "PodFailurePolicy"


class Failure(NamedTuple):
    """How a pod that has failed counts."""

    action: str
    message: str = ""


class JobController:
    """The controller, and what it remembers between its passes."""

    batch = 1.0

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage, self._clock = storage, clock
        #: Seconds after the first failure in a row until a pod is created again.
        self.first_delay = _FIRST_DELAY
        #: uid of a Job -> how many of its pods have failed in a row, and when the last one did.
        self._failures: dict[str, tuple[int, float]] = {}
        #: uid of a Job -> when it has started, and when it has ended.
        self._started: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        #: Pods that are counted already.
        self._counted: set[str] = set()

    def keys(self, resource: Resource, event: Event) -> Iterable[Key]:
        if resource.plural == "jobs":
            yield key_of(event.new)
        elif resource.plural == "pods":
            for owner in event.new["metadata"].get("ownerReferences", ()):
                namespace, name = key_of(event.new)
                if owner["kind"] == "Job" and self._storage.has_uid(owner["uid"]):
                    yield namespace, owner["name"]
                elif owner["kind"] == "Job":
                    yield f"{_ORPHAN}{namespace}", name

    def reconcile(self, key: Key) -> float | None:
        if key[0].startswith(_ORPHAN):
            pod = self._storage.find("pods", key[0].removeprefix(_ORPHAN), key[1])
            if pod is not None:
                untrack(self._storage, pod)
            return None
        job = self._storage.find("jobs", *key)
        if job is None:
            return None
        one = _Sync(self, self._storage, self._clock, job)
        return one.do()

    # --- what is kept between passes

    def failed(self, uid: str, count: int) -> None:
        row, _ = self._failures.get(uid, (0, 0.0))
        self._failures[uid] = (row + count, self._clock.now())

    def succeeded(self, uid: str) -> None:
        self._failures.pop(uid, None)

    def delay(self, uid: str) -> float:
        """Seconds until pods of a Job may be created again."""
        row, at = self._failures.get(uid, (0, 0.0))
        if not row:
            return 0.0
        wait = min(self.first_delay * 2.0 ** min(row - 1, 10), _LONGEST_DELAY)
        return max(0.0, at + wait - self._clock.now())

    def count(self, pod: Obj) -> bool:
        """Whether a pod that has ended is not counted yet; now it is."""
        uid = pod["metadata"]["uid"]
        if uid in self._counted:
            return False
        self._counted.add(uid)
        return True

    def age(self, uid: str, *, ended: bool = False) -> float:
        """Seconds since the first question."""
        place = self._ended if ended else self._started
        return self._clock.now() - place.setdefault(uid, self._clock.now())

    def restart(self, uid: str) -> None:
        self._started.pop(uid, None)


class _Sync:
    """One pass over a Job."""

    def __init__(self, controller: JobController, storage: Storage, clock: Clock, job: Obj) -> None:
        self._controller, self._storage = controller, storage
        self.old, self.job = job, copy.deepcopy(job)
        self.spec: Obj = self.job["spec"]
        self.status: Obj = self.job.setdefault("status", {})
        self.uid = str(job["metadata"]["uid"])
        self.indexed = self.spec["completionMode"] == "Indexed"
        self.pods = [
            pod for pod in storage.dependents(self.uid, "pods") if controller_uid(pod) == self.uid
        ]
        self._events: list[tuple[str, str, str]] = []
        self._after: float | None = None
        self._now = clock.now()

    def do(self) -> float | None:
        if "deletionTimestamp" in self.job["metadata"]:
            for pod in self.pods:
                if _is_over(pod) or "nodeName" not in pod["spec"]:
                    untrack(self._storage, pod)
            return None
        if has_condition(self.job, "Complete") or has_condition(self.job, "Failed"):
            self._count_pods()
            self._write()
            return self._expire()
        if not self.spec.get("suspend") and "startTime" not in self.status:
            self.status["startTime"] = timestamp()
        self._count_pods()
        self._decide()
        self._count_states()
        self._write()
        return self._after

    def _wait(self, seconds: float) -> None:
        self._after = seconds if self._after is None else min(self._after, seconds)

    # --- pods that have ended

    def _count_pods(self) -> None:
        failures = 0
        for pod in self.pods:
            if not self._is_ended(pod):
                continue
            if self._controller.count(pod):
                if pod["status"]["phase"] == "Succeeded":
                    self._succeeded(pod)
                elif not (self.spec.get("suspend") and "deletionTimestamp" in pod["metadata"]):
                    failures += 1
                    self._failed(pod)
            untrack(self._storage, pod)
        if failures:
            self._controller.failed(self.uid, failures)

    def _is_ended(self, pod: Obj) -> bool:
        """Whether a pod counts: also one that is being deleted before it has a node."""
        if _is_over(pod):
            return True
        if "deletionTimestamp" not in pod["metadata"]:
            return False
        if "nodeName" not in pod["spec"]:
            return True
        return bool(self.spec["podReplacementPolicy"] != "Failed")

    def _succeeded(self, pod: Obj) -> None:
        self._controller.succeeded(self.uid)
        if not self.indexed:
            self.status["succeeded"] = self.status.get("succeeded", 0) + 1
            return
        done = {*read_indexes(self.status.get("completedIndexes", "")), _index(pod)}
        self.status["completedIndexes"] = write_indexes(done)
        self.status["succeeded"] = len(done)

    def _failed(self, pod: Obj) -> None:
        found = self._rule(pod)
        if found.action == "FailJob":
            self._target("FailureTarget", _POD_POLICY, found.message)
        if found.action == "Ignore":
            return
        self.status["failed"] = self.status.get("failed", 0) + 1
        if "backoffLimitPerIndex" in self.spec:
            index = _index(pod)
            most = self.spec["backoffLimitPerIndex"]
            earlier = int(annotations_of(pod).get(f"{PREFIX}/job-index-failure-count", "0"))
            if found.action == "FailIndex" or earlier + 1 > most:
                failed = {*read_indexes(self.status.get("failedIndexes", "")), index}
                self.status["failedIndexes"] = write_indexes(failed)
        elif self._failures() > self.spec["backoffLimit"]:
            self._target("FailureTarget", "BackoffLimitExceeded", LIMIT)

    def _failures(self) -> int:
        """As they count for `backoffLimit`: pods, and restarts of containers."""
        restarts = sum(
            container.get("restartCount", 0)
            for pod in self.pods
            if pod["spec"]["restartPolicy"] == "OnFailure" and not _is_over(pod)
            for container in pod.get("status", {}).get("containerStatuses", ())
        )
        return int(self.status.get("failed", 0) + restarts)

    def _rule(self, pod: Obj) -> Failure:
        """What the first rule of `podFailurePolicy` that matches says."""
        if "phase" in pod["status"] and not _is_over(pod):
            return Failure("Count")
        where = "/".join(key_of(pod))
        rules = (self.spec.get("podFailurePolicy") or {}).get("rules", ())
        for number, rule in enumerate(rules):
            ending = f"matching {rule['action']} rule at index {number}"
            for wanted in rule.get("onPodConditions") or ():
                if condition(pod, wanted["type"]).get("status") == wanted.get("status", "True"):
                    text = f"Pod {where} has condition {wanted['type']} {ending}"
                    return Failure(rule["action"], text)
            if codes := rule.get("onExitCodes"):
                for name, code in _exit_codes(pod):
                    if codes.get("containerName", name) != name:
                        continue
                    if (code in codes["values"]) == (codes["operator"] == "In") and code != 0:
                        text = f"Container {name} for pod {where} failed with exit code {code} "
                        return Failure(rule["action"], text + ending)
        return Failure("Count")

    # --- what follows

    def _target(self, kind: str, reason: str, message: str) -> None:
        if not has_condition(self.job, "FailureTarget"):
            set_condition(self.job, kind, True, reason, message)

    def _decide(self) -> None:
        completions = self.spec.get("completions")
        restarts = self._failures()
        if "backoffLimitPerIndex" not in self.spec and restarts > self.spec["backoffLimit"]:
            self._target("FailureTarget", "BackoffLimitExceeded", LIMIT)
        deadline = self.spec.get("activeDeadlineSeconds")
        if deadline is not None and not self.spec.get("suspend"):
            left = deadline - self._controller.age(self.uid)
            if left <= 0:
                self._target("FailureTarget", "DeadlineExceeded", DEADLINE)
            else:
                self._wait(left)
        self._check_indexes(completions)
        target = condition(self.job, "FailureTarget")
        if target:
            if self._end_pods():
                self._finish("Failed", target["reason"], target["message"])
            return
        if self._is_complete(completions):
            reason = "CompletionsReached"
            set_condition(
                self.job,
                "SuccessCriteriaMet",
                True,
                reason,
                "Reached expected number of succeeded pods",
            )
            if self._end_pods():
                self.status["completionTime"] = timestamp()
                self._finish("Complete", reason, "Reached expected number of succeeded pods")
            return
        if self.spec.get("suspend"):
            self._suspend()
            return
        if condition(self.job, "Suspended"):
            text = "Job resumed"
            if set_condition(self.job, "Suspended", False, "JobResumed", text):
                self._events.append(("Normal", "Resumed", text))
        self._manage(completions)

    def _check_indexes(self, completions: int | None) -> None:
        if "backoffLimitPerIndex" not in self.spec or completions is None:
            return
        failed = read_indexes(self.status.get("failedIndexes", ""))
        most = self.spec.get("maxFailedIndexes")
        if most is not None and len(failed) > most:
            self._target("FailureTarget", "MaxFailedIndexesExceeded", MAX_FAILED_INDEXES)
        elif failed and len(failed) + self.status.get("succeeded", 0) >= completions:
            self._target("FailureTarget", "FailedIndexes", FAILED_INDEXES)

    def _is_complete(self, completions: int | None) -> bool:
        done = int(self.status.get("succeeded", 0))
        if completions is None:
            return done > 0 and not self._alive()
        return done >= completions

    def _alive(self) -> list[Obj]:
        return [pod for pod in self.pods if not _is_over(pod)]

    def _end_pods(self) -> bool:
        """Delete pods that run. Returns whether none is left."""
        for pod in self._alive():
            if "deletionTimestamp" not in pod["metadata"]:
                self._delete(pod)
        self._reload()
        return not self._alive()

    def _delete(self, pod: Obj) -> None:
        try:
            self._storage.delete("pods", *key_of(pod), uid=pod["metadata"]["uid"])
        except ApiError:
            return  # it is gone
        self._events.append(
            ("Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        )
        now = self._storage.find("pods", *key_of(pod))
        if now is not None and "nodeName" not in now["spec"]:
            untrack(self._storage, now)

    def _reload(self) -> None:
        self.pods = [
            pod
            for pod in self._storage.dependents(self.uid, "pods")
            if controller_uid(pod) == self.uid
        ]

    def _finish(self, kind: str, reason: str, message: str) -> None:
        set_condition(self.job, kind, True, reason, message)
        if kind == "Failed":
            self._events.append(("Warning", reason, message))
        else:
            self._events.append(("Normal", "Completed", "Job completed"))
        if "ttlSecondsAfterFinished" in self.spec:
            self._wait(float(self.spec["ttlSecondsAfterFinished"]))
            self._controller.age(self.uid, ended=True)

    def _expire(self) -> float | None:
        seconds = self.spec.get("ttlSecondsAfterFinished")
        if seconds is None:
            return None
        left = float(seconds) - self._controller.age(self.uid, ended=True)
        if left > 0:
            return left
        self._storage.delete("jobs", *key_of(self.job), propagation="Foreground")
        return None

    def _suspend(self) -> None:
        self._end_pods()
        self._controller.restart(self.uid)
        self.status.pop("startTime", None)
        text = "Job suspended"
        if set_condition(self.job, "Suspended", True, "JobSuspended", text):
            self._events.append(("Normal", "Suspended", text))

    # --- pods

    def _manage(self, completions: int | None) -> None:
        parallelism = self.spec["parallelism"]
        alive = self._alive()
        active = [pod for pod in alive if "deletionTimestamp" not in pod["metadata"]]
        counted = alive if self.spec["podReplacementPolicy"] == "Failed" else active
        wanted = parallelism
        if completions is not None:
            wanted = min(parallelism, completions - self.status.get("succeeded", 0))
        if len(active) > wanted:
            for pod in sorted(active, key=lambda one: -_index(one) if self.indexed else 0)[
                : len(active) - wanted
            ]:
                self._delete(pod)
            self._reload()
            return
        missing = wanted - len(counted)
        if missing <= 0:
            return
        if (delay := self._controller.delay(self.uid)) > 0:
            self._wait(delay)
            return
        taken = {_index(pod) for pod in counted} if self.indexed else set()
        for index in self._free(completions, taken, missing):
            self._create(index)
        self._reload()

    def _free(self, completions: int | None, taken: set[int], missing: int) -> Iterator[int | None]:
        if not self.indexed:
            yield from [None] * missing
            return
        over = {
            *read_indexes(self.status.get("completedIndexes", "")),
            *read_indexes(self.status.get("failedIndexes", "")),
            *taken,
        }
        free = (number for number in range(completions or 0) if number not in over)
        for _, number in zip(range(missing), free, strict=False):
            yield number

    def _create(self, index: int | None) -> None:
        pod = self._pod(index)
        try:
            made = self._storage.create("pods", pod)
        except ApiError as error:
            text = f"Error creating: {error}"
            self._write()
            self._storage.event(self.job, "Warning", "FailedCreate", text, "job-controller")
            raise
        text = f"Created pod: {made['metadata']['name']}"
        self._events.append(("Normal", "SuccessfulCreate", text))

    def _pod(self, index: int | None) -> Obj:
        template = copy.deepcopy(self.spec["template"])
        meta, spec = template.get("metadata") or {}, template["spec"]
        name = self.job["metadata"]["name"]
        made: Obj = {
            "generateName": f"{name}-",
            "namespace": self.job["metadata"]["namespace"],
            "labels": dict(meta.get("labels") or {}),
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [owner_reference(self.job)],
            "finalizers": [TRACKING],
        }
        if index is not None:
            made["generateName"] = f"{name}-{index}-"
            made["labels"][POD_INDEX] = made["annotations"][POD_INDEX] = str(index)
            if "backoffLimitPerIndex" in self.spec:
                count = self._index_failures(index)
                made["annotations"][f"{PREFIX}/job-index-failure-count"] = str(count)
            spec.setdefault("hostname", f"{name}-{index}")
            field = {"fieldPath": f"metadata.labels['{POD_INDEX}']"}
            variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}}
            for container in [*spec["containers"], *spec.get("initContainers", ())]:
                env = container.setdefault("env", [])
                if not any(one["name"] == variable["name"] for one in env):
                    env.append(variable)
        return {"metadata": made, "spec": spec}

    def _index_failures(self, index: int) -> int:
        mine = [pod for pod in self.pods if _index(pod) == index and _is_over(pod)]
        counts = (annotations_of(pod).get(f"{PREFIX}/job-index-failure-count", "0") for pod in mine)
        return max((int(text) + 1 for text in counts), default=0)

    # --- the status

    def _count_states(self) -> None:
        alive = self._alive()
        active = [pod for pod in alive if "deletionTimestamp" not in pod["metadata"]]
        self.status["active"] = len(active)
        self.status["ready"] = sum(has_condition(pod, "Ready") for pod in active)
        self.status["terminating"] = len(alive) - len(active)

    def _write(self) -> None:
        if self.status != self.old.get("status"):

            def change(obj: Obj) -> None:
                obj["status"] = copy.deepcopy(self.status)

            self.old = self._storage.update("jobs", *key_of(self.job), change, subresource="*")
        for kind, reason, message in self._events:
            self._storage.event(self.job, kind, reason, message, "job-controller")
        self._events.clear()


def untrack(storage: Storage, pod: Obj) -> None:
    """Let a pod go, as far as its Job is concerned."""
    if TRACKING not in pod["metadata"].get("finalizers", ()):
        return

    def change(obj: Obj) -> None:
        kept = [one for one in obj["metadata"]["finalizers"] if one != TRACKING]
        obj["metadata"]["finalizers"] = kept

    try:
        storage.update("pods", *key_of(pod), change, subresource="*")
    except ApiError:
        pass  # it is gone


def annotations_of(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _is_over(pod: Obj) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _index(pod: Obj) -> int:
    return int(labels_of(pod).get(POD_INDEX, -1))


def _exit_codes(pod: Obj) -> Iterator[tuple[str, int]]:
    status = pod["status"]
    for one in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]:
        ended = one.get("state", {}).get("terminated")
        if ended is not None:
            yield one["name"], ended["exitCode"]


def read_indexes(text: str) -> list[int]:
    """`0,2-4` as numbers."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def write_indexes(numbers: Iterable[int]) -> str:
    """Numbers as `0,2-4`; two in a row are no range, as Kubernetes writes them with a comma."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(_range(part) for part in parts)


def _range(part: Sequence[int]) -> str:
    if len(part) > 2:
        return f"{part[0]}-{part[-1]}"
    return ",".join(map(str, part))
