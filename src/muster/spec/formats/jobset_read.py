"""A JobSet manifest as a `JobSpec`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import msgspec
from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode, salvage
from muster.spec.formats.api_check import api_problems
from muster.spec.formats.documents import Document, forgotten
from muster.spec.formats.failures_read import failure_policy
from muster.spec.formats.fields import Sieve
from muster.spec.formats.group_names import renamed, with_groups
from muster.spec.formats.jobset_model import JobSet
from muster.spec.formats.jobset_names import rj_path
from muster.spec.formats.jobset_rules import check_jobset
from muster.spec.formats.metadata import (
    DESCRIPTION,
    annotations_of,
    note_annotations,
    note_labels,
)
from muster.spec.formats.notes import Notes
from muster.spec.formats.pods import node_group
from muster.spec.formats.unsaid import unsaid
from muster.spec.formats.volumes import claims
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.places import Lines, Origin, Origins, at_origin, in_order, placed
from muster.spec.policies import SuccessPolicy
from muster.spec.rules import check

_GRACE = 30.0
#: Where it is said which replicated Jobs there are.
_NAMES = re.compile(r"spec|spec\.replicatedJobs(\[\d+\](\.name)?)?", re.IGNORECASE)

#: Where a field of a group is from, below its replicated Job.
_CONTAINER = "template.spec.template.spec.containers[0]"
_FROM = {
    "name": "name",
    "replicas": "replicas",
    "nodes": "template.spec.completions",
    "depends_on": "dependsOn",
    "retries": "template.spec.backoffLimit",
    "timeout": "template.spec.activeDeadlineSeconds",
    "hostname": "name",
}
_IN_CONTAINER = {
    **{name: name for name in ("command", "args", "env", "resources", "image")},
    "working_dir": "workingDir",
    "node_args": "args",
    "node_env": "env",
    "mounts": "volumeMounts",
    "startup_probe": "startupProbe",
}
_WHOLE = {
    "name": "metadata.name",
    "tags": "metadata.labels",
    "node_groups": "spec.replicatedJobs",
    "success": "spec.successPolicy",
    "failure": "spec.failurePolicy",
    "subdomain": "spec.network.subdomain",
    "attempt_timeout": "spec.activeDeadlineSeconds",
    "ttl_after_finished": "spec.ttlSecondsAfterFinished",
}


class Manifest(Struct, frozen=True):
    """A JobSet as Muster runs it, what should be known about that, and where it stands. unsaid:
    what the job does not say because it makes no difference to a run. origins: where fields of the
    spec stand in the file `source`, of which `lines` are known."""

    spec: JobSpec
    notes: tuple[str, ...]
    place: str
    unsaid: tuple[str, ...] = ()
    source: str = ""
    lines: Lines = msgspec.field(default_factory=dict)
    origins: Origins = msgspec.field(default_factory=dict)


def read_jobset(document: Document) -> Manifest:
    """The job that a manifest describes. Raises InvalidInput with every problem and its line."""
    problems = list(forgotten(document.data))
    notes = Notes()
    data = Sieve(notes, problems).clean(JobSet, document.data)
    jobset = salvage(JobSet, data, problems)
    told = {problem.path for problem in problems}
    problems += [p for p in api_problems(document.data) if not _follows(p.path, told)]
    if jobset is not None:
        told = {problem.path for problem in problems}
        found = check_jobset(jobset, names_known=not any(map(_NAMES.fullmatch, told)))
        before = len(problems)
        groups = [
            node_group(jobset, rj, rj_path(number), claims(jobset), problems, notes)
            for number, rj in enumerate(jobset.spec.replicated_jobs)
        ]
        found += problems[before:]
        problems[before:] = [p for p in found if not _follows(p.path, told)]
        if not problems:
            spec = _job(jobset, groups, notes)
            origins = _origins(spec, jobset)
            problems = list(_still_wrong(spec, origins))
    if jobset is None or problems:
        lines = document.lines
        wrong = [placed(p, document.source, lines) for p in in_order(problems, lines)]
        raise InvalidInput(*dict.fromkeys(wrong))
    names = [rj.name for rj in jobset.spec.replicated_jobs]
    return Manifest(
        spec,
        notes.lines(names),
        document.place,
        unsaid(jobset),
        document.source,
        document.lines,
        origins,
    )


def _follows(path: str, told: Collection[str]) -> bool:
    """Whether something is wrong there already: then what else seems to be may only follow."""
    return any(
        path == other or path.startswith((f"{other}.", f"{other}[")) or other.startswith(f"{path}[")
        for other in told
    )


def _job(jobset: JobSet, groups: list[NodeGroup], notes: Notes) -> JobSpec:
    spec = jobset.spec
    _note_metadata(jobset, notes)
    _note_spec(jobset, notes)
    in_order = spec.startup_policy is not None and (
        spec.startup_policy.startup_policy_order == "InOrder"
    )
    deadline, ttl = spec.active_deadline_seconds, spec.ttl_seconds_after_finished
    made = JobSpec(
        name=jobset.name,
        description=jobset.metadata.annotations.get(DESCRIPTION, ""),
        node_groups=tuple(group for group in groups if group.replicas),
        startup="in_order" if in_order else "parallel",
        success=_success(jobset, notes),
        failure=failure_policy(jobset, notes),
        grace_period=_grace(jobset, notes),
        attempt_timeout=None if deadline is None else float(deadline),
        ttl_after_finished=None if ttl is None else float(ttl),
        suspend=spec.suspend,
        subdomain=jobset.subdomain if spec.network.dns else None,
        namespace=jobset.namespace,
        clean_env=True,
        tags=dict(jobset.metadata.labels),
        annotations=annotations_of(jobset.metadata, DESCRIPTION),
    )
    return with_groups(made, renamed(jobset), notes)


def _success(jobset: JobSet, notes: Notes) -> SuccessPolicy:
    policy = jobset.spec.success_policy
    if policy is None:
        return SuccessPolicy()
    absent = {rj.name for rj in jobset.spec.replicated_jobs if rj.replicas == 0}
    targets = dict.fromkeys(policy.target_replicated_jobs)
    running = tuple(name for name in targets if name not in absent)
    if targets and not running:
        # JobSet: no success is asked for, but it only looks when there is one
        why = "over replicated Jobs with 0 replicas is reached at the first success of any Job"
        notes.add("successPolicy All", why)
        return SuccessPolicy(when="any")
    return SuccessPolicy(when="any" if policy.operator == "Any" else "all", groups=running)


def _grace(jobset: JobSet, notes: Notes) -> float:
    """Muster has one for all."""
    times = {
        rj.template.spec.template.spec.termination_grace_period_seconds
        for rj in jobset.spec.replicated_jobs
        if rj.replicas
    }
    if len(times) > 1:
        why = f"differs, and is {max(times)} for all: Muster has one for the run"
        notes.add("terminationGracePeriodSeconds", why)
    return float(max(times, default=_GRACE))


def _note_metadata(jobset: JobSet, notes: Notes) -> None:
    meta = jobset.metadata
    if not meta.name:
        notes.add("generateName", f"gives no new name each time: the job is called {jobset.name}")
    note_labels(meta, notes)
    note_annotations(meta, notes)
    for rj in jobset.spec.replicated_jobs:
        job, pod = rj.template.metadata, rj.template.spec.template.metadata
        for one in (job, pod):
            note_labels(one, notes, rj.name)
            note_annotations(one, notes, rj.name, pod=one is pod)


def _note_spec(jobset: JobSet, notes: Notes) -> None:
    spec = jobset.spec
    for rj in spec.replicated_jobs:
        if rj.replicas == 0:
            notes.add(f"{rj.name}", "has 0 replicas and is left out; nobody waits for it")
    if spec.network.dns and not spec.network.publish_not_ready:
        notes.add("publishNotReadyAddresses", "is not used: names always resolve")
    policy = spec.failure_policy
    if policy is not None and policy.restart_strategy == "InPlaceRestart":
        if policy.rules:
            why = "decide about every failure; JobSet asks them when a Job as a whole has failed"
            notes.add("the rules of an InPlaceRestart", why)
        agents = any("in-place restart agent" in line for line in notes.lines())
        if not agents:
            why = "needs no agent here; on Kubernetes, nothing would restart without one"
            notes.add("InPlaceRestart", why)


def _origins(spec: JobSpec, jobset: JobSet) -> Origins:
    """Where the job's fields stand in the manifest."""
    paths = dict(_WHOLE)
    running = [number for number, rj in enumerate(jobset.spec.replicated_jobs) if rj.replicas]
    for number, (place, group) in enumerate(zip(running, spec.node_groups, strict=True)):
        own, there = f"node_groups[{number}]", rj_path(place)
        container = f"{there}.{_CONTAINER}"
        paths[own] = there
        paths |= {f"{own}.{name}": f"{there}.{field}" for name, field in _FROM.items()}
        paths |= {f"{own}.{name}": f"{container}.{field}" for name, field in _IN_CONTAINER.items()}
        for fields in ("env", "node_env"):
            names = getattr(group, fields)
            paths |= {f"{own}.{fields}.{name}": f"{container}.env.{name}" for name in names}
    return {name: Origin(path) for name, path in paths.items()}


def _still_wrong(spec: JobSpec, origins: Origins) -> Iterator[Problem]:
    """What Muster's own rules say of the job, in the manifest's words."""
    problems: list[Problem] = []
    again = decode(JobSpec, msgspec.to_builtins(spec), problems)
    for problem in problems if again is None else check(again):
        yield at_origin(problem, origins)
