"""Read a JobSet manifest as a `JobSpec`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode, decode_partial
from muster.spec.formats.documents import Document, Manifest, unfilled_placeholders
from muster.spec.formats.fields import FieldFilter, FieldTables
from muster.spec.formats.jobset.cluster_read import KUBERNETES_ONLY, with_queue
from muster.spec.formats.jobset.cluster_settings import (
    EXCLUSIVE,
    MAX_EXEC_TIME,
    OBJECTS,
    PRIORITY,
    QUEUE,
    TOPOLOGY,
)
from muster.spec.formats.jobset.config_objects import ConfigObjects, templates_of
from muster.spec.formats.jobset.downward_api import pod_of
from muster.spec.formats.jobset.failures_read import failure_policy
from muster.spec.formats.jobset.group_names import renamed, with_groups
from muster.spec.formats.jobset.group_read import node_group
from muster.spec.formats.jobset.host_aliases import host_aliases
from muster.spec.formats.jobset.job_arrays import GroupJob, group_jobs, with_single_jobs
from muster.spec.formats.jobset.lost_fields import lost_fields
from muster.spec.formats.jobset.metadata import (
    DESCRIPTION,
    annotations_of,
    note_annotations,
    note_labels,
)
from muster.spec.formats.jobset.model import JobSet
from muster.spec.formats.jobset.name_rules import rj_path
from muster.spec.formats.jobset.rules import check_jobset
from muster.spec.formats.jobset.schema import check_structure
from muster.spec.formats.jobset.unread_fields import TABLES, in_cluster
from muster.spec.formats.jobset.volumes_read import claims
from muster.spec.formats.notes import Notes
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.policies import SuccessPolicy
from muster.spec.problem_places import Origin, Origins, at_origin, follows, in_order, placed
from muster.spec.rules import check
from muster.spec.wording import Refused

_Model = TypeVar("_Model", bound=msgspec.Struct)
_GRACE = 30.0
#: Paths on which the names of replicated Jobs depend.
_NAMES = re.compile(r"spec|spec\.replicatedJobs(\[\d+\](\.name)?)?", re.IGNORECASE)

#: Field of a group -> its place below the replicated Job.
_CONTAINER = "template.spec.template.spec.containers[0]"
_GROUP_FIELDS = {
    "name": "name",
    "replicas": "replicas",
    "nodes": "template.spec.completions",
    "depends_on": "dependsOn",
    "retries": "template.spec.backoffLimit",
    "timeout": "template.spec.activeDeadlineSeconds",
    "hostname": "name",
    "extra_containers": "template.spec.template.spec.initContainers",
}
#: The same for a group that is a single Job.
_ARRAY_FIELDS = {
    "replicas": "template.spec.completions",
    "parallelism": "template.spec.parallelism",
    "retries": "template.spec.backoffLimitPerIndex",
    "total_retries": "template.spec.backoffLimit",
    "max_failed": "template.spec.maxFailedIndexes",
    "early_success": "template.spec.successPolicy.rules",
}
_CONTAINER_FIELDS = {
    **{name: name for name in ("command", "args", "env", "resources", "image")},
    "working_dir": "workingDir",
    "container": "securityContext",
    "node_args": "args",
    "node_env": "env",
    "mounts": "volumeMounts",
    "startup_probe": "startupProbe",
    "liveness_probe": "livenessProbe",
    "after_start": "lifecycle.postStart",
    "before_stop": "lifecycle.preStop",
}
#: Setting of `kubernetes` of a group -> its place below the pod's spec, or elsewhere.
_POD = "template.spec.template"
_CLUSTER_FIELDS = {
    **{name: f"{_POD}.spec.{field}" for name, field in OBJECTS.items()},
    "image_pull_secrets": f"{_POD}.spec.imagePullSecrets",
    "node_selector": f"{_POD}.spec.nodeSelector",
    "tolerations": f"{_POD}.spec.tolerations",
    "affinity": f"{_POD}.spec.affinity",
    "resources": f"{_CONTAINER}.resources.limits",
    "exclusive": f"template.metadata.annotations.{EXCLUSIVE}",
    **{f"topology.{name}": f"{_POD}.metadata.annotations.{key}" for name, key in TOPOLOGY.items()},
    "pod": _POD,
    "pod.spec.containers[0]": _CONTAINER,
}
_JOB_FIELDS = {
    "name": "metadata.name",
    "kueue.queue": f"metadata.labels.{QUEUE}",
    "kueue.priority": f"metadata.labels.{PRIORITY}",
    "max_runtime": f"metadata.labels.{MAX_EXEC_TIME}",
    "tags": "metadata.labels",
    "node_groups": "spec.replicatedJobs",
    "success": "spec.successPolicy",
    "failure": "spec.failurePolicy",
    "subdomain": "spec.network.subdomain",
    "attempt_timeout": "spec.activeDeadlineSeconds",
    "host_aliases": "spec.replicatedJobs[0].template.spec.template.spec.hostAliases",
    "ttl_after_finished": "spec.ttlSecondsAfterFinished",
}


def read_jobset(document: Document, objects: ConfigObjects | None = None) -> Manifest:
    """The job that a manifest describes. objects: the ConfigMaps and Secrets around it. Raises
    InvalidInput with every problem and its line."""
    notes = Notes()
    tables = in_cluster(TABLES) if objects is not None and objects.in_cluster else TABLES
    jobset, problems = decoded(document, JobSet, tables, check_structure, notes)
    return manifest_of(document, jobset, problems, notes, objects)


def manifest_of(
    document: Document,
    jobset: JobSet,
    problems: list[Problem],
    notes: Notes,
    objects: ConfigObjects | None,
) -> Manifest:
    """The job that a decoded manifest describes. problems, notes: of single fields. Raises
    InvalidInput."""
    broken = {problem.path for problem in problems}
    found = check_jobset(jobset, names_known=not any(map(_NAMES.fullmatch, broken)))
    fields = len(problems)
    objects = ConfigObjects([document.source]) if objects is None else objects
    parts = group_jobs(jobset)
    single = with_single_jobs(jobset, parts)
    parts = [
        replace(part, rj=rj) for part, rj in zip(parts, single.spec.replicated_jobs, strict=True)
    ]
    groups = [
        node_group(jobset, part, rj_path(part.position), claims(jobset), objects, problems, notes)
        for part in parts
    ]
    aliases, secrets = host_aliases(jobset, problems, notes), {}
    try:
        templates = (text for group in groups for text in templates_of(group))
        secrets = objects.secrets(templates, jobset.metadata.namespace)
    except Refused as error:
        problems.append(Problem("spec", error.message, error.hint))
    found += problems[fields:]
    problems[fields:] = [problem for problem in found if not _follows(problem.path, broken)]
    _raise([_in_file(problem, jobset) for problem in problems], document)
    spec = _job(jobset, parts, groups, notes)
    spec = replace(spec, secrets=secrets, host_aliases=aliases)
    origins = _origins(spec, jobset, [part for part in parts if part.rj.replicas])
    _raise(_broken_rules(spec, origins), document)
    if objects.in_cluster:
        notes.drop(KUBERNETES_ONLY)  # the job keeps them for it
    return Manifest(
        spec,
        notes.lines([part.rj.name for part in parts]),
        document.place,
        lost_fields(jobset),
        document.source,
        document.lines,
        origins,
    )


def decoded(
    document: Document,
    model: type[_Model],
    tables: FieldTables,
    structure: Callable[[Any], tuple[Any, list[Problem]]],
    notes: Notes,
) -> tuple[_Model, list[Problem]]:
    """What can be decoded of a manifest, and every problem that concerns single fields. structure:
    a check of `schema`."""
    problems = list(unfilled_placeholders(document.data))
    FieldFilter(tables, notes, problems).apply(model, document.data)
    valid, wrong = structure(document.data)
    _add(problems, wrong)
    wrong = []
    data = FieldFilter(tables, Notes(), []).apply(model, valid)
    made = decode_partial(model, data, wrong)
    _add(problems, wrong)
    return made or model(), problems


def _in_file(problem: Problem, jobset: JobSet) -> Problem:
    """A problem of a JobSet, at its place in the file. Hints name fields, too."""
    path = jobset.path_in_file(problem.path)
    words = (jobset.path_in_file(word) for word in problem.hint.split(" "))
    return problem._replace(path=path, hint=" ".join(words))


def _add(problems: list[Problem], found: Iterable[Problem]) -> None:
    """Add problems except those at a place that has one already, or whose name is misspelled."""
    broken = {path for problem in problems for path in (problem.path, problem.meant) if path}
    problems += [problem for problem in found if not _follows(problem.path, broken)]


def _follows(path: str, broken: Collection[str]) -> bool:
    """Whether a problem at `path` may only be a consequence of one at a broken place."""
    return follows(path, broken) or any(other.startswith(f"{path}[") for other in broken)


def _raise(problems: Collection[Problem], document: Document) -> None:
    """Raise InvalidInput if there are problems, each once, in the order of the file."""
    if problems:
        ordered = in_order(problems, document.lines)
        placed_ones = [placed(p, document.source, document.lines) for p in ordered]
        raise InvalidInput(*dict.fromkeys(placed_ones))


def _job(
    jobset: JobSet, parts: Sequence[GroupJob], groups: list[NodeGroup], notes: Notes
) -> JobSpec:
    spec = jobset.spec
    single = with_single_jobs(jobset, parts)
    pods = {part.rj.name: pod_of(jobset, part) for part in parts}
    _note_metadata(jobset, notes)
    _note_spec(jobset, notes)
    in_order = spec.startup_policy is not None and (
        spec.startup_policy.startup_policy_order == "InOrder"
    )
    deadline, ttl = _deadline(jobset, parts), spec.ttl_seconds_after_finished
    made = JobSpec(
        name=jobset.name,
        description=jobset.metadata.annotations.get(DESCRIPTION, ""),
        node_groups=tuple(group for group in groups if group.replicas),
        startup="in_order" if in_order else "parallel",
        success=_success(single, notes),
        failure=failure_policy(single, pods, notes),
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
    return with_groups(with_queue(made), renamed(single), notes)


def _deadline(jobset: JobSet, parts: Sequence[GroupJob]) -> int | None:
    """The deadline of an attempt: the JobSet's or, if it is a single array, that of its Job."""
    own = jobset.spec.active_deadline_seconds
    of_jobs = [
        part.rj.template.spec.active_deadline_seconds
        for part in parts
        if part.job is not None and part.rj.replicas
    ]
    found = [seconds for seconds in (own, *of_jobs) if seconds is not None]
    return min(found, default=None)


def _success(jobset: JobSet, notes: Notes) -> SuccessPolicy:
    policy = jobset.spec.success_policy
    if policy is None:
        return SuccessPolicy()
    absent = {rj.name for rj in jobset.spec.replicated_jobs if rj.replicas == 0}
    targets = dict.fromkeys(policy.target_replicated_jobs)
    running = tuple(name for name in targets if name not in absent)
    if targets and not running:
        # JobSet: no target is left, but the policy is evaluated when a Job succeeds
        why = "over replicated Jobs with 0 replicas is reached at the first success of any Job"
        notes.add("successPolicy All", why)
        return SuccessPolicy(when="any")
    return SuccessPolicy(when="any" if policy.operator == "Any" else "all", groups=running)


def _grace(jobset: JobSet, notes: Notes) -> float:
    """The longest grace period of all pods: Muster has one for the run."""
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
        notes.add("generateName", f"does not generate names: the job is named {jobset.name}")
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
            notes.add(f"{rj.name}", "has 0 replicas and is left out; nothing waits for it")
    if spec.network.dns and not spec.network.publish_not_ready:
        notes.add("publishNotReadyAddresses", "is not used: names always resolve")
    policy = spec.failure_policy
    if policy is not None and policy.restart_strategy == "InPlaceRestart":
        if policy.rules:
            why = "apply to every failure; JobSet applies them when a whole Job has failed"
            notes.add("the rules of an InPlaceRestart", why)
        agents = any("in-place restart agent" in line for line in notes.lines())
        if not agents:
            why = "needs no agent here; on Kubernetes nothing restarts without one"
            notes.add("InPlaceRestart", why)


def _origins(spec: JobSpec, jobset: JobSet, parts: Sequence[GroupJob]) -> Origins:
    """The place in the manifest of each field of the job. parts: those that have become groups."""
    paths = dict(_JOB_FIELDS)
    for number, (part, group) in enumerate(zip(parts, spec.node_groups, strict=True)):
        own, there = f"node_groups[{number}]", rj_path(part.position)
        container = f"{there}.{_CONTAINER}"
        paths[own] = there
        fields = _GROUP_FIELDS if part.job is None else {**_GROUP_FIELDS, **_ARRAY_FIELDS}
        paths |= {f"{own}.{name}": f"{there}.{field}" for name, field in fields.items()}
        paths |= {
            f"{own}.{name}": f"{container}.{field}" for name, field in _CONTAINER_FIELDS.items()
        }
        paths |= {f"{own}.kubernetes.{n}": f"{there}.{f}" for n, f in _CLUSTER_FIELDS.items()}
        for variables in ("env", "node_env"):
            names = getattr(group, variables)
            paths |= {f"{own}.{variables}.{name}": f"{container}.env.{name}" for name in names}
    return {name: Origin(jobset.path_in_file(path)) for name, path in paths.items()}


def _broken_rules(spec: JobSpec, origins: Origins) -> list[Problem]:
    """Problems that Muster's own rules find in the job, at their places in the manifest."""
    problems: list[Problem] = []
    again = decode(JobSpec, msgspec.to_builtins(spec), problems)
    found = problems if again is None else check(again)
    return [_at_field(problem, origins) for problem in found]


def _at_field(problem: Problem, origins: Origins) -> Problem:
    """A problem at its place in the manifest. Below settings of the cluster, fields have the same
    names there."""
    there = at_origin(problem, origins)
    known = [path for path in origins if ".kubernetes." in path and follows(problem.path, {path})]
    rest = problem.path.removeprefix(max(known, key=len, default=problem.path))
    return there._replace(path=f"{there.path}{rest}") if rest else there
