"""What is filled in and refused when objects are written: JobSet's webhooks and its CRD's schema,
Kueue's webhook, defaults and rules of Jobs and pods, and quotas of namespaces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from muster.spec.formats.jobset.schema import check_job_structure, check_structure
from support.kube.amounts import requests_of
from support.kube.objects import (
    ApiError,
    Cause,
    Obj,
    Resource,
    invalid,
    key_of,
    labels_of,
)
from support.kube.storage import Storage

QUEUE = "kueue.x-k8s.io/queue-name"
MAX_INT32 = 2**31 - 1
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DENIED = 'admission webhook "vjobset.kb.io" denied the request: '
_REASONS = (
    *("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded"),
    "PodFailurePolicy",
)
#: Fields of a pod template that may change while a JobSet is suspended.
_WHILE_SUSPENDED = ("nodeSelector", "tolerations", "schedulingGates")
_IMMUTABLE = ("replicatedJobs", "network", "successPolicy", "failurePolicy", "startupPolicy")
_FIXED = (*_IMMUTABLE, "managedBy", "volumeClaimPolicies")


class Webhooks:
    """Admission to a cluster."""

    def __init__(self, storage: Storage, *, kueue: bool) -> None:
        self._storage, self._kueue = storage, kueue
        #: What JobSet's webhook answers instead: kubernetes.md has seen "Internal error".
        self.jobset_refusal: ApiError | None = None
        #: The code of the webhook's refusals; before JobSet 0.12 it was 403, without causes.
        self.jobset_code = 422

    def admit(self, resource: Resource, new: Obj, old: Obj | None, subresource: str) -> None:
        """Raises ApiError."""
        if subresource == "status":
            return
        if resource.plural == "jobsets":
            if old is None:
                _default_jobset(new)
                self._queue(new)
            self._check_jobset(resource, new, old)
        elif resource.plural == "jobs":
            self._check_job(resource, new, old)
        elif resource.plural == "pods" and old is None:
            _default_pod(new)
            self._check_quota(new)
        elif resource.plural in ("configmaps", "secrets"):
            _check_size(resource, new)

    def _queue(self, jobset: Obj) -> None:
        """Kueue: what waits in a queue begins suspended."""
        if self._kueue and QUEUE in labels_of(jobset):
            jobset["spec"]["suspend"] = True

    def _check_jobset(self, resource: Resource, new: Obj, old: Obj | None) -> None:
        name = new["metadata"]["name"]
        content = {key: value for key, value in new.items() if key != "status"}
        _, problems = check_structure(content)
        if problems:
            raise invalid(resource, name, [Cause(p.path, p.message) for p in problems])
        if self.jobset_refusal is not None:
            raise self.jobset_refusal
        causes = list(_jobset_causes(new) if old is None else _changes(new, old))
        if not causes:
            return
        if self.jobset_code == 422:
            raise invalid(resource, name, causes, _DENIED)
        listed = [f"{one.field}: {one.message}" for one in causes]
        text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
        raise ApiError(403, "Forbidden", _DENIED + text)

    def _check_job(self, resource: Resource, new: Obj, old: Obj | None) -> None:
        content = {key: value for key, value in new.items() if key != "status"}
        name = new["metadata"]["name"]
        _, problems = check_job_structure(content)
        if problems:
            raise invalid(resource, name, [Cause(p.path, p.message) for p in problems])
        if old is None:
            _default_job(new)
            pod = new["spec"]["template"]["spec"]
            if pod.get("restartPolicy", "Always") not in ("Never", "OnFailure"):
                text = (
                    'Required value: valid values: "OnFailure", "Never"'
                    if "restartPolicy" not in pod
                    else f'Unsupported value: "{pod["restartPolicy"]}": supported values: '
                    '"OnFailure", "Never"'
                )
                cause = Cause("spec.template.spec.restartPolicy", text)
                raise invalid(resource, name, [cause])

    def _check_quota(self, pod: Obj) -> None:
        """Kubernetes: a pod is refused if a quota of its namespace is used up."""
        namespace, name = key_of(pod)
        for quota in self._storage.listed("resourcequotas", namespace):
            hard = quota["spec"].get("hard", {})
            pods = [
                one
                for one in self._storage.listed("pods", namespace)
                if one.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            ]
            used, asked = _counted(pods), _counted([pod])
            over = [key for key in hard if used.get(key, 0) + asked.get(key, 0) > float(hard[key])]
            if over:
                parts = {
                    what: ",".join(f"{key}={values.get(key, 0):g}" for key in over)
                    for what, values in (("requested", asked), ("used", used))
                }
                limited = ",".join(f"{key}={hard[key]}" for key in over)
                text = (
                    f'pods "{name}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, '
                    f"requested: {parts['requested']}, used: {parts['used']}, limited: {limited}"
                )
                raise ApiError(403, "Forbidden", text, {"name": name, "kind": "pods"})


def _counted(pods: list[Obj]) -> dict[str, float]:
    found: dict[str, float] = {"pods": len(pods)}
    for pod in pods:
        for name, value in requests_of(pod).items():
            for key in (f"requests.{name}", name):
                found[key] = found.get(key, 0.0) + value
    return found


def _check_size(resource: Resource, new: Obj) -> None:
    texts = [*(new.get("data") or {}).values(), *(new.get("binaryData") or {}).values()]
    coded = [*((new.get("data") or {}) if resource.plural == "secrets" else {}).values()]
    size = sum(map(len, texts)) if not coded else sum(len(one) * 3 // 4 for one in coded)
    if size > 1 << 20:
        cause = Cause("", "Too long: may not be more than 1048576 bytes", "FieldValueTooLong")
        raise invalid(resource, new["metadata"]["name"], [cause])


# --- defaults


def _default_jobset(jobset: Obj) -> None:
    spec = jobset.setdefault("spec", {})
    spec.setdefault("successPolicy", {}).setdefault("operator", "All")
    spec.setdefault("startupPolicy", {}).setdefault("startupPolicyOrder", "AnyOrder")
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    if policy := spec.get("failurePolicy"):
        policy.setdefault("restartStrategy", "Recreate")
        for number, rule in enumerate(policy.get("rules", ())):
            if not rule.get("name"):
                rule["name"] = f"failurePolicyRule{number}"
    for one in spec.get("replicatedJobs", ()):
        if not isinstance(one, dict):
            continue
        one.setdefault("replicas", 1)
        one.setdefault("groupName", "default")
        try:
            job = one["template"]["spec"]
            job.setdefault("completionMode", "Indexed")
            job["template"]["spec"].setdefault("restartPolicy", "OnFailure")
        except (KeyError, TypeError, AttributeError):
            continue  # the schema says what is wrong


def _default_job(job: Obj) -> None:
    spec = job["spec"]
    if "parallelism" not in spec and "completions" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("backoffLimit", MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("suspend", False)
    policy = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)
    meta = job["metadata"]
    made = {
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "batch.kubernetes.io/job-name": meta["name"],
        "controller-uid": meta["uid"],
        "job-name": meta["name"],
    }
    template = spec["template"].setdefault("metadata", {})
    template["labels"] = {**(template.get("labels") or {}), **made}
    spec.setdefault(
        "selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}
    )


def _default_pod(pod: Obj) -> None:
    spec = pod.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("enableServiceLinks", True)
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(one.get("key") in (key, None) for one in tolerations):
            made = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**made, "tolerationSeconds": 300})
    for one in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        limits = (one.get("resources") or {}).get("limits")
        if limits:
            requests = one["resources"].setdefault("requests", {})
            one["resources"]["requests"] = {**limits, **requests}
    pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _quality(spec: Obj) -> str:
    resources = [one.get("resources") or {} for one in spec.get("containers", ())]
    if not any(resources):
        return "BestEffort"
    equal = all(one.get("limits") and one["limits"] == one.get("requests") for one in resources)
    both = all({"cpu", "memory"} <= one.get("limits", {}).keys() for one in resources)
    return "Guaranteed" if equal and both else "Burstable"


# --- JobSet's rules


def _internal(text: str) -> Cause:
    """As the webhook writes most of its findings."""
    return Cause("<nil>", f"Internal error: {text}", "InternalError")


def _jobset_causes(jobset: Obj) -> Iterator[Cause]:
    spec, name = jobset["spec"], jobset["metadata"]["name"]
    jobs: list[Obj] = spec.get("replicatedJobs", [])
    names = [one.get("name", "") for one in jobs]
    yield from _name_causes(spec, name, jobs)
    for where, path in ((spec.get("successPolicy") or {}, "success policy"),):
        for target in where.get("targetReplicatedJobs", ()):
            if target not in names:
                text = f"invalid replicatedJob name '{target}' in {path} does not appear in"
                yield _internal(f"{text} .spec.ReplicatedJobs")
    yield from _failure_causes(spec.get("failurePolicy") or {}, names)
    yield from _order_causes(spec, jobs, names)
    yield from _coordinator_causes(spec.get("coordinator"), jobs)
    yield from _claim_causes(spec, jobs)


def _name_causes(spec: Obj, name: str, jobs: list[Obj]) -> Iterator[Cause]:
    long = "JobSet name is too long, {} names generated for this JobSet will exceed 63 characters"
    for one in jobs:
        job = one["template"]["spec"]
        parallelism = job.get("parallelism", 1)
        if parallelism * one["replicas"] > MAX_INT32:
            text = f"the product of replicas and parallelism must not exceed {MAX_INT32} for"
            yield _internal(f"{text} replicatedJob '{one['name']}'")
        longest = f"{name}-{one['name']}-{max(one['replicas'] - 1, 0)}"
        if len(longest) > 63:
            yield _internal(long.format("job"))
        elif not _LABEL.fullmatch(longest):
            text = (
                f"a DNS-1035 label must consist of lower case alphanumeric characters or '-', start"
                f" with an alphabetic character, and end with an alphanumeric character: {longest}"
            )
            yield _internal(text)
        elif job.get("completionMode") == "Indexed" and "completions" in job:
            pod = f"{longest}-{max(job['completions'] - 1, 0)}-xxxxx"
            yield from [_internal(long.format("pod"))] if len(pod) > 63 else ()
    subdomain = spec.get("network", {}).get("subdomain")
    if subdomain and (len(subdomain) > 63 or not _LABEL.fullmatch(subdomain)):
        text = ".spec.network.subdomain is too long, must be less than 63 characters"
        yield _internal(text if len(subdomain) > 63 else f"invalid subdomain {subdomain!r}")


def _failure_causes(policy: Obj, names: list[str]) -> Iterator[Cause]:
    seen = set()
    for number, rule in enumerate(policy.get("rules", ())):
        path = f"spec.failurePolicy.rules[{number}]"
        if rule["name"] in seen:
            yield Cause(f"{path}.name", f'Duplicate value: "{rule["name"]}"', "FieldValueDuplicate")
        seen.add(rule["name"])
        for target in rule.get("targetReplicatedJobs", ()):
            if target not in names:
                text = f"invalid replicatedJob name '{target}' in failure policy does not appear in"
                yield _internal(f"{text} .spec.ReplicatedJobs")
        for reason in rule.get("onJobFailureReasons", ()):
            if reason not in _REASONS:
                text = f"invalid job failure reason '{reason}' in failure policy is not a"
                yield _internal(f"{text} recognized job failure reason")


def _order_causes(spec: Obj, jobs: list[Obj], names: list[str]) -> Iterator[Cause]:
    in_order = spec["startupPolicy"]["startupPolicyOrder"] == "InOrder"
    for number, one in enumerate(jobs):
        needed = one.get("dependsOn") or []
        if needed and in_order:
            yield _internal("StartupPolicy: InOrder and DependsOn APIs are mutually exclusive")
        if needed and number == 0:
            yield _internal("DependsOn can't be set for the first ReplicatedJob")
        for other in needed:
            if number and other["name"] not in names[: number + 1]:
                text = f"replicatedJob: {one['name']} cannot depend on replicatedJob: "
                yield _internal(f"{text}{other['name']}")


def _coordinator_causes(coordinator: Any, jobs: list[Obj]) -> Iterator[Cause]:
    if not coordinator:
        return
    wanted = coordinator["replicatedJob"]
    one = next((job for job in jobs if job["name"] == wanted), None)
    if one is None:
        yield _internal(f"coordinator replicatedJob {wanted} does not exist")
        return
    job, index = one["template"]["spec"], coordinator.get("jobIndex", 0)
    if not 0 <= index < one["replicas"]:
        yield _internal(f"coordinator job index {index} is invalid for replicatedJob {wanted}")
    if job.get("completionMode") != "Indexed" or "completions" not in job:
        yield _internal("job for coordinator pod must be indexed completion mode")
    elif not 0 <= coordinator.get("podIndex", 0) < job["completions"]:
        pod = coordinator.get("podIndex", 0)
        text = f"coordinator pod index {pod} is invalid for replicatedJob {wanted} job index"
        yield _internal(f"{text} {index}")


def _claim_causes(spec: Obj, jobs: list[Obj]) -> Iterator[Cause]:
    mounted = {
        mount["name"]
        for one in jobs
        for part in ("containers", "initContainers")
        for container in one["template"]["spec"]["template"]["spec"].get(part, ())
        for mount in container.get("volumeMounts", ())
    }
    for policy in spec.get("volumeClaimPolicies", ()):
        for template in policy.get("templates", ()):
            name = template["metadata"].get("name", "")
            if "namespace" in template["metadata"]:
                yield _internal(f"volumeClaimPolicies template {name} must not have a namespace")
            if name not in mounted:
                yield _internal(f"no container mounts the volume claim template {name}")


def _changes(new: Obj, old: Obj) -> Iterator[Cause]:
    """Changes that are refused."""
    after, before = new["spec"], old["spec"]
    suspended = bool(after.get("suspend") or before.get("suspend"))
    for name in _FIXED:
        has, had = after.get(name), before.get(name)
        if name == "replicatedJobs" and suspended:
            has, had = _masked(has), _masked(had)
        if has != had:
            text = "Invalid value: field is immutable"
            yield Cause(f"spec.{name}", text)


def _masked(jobs: Any) -> list[Obj]:
    """Replicated Jobs without what may change while they are suspended."""
    found = []
    for one in jobs or ():
        job = one["template"]["spec"]
        pod = {k: v for k, v in job["template"]["spec"].items() if k not in _WHILE_SUSPENDED}
        meta = job["template"].get("metadata") or {}
        kept = {k: v for k, v in meta.items() if k not in ("labels", "annotations")}
        made = {**job, "template": {"metadata": kept, "spec": pod}}
        found.append({**one, "template": {**one["template"], "spec": made}})
    return found
