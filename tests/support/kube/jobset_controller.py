"""JobSet's controller, as a model: one pass looks at a JobSet and its Jobs, in JobSet's own order.

Without alpha features, but `RestartJob` actions if the gate is on.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

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
)
from support.kube.storage import Event, Storage

PREFIX = "jobset.sigs.k8s.io"
CONTROLLER = f"{PREFIX}/jobset-controller"
ATTEMPT, JOB_ATTEMPT = f"{PREFIX}/restart-attempt", f"{PREFIX}/job-restart-attempt"
NAME, GROUP, INDEX = (
    f"{PREFIX}/jobset-name",
    f"{PREFIX}/replicatedjob-name",
    f"{PREFIX}/job-index",
)


class Owned(NamedTuple):
    """The Jobs of a JobSet."""

    previous: list[Obj]
    failed: list[Obj]
    successful: list[Obj]
    active: list[Obj]

    @property
    def all(self) -> list[Obj]:
        return [*self.previous, *self.failed, *self.successful, *self.active]


class JobSetController:
    """restart_job: whether the gate `RestartJob` is on."""

    batch = 0.0

    def __init__(self, storage: Storage, clock: Clock, *, restart_job: bool = False) -> None:
        self._storage, self._clock, self._gate = storage, clock, restart_job
        #: uid of a JobSet -> when it ended.
        self._ended: dict[str, float] = {}

    def keys(self, resource: Resource, event: Event) -> Iterable[Key]:
        if resource.plural == "jobsets":
            yield key_of(event.new)
        elif resource.plural in ("jobs", "services"):
            for owner in event.new["metadata"].get("ownerReferences", ()):
                if owner["kind"] == "JobSet":
                    yield key_of(event.new)[0], owner["name"]

    def reconcile(self, key: Key) -> float | None:
        jobset = self._storage.find("jobsets", *key)
        if jobset is None or "deletionTimestamp" in jobset["metadata"]:
            return None
        if jobset["spec"].get("managedBy", CONTROLLER) != CONTROLLER:
            return None
        one = _Pass(self._storage, jobset, gate=self._gate)
        one.do()
        one.write()
        return self._expire(one.jobset) if one.is_over() else None

    def _expire(self, jobset: Obj) -> float | None:
        """Delete a JobSet that has ended, after its time to live."""
        seconds = jobset["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return None
        now = self._clock.now()
        left = self._ended.setdefault(jobset["metadata"]["uid"], now) + float(seconds) - now
        if left > 0:
            return left
        self._storage.delete("jobsets", *key_of(jobset), propagation="Foreground")
        return None


class _Pass:
    def __init__(self, storage: Storage, jobset: Obj, *, gate: bool) -> None:
        self._storage, self._gate = storage, gate
        self.jobset = copy.deepcopy(jobset)
        self.spec: Obj = self.jobset["spec"]
        self.status: Obj = self.jobset.setdefault("status", {})
        self.status.setdefault("restarts", 0)
        self._before = jobset.get("status")
        self._events: list[tuple[str, str, str]] = []
        self.name, self.namespace = jobset["metadata"]["name"], jobset["metadata"]["namespace"]
        self.jobs: list[Obj] = self.spec.get("replicatedJobs", [])
        uid = jobset["metadata"]["uid"]
        owned = [j for j in storage.dependents(uid, "jobs") if controller_uid(j) == uid]
        self.owned = self._classify(owned)

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    def is_over(self) -> bool:
        return has_condition(self.jobset, "Completed") or has_condition(self.jobset, "Failed")

    def _classify(self, owned: list[Obj]) -> Owned:
        found = Owned([], [], [], [])
        for job in owned:
            if int(labels_of(job)[ATTEMPT]) < self.status["restarts"] or self._is_replaced(job):
                found.previous.append(job)
            elif has_condition(job, "Failed"):
                found.failed.append(job)
            elif has_condition(job, "Complete"):
                found.successful.append(job)
            else:
                found.active.append(job)
        return found

    def _is_replaced(self, job: Obj) -> bool:
        """Whether a later Job takes its place (RestartJob)."""
        labels = labels_of(job)
        if not self._gate or JOB_ATTEMPT not in labels:
            return False
        counts = self._row(labels[GROUP]).get("jobRestarts", [])
        index = int(labels[INDEX])
        return index < len(counts) and int(labels[JOB_ATTEMPT]) < counts[index]

    def _row(self, name: str) -> Obj:
        rows = self.status.setdefault("replicatedJobsStatus", [])
        found = next((row for row in rows if row["name"] == name), None)
        if found is None:
            found = {"name": name}
            rows.append(found)
        row: Obj = found
        return row

    # --- one pass

    def do(self) -> None:
        self._count()
        if self.is_over():
            self._delete(self.owned.active)
            return
        self._delete(self.owned.previous)
        rows = self.status["replicatedJobsStatus"]
        ready = sum(row["ready"] + row["succeeded"] for row in rows)
        if not self.suspended and ready == sum(one["replicas"] for one in self.jobs):
            self._restarting(False, "JobsReady", "all jobs are ready")
        if self.owned.failed:
            self._fail()
            return
        if self.owned.successful and self._is_success():
            self._end("Completed", "AllJobsCompleted", "jobset completed successfully", "Normal")
            return
        self._service()
        self._claims()
        in_order = self.spec["startupPolicy"]["startupPolicyOrder"] == "InOrder"
        if self._create() and in_order and not self.suspended:
            self._startup(True)
        if self.suspended:
            self._suspend()
        else:
            self._resume()

    def write(self) -> None:
        if self.status != self._before:

            def change(obj: Obj) -> None:
                obj["status"] = copy.deepcopy(self.status)

            place = ("jobsets", self.namespace, self.name)
            self.jobset = self._storage.update(*place, change, subresource="*")
        for kind, reason, message in self._events:
            self._storage.event(self.jobset, kind, reason, message, "jobset-controller")

    def _count(self) -> None:
        """The counts of Jobs for each replicated Job."""
        for one in self.jobs:
            row = self._row(one["name"])
            row |= dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        for what, jobs in (("succeeded", self.owned.successful), ("failed", self.owned.failed)):
            for job in jobs:
                self._row(labels_of(job)[GROUP])[what] += 1
        for job in self.owned.active:
            row, status, spec = self._row(labels_of(job)[GROUP]), job.get("status", {}), job["spec"]
            pods = min(spec["parallelism"], spec.get("completions", spec["parallelism"]))
            row["active"] += status.get("active", 0) > 0
            row["suspended"] += bool(spec.get("suspend"))
            row["ready"] += status.get("ready", 0) + status.get("succeeded", 0) >= pods
        self.status["replicatedJobsStatus"].sort(key=lambda row: row["name"], reverse=True)

    # --- ends

    def _is_success(self) -> bool:
        policy = self.spec["successPolicy"]
        targets = policy.get("targetReplicatedJobs") or [one["name"] for one in self.jobs]
        count = sum(labels_of(job)[GROUP] in targets for job in self.owned.successful)
        if policy["operator"] == "Any":
            return count >= 1
        wanted = sum(one["replicas"] for one in self.jobs if one["name"] in targets)
        return bool(count >= wanted)

    def _end(self, kind: str, reason: str, message: str, event: str) -> None:
        set_condition(self.jobset, kind, True, reason, message)
        self.status["terminalState"] = kind
        self._events.append((event, reason, message))
        which = "JobSetCompleted" if kind == "Completed" else "JobSetFailed"
        self._restarting(False, which, message)

    def _fail(self) -> None:
        policy = self.spec.get("failurePolicy")
        if policy is None:
            job = _earliest(self.owned.failed)
            self._end(
                "Failed",
                "FailedJobs",
                _with_job("jobset failed due to one or more job failures", job),
                "Warning",
            )
            return
        rule, job = self._match(policy.get("rules", ()))
        action = rule.get("action", "RestartJobSet")
        if action == "FailJobSet":
            text = "jobset failed due to FailJobSet failure policy action"
            self._end("Failed", "FailJobSetFailurePolicyAction", _with_job(text, job), "Warning")
            return
        counts = not action.endswith("IgnoreMaxRestarts")
        if counts and self._used() >= policy.get("maxRestarts", 0):
            text = "jobset failed due to reaching max number of restarts"
            self._end("Failed", "ReachedMaxRestarts", _with_job(text, job), "Warning")
            return
        text = _with_job(f"applying {action} failure policy action", job)
        self._events.append(("Warning", f"{action}FailurePolicyAction", text))
        if action.startswith("RestartJobSet"):
            self.status["restarts"] += 1
            if counts:
                used = self.status.get("restartsCountTowardsMax", 0)
                self.status["restartsCountTowardsMax"] = used + 1
            name = f"FailurePolicy_{rule['name']}" if rule else "DefaultFailurePolicy"
            self._restarting(True, name, text)
        else:
            self._restart_job(job, counts=counts)

    def _used(self) -> int:
        used: int = self.status.get("restartsCountTowardsMax", 0)
        if self._gate:
            rows = self.status["replicatedJobsStatus"]
            used += sum(sum(row.get("jobRestartsCountTowardsMax", ())) for row in rows)
        return used

    def _restart_job(self, job: Obj, *, counts: bool) -> None:
        row, index = self._row(labels_of(job)[GROUP]), int(labels_of(job)[INDEX])
        size = next(one["replicas"] for one in self.jobs if one["name"] == row["name"])
        for name in ("jobRestarts", *(("jobRestartsCountTowardsMax",) if counts else ())):
            row.setdefault(name, [0] * size)[index] += 1

    def _match(self, rules: Iterable[Obj]) -> tuple[Obj, Obj]:
        """The first rule that applies, with its Job; no rule: the Job that failed first."""
        for rule in rules:
            if not self._gate and rule["action"] in (
                "RestartJob",
                "RestartJobAndIgnoreMaxRestarts",
            ):
                continue
            if jobs := [job for job in self.owned.failed if _applies(rule, job)]:
                return rule, _earliest(jobs)
        return {}, _earliest(self.owned.failed)

    def _restarting(self, value: bool, reason: str, message: str) -> None:
        known = condition(self.jobset, "RestartingJobSet")
        if not value and known.get("status") != "True":
            return
        set_condition(self.jobset, "RestartingJobSet", value, reason, message)
        self._events.append(("Warning" if value else "Normal", reason, message))

    # --- what it makes

    def _delete(self, jobs: Iterable[Obj]) -> None:
        for job in jobs:
            if "deletionTimestamp" not in job["metadata"]:
                try:
                    self._storage.delete("jobs", *key_of(job), propagation="Foreground")
                except ApiError:
                    continue  # it is gone

    def _service(self) -> None:
        network = self.spec["network"]
        if not network.get("enableDNSHostnames", True):
            return
        name = network.get("subdomain") or self.name
        if self._storage.find("services", self.namespace, name) is not None:
            return
        meta = {
            "name": name,
            "namespace": self.namespace,
            "labels": {NAME: self.name},
            "ownerReferences": [owner_reference(self.jobset)],
        }
        spec = {
            "clusterIP": "None",
            "selector": {NAME: self.name},
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
        }
        self._storage.create("services", {"metadata": meta, "spec": spec})

    def _claims(self) -> None:
        for policy in self.spec.get("volumeClaimPolicies", ()):
            retained = policy.get("retentionPolicy", {}).get("whenDeleted") == "Retain"
            for template in policy.get("templates", ()):
                name = f"{template['metadata']['name']}-{self.name}"
                if self._storage.find("persistentvolumeclaims", self.namespace, name) is None:
                    meta = {**template["metadata"], "name": name, "namespace": self.namespace}
                    if not retained:
                        meta["ownerReferences"] = [owner_reference(self.jobset)]
                    made = {"metadata": meta, "spec": template.get("spec", {})}
                    self._storage.create("persistentvolumeclaims", made)

    def _create(self) -> bool:
        """Create the Jobs that are missing. Returns whether it has reached the last group."""
        in_order = self.spec["startupPolicy"]["startupPolicyOrder"] == "InOrder"
        policy = self.spec.get("failurePolicy") or {}
        blocked = policy.get("restartStrategy") == "BlockingRecreate" and self.owned.previous
        names = {job["metadata"]["name"] for job in self.owned.all}
        for number, one in enumerate(self.jobs):
            if not self._may_start(one):
                continue
            if in_order and not self.suspended and self._is_started(one):
                continue
            if not blocked:
                for index in range(one["replicas"]):
                    if f"{self.name}-{one['name']}-{index}" not in names:
                        self._create_job(number, one, index)
            if in_order and not self.suspended:
                self._startup(False)
                return False
        return True

    def _may_start(self, one: Obj) -> bool:
        """JobSet: dependsOn."""
        for needed in one.get("dependsOn") or ():
            row = self._row(needed["name"])
            replicas = next(j["replicas"] for j in self.jobs if j["name"] == needed["name"])
            done = row["succeeded"]
            if needed["status"] == "Ready":
                done += row["ready"] + row["failed"]
            if done != replicas:
                return False
        return True

    def _is_started(self, one: Obj) -> bool:
        row = self._row(one["name"])
        return bool(row["ready"] + row["failed"] + row["succeeded"] == one["replicas"])

    def _startup(self, done: bool) -> None:
        made = ("StartupPolicyCompleted", "StartupPolicyInProgress")
        kind, other = made if done else made[::-1]
        reason, text = (
            f"InOrder{kind}",
            "in order startup policy has completed"
            if done
            else ("in order startup policy is in progress"),
        )
        if set_condition(self.jobset, kind, True, reason, text):
            self._events.append(("Normal", reason, text))
        if condition(self.jobset, other):
            set_condition(self.jobset, other, False, reason, text)

    def _create_job(self, number: int, one: Obj, index: int) -> None:
        job = self._job(number, one, index)
        try:
            self._storage.create("jobs", job)
        except ApiError as error:
            text = f"job creation failed with error: {error}"
            self._storage.event(self.jobset, "Warning", "JobCreationFailed", text)
            raise

    def _job(self, number: int, one: Obj, index: int) -> Obj:
        template = copy.deepcopy(one["template"])
        name = f"{self.name}-{one['name']}-{index}"
        marks = self._marks(number, one, index, name)
        meta = template.get("metadata") or {}
        made = {"name": name, "namespace": self.namespace}
        spec = template["spec"]
        spec["suspend"] = self.suspended
        pod = spec["template"]
        inner = pod["metadata"] = pod.get("metadata") or {}
        for part in ("labels", "annotations"):
            made[part] = {**(meta.get(part) or {}), **marks}
            inner[part] = {**(inner.get(part) or {}), **marks}
        if self.spec["network"].get("enableDNSHostnames", True):
            subdomain = self.spec["network"].get("subdomain") or self.name
            pod["spec"].setdefault("subdomain", subdomain)
        self._mount_claims(pod["spec"])
        made["ownerReferences"] = [owner_reference(self.jobset)]
        return {"metadata": made, "spec": spec}

    def _mount_claims(self, pod: Obj) -> None:
        for policy in self.spec.get("volumeClaimPolicies", ()):
            for template in policy.get("templates", ()):
                name = template["metadata"]["name"]
                containers = [*pod.get("containers", ()), *pod.get("initContainers", ())]
                mounts = [m["name"] for c in containers for m in c.get("volumeMounts", ())]
                if name in mounts:
                    claim = {"claimName": f"{name}-{self.name}"}
                    pod.setdefault("volumes", []).append(
                        {"name": name, "persistentVolumeClaim": claim}
                    )

    def _marks(self, number: int, one: Obj, index: int, job: str) -> dict[str, str]:
        """Labels, which are annotations as well."""
        group = one.get("groupName", "default")
        before = [j for j in self.jobs[:number] if j.get("groupName", "default") == group]
        every = [j for j in self.jobs if j.get("groupName", "default") == group]
        made: dict[str, Any] = {
            "jobset-name": self.name,
            "jobset-uid": self.jobset["metadata"]["uid"],
            "replicatedjob-name": one["name"],
            "replicatedjob-replicas": one["replicas"],
            "job-index": index,
            "job-global-index": sum(j["replicas"] for j in self.jobs[:number]) + index,
            "global-replicas": sum(j["replicas"] for j in self.jobs),
            "group-name": group,
            "job-group-index": sum(j["replicas"] for j in before) + index,
            "group-replicas": sum(j["replicas"] for j in every),
            "job-key": hashlib.sha1(f"{self.namespace}/{job}".encode()).hexdigest(),
            "restart-attempt": self.status["restarts"],
        }
        if self._gate:
            counts = self._row(one["name"]).get("jobRestarts", [0] * one["replicas"])
            made["job-restart-attempt"] = counts[index]
        if coordinator := self.spec.get("coordinator"):
            wanted = coordinator["replicatedJob"]
            places = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
            subdomain = self.spec["network"].get("subdomain") or self.name
            made["coordinator"] = f"{self.name}-{wanted}-{places[0]}-{places[1]}.{subdomain}"
        return {f"{PREFIX}/{name}": str(value) for name, value in made.items()}

    # --- suspended

    def _suspend(self) -> None:
        for job in self.owned.active:
            if not job["spec"].get("suspend"):

                def change(obj: Obj) -> None:
                    obj["spec"]["suspend"] = True

                self._storage.update("jobs", *key_of(job), change)
        text = "jobset is suspended"
        if set_condition(self.jobset, "Suspended", True, "SuspendedJobs", text):
            self._events.append(("Normal", "SuspendedJobs", text))
        self._restarting(False, "JobSetSuspended", text)

    def _resume(self) -> None:
        in_order = self.spec["startupPolicy"]["startupPolicyOrder"] == "InOrder"
        for one in self.jobs:
            if not self._may_start(one) or (in_order and self._is_started(one)):
                continue
            mine = [j for j in self.owned.active if labels_of(j)[GROUP] == one["name"]]
            waiting = [job for job in mine if job["spec"].get("suspend")]
            for job in waiting:
                self._resume_job(job, one)
            if in_order:
                return
        if condition(self.jobset, "Suspended").get("status") == "True":
            text = "jobset is resumed"
            set_condition(self.jobset, "Suspended", False, "ResumeJobs", text)
            self._events.append(("Normal", "ResumeJobs", text))

    def _resume_job(self, job: Obj, one: Obj) -> None:
        given = one["template"]["spec"]["template"]

        def change(obj: Obj) -> None:
            template = obj["spec"]["template"]
            meta, wanted = template["metadata"], given.get("metadata") or {}
            for part in ("labels", "annotations"):
                if wanted.get(part):
                    meta[part] = {**(meta.get(part) or {}), **wanted[part]}
            pod = template["spec"]
            if selector := given["spec"].get("nodeSelector"):
                pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), **selector}
            for part in ("tolerations", "schedulingGates"):
                have = pod.get(part) or []
                more = [item for item in given["spec"].get(part) or () if item not in have]
                if more:
                    pod[part] = [*have, *more]
            obj["spec"]["suspend"] = False

        self._storage.update("jobs", *key_of(job), change)


def _earliest(jobs: list[Obj]) -> Obj:
    return min(jobs, key=lambda job: str(condition(job, "Failed").get("lastTransitionTime", "")))


def _with_job(text: str, job: Obj) -> str:
    return f"{text} (first failed job: {job['metadata']['name']})"


def _applies(rule: Obj, job: Obj) -> bool:
    failed = condition(job, "Failed")
    reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
    if reasons and failed.get("reason") not in reasons:
        return False
    patterns = rule.get("onJobFailureMessagePatterns")
    if patterns and not any(_found(patterns, failed.get("message", ""))):
        return False
    return not targets or labels_of(job)[GROUP] in targets


def _found(patterns: Iterable[str], text: str) -> Iterator[bool]:
    for pattern in patterns:
        try:
            yield re.search(pattern, text) is not None
        except re.error:
            continue  # JobSet logs it
