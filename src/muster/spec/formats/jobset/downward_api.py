"""Resolve the fields and resources that a pod's variables refer to (Kubernetes: the downward API).

JobSet sets each of its facts on pods as a label and as an annotation of the same name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from muster.spec.formats.jobset.job_arrays import GroupJob
from muster.spec.formats.jobset.kubernetes import Container, ResourceFieldRef
from muster.spec.formats.jobset.model import JobSet, ReplicatedJob
from muster.spec.formats.jobset.references import Value
from muster.spec.formats.jobset.rules import coordinator_endpoint
from muster.spec.formats.jobset.single_job import JOB_NAME_KEYS, JOB_UID_KEYS, SingleJob
from muster.spec.formats.quantity import parse_quantity
from muster.spec.placeholders import joined, pieces
from muster.spec.values import is_group_name
from muster.spec.wording import Refused, alternatives, close_to, short

JOBSET = "jobset.sigs.k8s.io/"
INDEX_KEYS = ("batch.kubernetes.io/job-completion-index",)
_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_RESOURCE = re.compile(r"(limits|requests)\.(.+)")
_NUMBERED = "write the number for each replicated Job by hand, or give this one a single replica"

#: Fields whose value does not depend on the replicated Job.
FIELDS: Mapping[str, Value] = {
    "metadata.name": Value("${hostname}", per_node=True),
    "metadata.uid": Value("${run.id}-${rank}", per_node=True),
    "status.podIP": Value("${address}", per_node=True),
    "status.podIPs": Value("${address}", per_node=True),
    "status.hostIP": Value("${address}", per_node=True),
    "status.hostIPs": Value("${address}", per_node=True),
    "spec.nodeName": Value("localhost"),
}


class Pod(Struct, frozen=True):
    """A pod of a replicated Job, as in the manifest."""

    jobset: JobSet
    rj: ReplicatedJob
    #: The number of its Job, if that is read as an array: its index is then the replica's number.
    #: Else the replica is the Job.
    job: int | None = None
    #: Whether the group has the replicated Job's name.
    named: bool = True

    @property
    def index(self) -> Value:
        """Its number in the Job."""
        return Value("${index}" if self.job is None else "${replica}", per_node=True)

    @property
    def job_index(self) -> Value:
        """The Job's number in the replicated Job."""
        return Value("${replica}", per_node=True) if self.job is None else Value(str(self.job))

    @property
    def hostname(self) -> str:
        """Its host name, with placeholders. JobSet: <jobset>-<replicatedjob>-<job>-<index>."""
        return self.jobset.hostname(self.rj.name, self.job_index.text, self.index.text)

    @property
    def namespace(self) -> str:
        return self.jobset.namespace

    def field(self, path: str) -> Value:
        """The value of a `fieldRef`. Raises Refused if pods have no such field."""
        template = self.rj.template.spec.template
        if path == "metadata.name" and self.job is not None:
            return Value(self.hostname, per_node=True)  # nodes have those of the first pods
        if path in FIELDS:
            return FIELDS[path]
        if path == "metadata.namespace":
            return Value(self.namespace)
        if path == "spec.serviceAccountName":
            return Value(template.spec.service_account_name)
        match = _KEY.fullmatch(path)
        if match is None:
            known = [*FIELDS, "metadata.namespace", "spec.serviceAccountName"]
            close = close_to(path, known)
            every = [*known, "metadata.labels['KEY']", "metadata.annotations['KEY']"]
            hint = f'did you mean "{close[0]}"?' if close else f"use {alternatives(every)}"
            raise Refused(f"pods have no field {short(path)}", hint)
        kind, key = match.groups()
        own = template.metadata.labels if kind == "labels" else template.metadata.annotations
        return Value(own[key]) if key in own else self._generated_value(key, kind)

    def all_of(self, kind: str) -> Value:
        """All labels or annotations, as Kubernetes writes them into a file: `KEY="VALUE"` lines.
        kind: `labels` or `annotations`."""
        template = self.rj.template.spec.template.metadata
        own = template.labels if kind == "labels" else template.annotations
        found = {key: Value(text) for key, text in own.items()}
        single = isinstance(self.jobset, SingleJob)
        generated = [*INDEX_KEYS, *(() if single else (JOBSET + fact for fact in _FACTS))]
        if kind == "labels":
            generated += [*JOB_NAME_KEYS, *JOB_UID_KEYS]
        for key in generated:
            with contextlib.suppress(Refused):  # this pod has none
                found.setdefault(key, self._generated_value(key, kind))
        lines = (f"{key}={_quoted(found[key])}" for key in sorted(found))
        return Value("\n".join(lines), per_node=True)

    def _generated_value(self, key: str, kind: str) -> Value:
        """The value of a label or annotation that Kubernetes or JobSet sets."""
        indexed = self.rj.template.spec.completion_mode == "Indexed"
        if key in INDEX_KEYS and not indexed:
            raise Refused("pods of a NonIndexed Job have no index", "make it Indexed")
        if key in INDEX_KEYS:
            return self.index
        single = isinstance(self.jobset, SingleJob)
        if key in JOB_NAME_KEYS:
            text, job = self.jobset.job_name(self.rj.name, self.job_index.text), self.job_index
            return Value(text, per_node=job.per_node and not single)
        if single and key in JOB_UID_KEYS:
            return Value("${run.id}", per_node=True)
        name = key.removeprefix(JOBSET) if key.startswith(JOBSET) and not single else ""
        if name in _FACTS:
            return _FACTS[name](self)
        others = JOB_UID_KEYS if single else tuple(JOBSET + fact for fact in _FACTS)
        close = close_to(key, [*others, *INDEX_KEYS, *JOB_NAME_KEYS], cutoff=0.8)
        hint = f'did you mean "{close[0]}"?' if close else f"add it to the pod template's {kind}"
        raise Refused(f"pods have no {kind.rstrip('s')} {short(key)}", hint)

    @property
    def name(self) -> Value:
        """The name of the replicated Job."""
        if self.named and is_group_name(self.rj.name):
            return Value("${group}", per_node=True)
        return Value(self.rj.name)

    def before(self, *, in_group: bool) -> int:
        """The number of Jobs of earlier replicated Jobs, or of those in the same group."""
        count = 0
        for other in self.jobset.spec.replicated_jobs:
            if other is self.rj:
                break
            if not in_group or other.group_name == self.rj.group_name:
                count += other.replicas
        return count

    def total(self, *, in_group: bool) -> Value:
        """The number of all Jobs, or of those in the same group."""
        return Value(
            str(
                sum(
                    other.replicas
                    for other in self.jobset.spec.replicated_jobs
                    if not in_group or other.group_name == self.rj.group_name
                )
            )
        )

    def number(self, *, in_group: bool) -> Value:
        """The Job's number among them. Raises Refused if no placeholder contains it."""
        first = self.before(in_group=in_group)
        if self.job is not None or self.rj.replicas == 1:
            return Value(str(first + (self.job or 0)))
        if first == 0:
            return Value("${replica}", per_node=True)
        if first == self.before(in_group=False):
            return Value("${run.replica}", per_node=True)
        text = f"job-group-index differs between Jobs here, and starts at {first}"
        raise Refused(f"{text}, which Muster does not support", _NUMBERED)

    def key(self) -> Value:
        """JobSet: the SHA-1 of the Job's namespace and name."""
        if self.rj.replicas > 1 and self.job is None:
            text = "job-key differs between Jobs here, which Muster does not support"
            raise Refused(text, "use metadata.uid, or the label job-name")
        name = f"{self.namespace}/{self.jobset.name}-{self.rj.name}-{self.job or 0}"
        return Value(hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest())

    def coordinator(self) -> Value:
        """The coordinator's address."""
        endpoint = coordinator_endpoint(self.jobset)
        if not endpoint:
            raise Refused("the JobSet has no coordinator", "name one in spec.coordinator")
        return Value(endpoint)


def _quoted(value: Value) -> str:
    """A template of the value in double quotes, as Go writes it (`%q`)."""
    parts = [
        (json.dumps(text, ensure_ascii=False)[1:-1] if name is None else text, name)
        for text, name in pieces(value.template)
    ]
    return f'"{joined(parts)}"'


def pod_of(jobset: JobSet, part: GroupJob) -> Pod:
    """A pod of a group. jobset: as in the manifest."""
    return Pod(jobset, part.source, part.job, part.rj.name == part.source.name)


def _refuse_retries(_: Pod) -> Value:
    text = "job-restart-attempt counts the restarts of one Job, which Muster does not provide"
    raise Refused(text, "use restart-attempt")


_FACTS: Mapping[str, Callable[[Pod], Value]] = {
    "jobset-name": lambda pod: Value(pod.jobset.name),
    "jobset-uid": lambda _: Value("${run.id}", per_node=True),
    "replicatedjob-name": lambda pod: pod.name,
    "replicatedjob-replicas": lambda pod: Value(str(pod.rj.replicas)),
    "job-index": lambda pod: pod.job_index,
    "job-global-index": lambda pod: pod.number(in_group=False),
    "global-replicas": lambda pod: pod.total(in_group=False),
    "group-name": lambda pod: Value(pod.rj.group_name),
    "job-group-index": lambda pod: pod.number(in_group=True),
    "group-replicas": lambda pod: pod.total(in_group=True),
    "job-key": lambda pod: pod.key(),
    "restart-attempt": lambda _: Value("${run.restarts}", per_node=True),
    "job-restart-attempt": _refuse_retries,
    "coordinator": lambda pod: pod.coordinator(),
}


def resource_field(ref: ResourceFieldRef, containers: Mapping[str, Container], own: str) -> Value:
    """The value of a `resourceFieldRef`, in whole divisors rounded up. Raises Refused."""
    container = containers.get(ref.container_name or own)
    if container is None:
        text = f"container {short(ref.container_name)} not found"
        raise Refused(text, f"use {alternatives(containers)}")
    match = _RESOURCE.fullmatch(ref.resource)
    if match is None:
        text = f"{short(ref.resource)} is not a resource"
        raise Refused(text, "write limits.cpu, limits.memory, requests.cpu or requests.memory")
    kind, name = match.groups()
    limits = container.resources.limits
    given = limits if kind == "limits" else {**limits, **container.resources.requests}
    if name not in given:
        text = f"container {container.name} has no {name}"
        raise Refused(f"{text}, so the value is the whole machine's", f"add it to resources.{kind}")
    divisor = parse_quantity(ref.divisor) or 1
    return Value(str(math.ceil(parse_quantity(given[name]) / divisor)))
