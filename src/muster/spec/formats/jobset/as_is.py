"""Read a JobSet that a cluster is to run as it is: as a job whose groups are its replicated Jobs,
and that has the manifest itself (`spec.models.Workload`).

Only what Muster shows of it is read. What else is in it, and whether it is valid, is a matter of
the API server that it is applied to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.spec.formats.documents import Document, unfilled_placeholders
from muster.spec.formats.jobset.metadata import DESCRIPTION
from muster.spec.formats.jobset.model import API_VERSION
from muster.spec.formats.jobset.schema import type_problems
from muster.spec.models import DEFAULT_GROUP, JobSpec, NodeGroup, Workload
from muster.spec.policies import FailurePolicy, FailureRule
from muster.spec.problem_places import in_order, placed
from muster.spec.reader import job_name_from
from muster.spec.values import is_group_name
from muster.spec.wording import say, short

#: kubectl: the annotation of a pod with the container that is meant if none is named.
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
#: The name of the rule by which a node goes on in the pod that its Job makes in place of another.
REPLACED = "its-job-makes-another-pod"
#: Kubernetes: the grace period of a pod that sets none; and what the cluster takes besides, in
#: seconds.
_GRACE, _MARGIN = 30.0, 60.0


class Part(Struct, frozen=True):
    """A replicated Job that has pods."""

    #: Its name, and that of its group in the job.
    name: str
    group: str
    #: How many Jobs it has, and pods in each.
    jobs: int
    pods: int
    #: The container whose output and end are those of the node.
    container: str
    image: str | None
    #: Seconds between SIGTERM and SIGKILL.
    grace: float


def parts(manifest: Mapping[str, Any]) -> list[Part]:
    """The replicated Jobs of a JobSet, in their order. manifest: one that `job_of` has read."""
    found: list[Part] = []
    for number, one in enumerate(manifest["spec"]["replicatedJobs"]):
        jobs = _count(one.get("replicas"), 1)
        job = one["template"]["spec"]
        # Kubernetes: without completions, as many pods as run at once belong to the Job
        pods = _count(job.get("completions"), _count(job.get("parallelism"), 1))
        if jobs < 1 or pods < 1:
            continue
        name = str(one["name"])
        group = name if is_group_name(name) else f"group-{number}"
        found.append(Part(name, group, jobs, pods, *_container(job["template"])))
    return found


def _count(value: Any, default: int) -> int:
    return default if value is None else int(value)


def _container(template: Mapping[str, Any]) -> tuple[str, str | None, float]:
    """The name and the image of the main container of a pod, and its grace period."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    containers = template["spec"]["containers"]
    meant = annotations.get(DEFAULT_CONTAINER)
    one = next((c for c in containers if c["name"] == meant), containers[0])
    grace = template["spec"].get("terminationGracePeriodSeconds")
    return str(one["name"]), one.get("image"), _GRACE if grace is None else float(grace)


def images(manifest: Mapping[str, Any]) -> list[str]:
    """The images of all containers of a JobSet that could be read, and of volumes, each once."""
    found = []
    for one in manifest["spec"]["replicatedJobs"]:
        pod = one["template"]["spec"]["template"]["spec"]
        for kind in ("initContainers", "containers"):
            found += [str(c["image"]) for c in pod.get(kind) or () if c.get("image")]
        volumes = (volume.get("image") or {} for volume in pod.get("volumes") or ())
        found += [str(volume["reference"]) for volume in volumes if volume.get("reference")]
    return list(dict.fromkeys(found))


def read_as_is(document: Document) -> JobSpec:
    """The job of a JobSet in a file. Raises InvalidInput with every problem and its line."""
    problems = list(unfilled_placeholders(document.data))
    if not problems:
        try:
            return job_of(document.data)
        except InvalidInput as error:
            problems += error.problems
    ordered = in_order(problems, document.lines)
    raise InvalidInput(*(placed(one, document.source, document.lines) for one in ordered))


def job_of(manifest: Mapping[str, Any], uid: str | None = None) -> JobSpec:
    """The job of a JobSet. uid: see `Workload`. Raises InvalidInput."""
    problems = list(_problems(manifest))
    if problems:
        raise InvalidInput(*problems)
    metadata, found = manifest["metadata"], parts(manifest)
    name = str(metadata.get("name") or str(metadata["generateName"]).rstrip("-"))
    annotations = metadata.get("annotations") or {}
    return JobSpec(
        name=job_name_from(name),
        description=str(annotations.get(DESCRIPTION, "")),
        node_groups=tuple(
            NodeGroup(name=one.group, replicas=one.jobs, nodes=one.pods, image=one.image or name)
            for one in found
        ),
        grace_period=max(one.grace for one in found) + _MARGIN,
        failure=FailurePolicy(
            strategy="recreate",
            # the cluster decides how often: what is reported has happened
            rules=(
                FailureRule(name=REPLACED, action="restart_node", count=False, before_retries=True),
            ),
        ),
        tags={str(key): str(text) for key, text in (metadata.get("labels") or {}).items()},
        workload=Workload(manifest=stripped(manifest), uid=uid),
    )


#: Fields of an object's metadata, and others, that the API server writes.
_OF_SERVER = frozenset(
    {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"}
    | {"managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"}
)
#: kubectl: the annotation with the whole applied file.
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def stripped(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A JobSet without what the API server and kubectl have written: as it was given to them."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k not in _OF_SERVER}
    if "annotations" in metadata:
        kept = {k: v for k, v in (metadata["annotations"] or {}).items() if k != _APPLIED}
        metadata["annotations"] = kept
    return {**{k: v for k, v in manifest.items() if k != "status"}, "metadata": metadata}


def _problems(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    if manifest.get("apiVersion") != API_VERSION:
        text = f"{manifest.get('apiVersion')!r} is not a version Muster reads"
        yield Problem("apiVersion", text, f"write {API_VERSION}")
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not any(
        isinstance(metadata.get(name), str) and metadata[name] for name in ("name", "generateName")
    ):
        yield Problem("metadata.name", "is missing", "give the JobSet a name")
    problems = [*type_problems(manifest), *_metadata_problems(metadata or {})]
    if problems:
        yield from problems
        return
    jobs = (manifest.get("spec") or {}).get("replicatedJobs") or ()
    if problems := [*_job_problems(jobs)]:
        yield from problems
    elif not jobs or not parts(manifest):
        yield Problem("spec.replicatedJobs", "has no pods", "set replicas and completions to 1")


def _metadata_problems(metadata: Any) -> Iterator[Problem]:
    """Of what JobSet's schema leaves open."""
    if not isinstance(metadata, Mapping):
        return  # `_problems` says that it has no name
    for field in ("labels", "annotations"):
        given = metadata.get(field) or {}
        if not isinstance(given, Mapping):
            text = f"must be a mapping, not {say(given)}"
            yield Problem(f"metadata.{field}", text, "write NAME: VALUE")


def _job_problems(jobs: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """What is missing in replicated Jobs for `parts`. jobs: with values of the right types."""
    seen: dict[str, int] = {}
    for number, one in enumerate(jobs):
        path = f"spec.replicatedJobs[{number}]"
        name = one.get("name")
        if not name:
            yield Problem(f"{path}.name", "is missing", "give the replicated Job a name")
        elif name in seen:
            text = f"{short(name)} is also the name of replicatedJobs[{seen[name]}]"
            yield Problem(f"{path}.name", text, "give one of them another name")
        seen.setdefault(str(name), number)
        inner: Any = one
        for key in ("template", "spec", "template", "spec", "containers"):
            path, inner = f"{path}.{key}", inner.get(key)
            if not inner:
                yield Problem(path, "is missing", "see `kubectl explain jobset.spec`")
                break
        else:
            for position, container in enumerate(inner):
                if not container.get("name"):
                    yield Problem(f"{path}[{position}].name", "is missing", "name the container")


# --- what of a job may be changed that has a JobSet

#: Fields of a job that are about the run, and not about what it runs.
_OF_RUNS = frozenset(
    {"name", "display_name", "description", "engine", "tags", "notify", "annotations", "logging"}
    | {"max_runtime", "ttl_after_finished", "keep_attempts", "suspend", "node_groups", "workload"}
)
_CHANGE_IT = "change the manifest; or `muster convert FILE` makes a job of it, which can be changed"


def changed_fields(spec: JobSpec) -> Iterator[Problem]:
    """A problem for each field of a job, or of a run of it, that says something else than its
    JobSet, which is run as it is. spec: as written, or in normal form."""
    if spec.workload is None:
        return
    try:
        own = job_of(spec.workload.manifest, spec.workload.uid)
    except InvalidInput as error:
        yield from (one._replace(path=f"workload.manifest.{one.path}") for one in error.problems)
        return
    for field in set(JobSpec.__struct_fields__) - _OF_RUNS:
        if getattr(spec, field) not in (getattr(own, field), getattr(JobSpec(), field)):
            for path in _changed_in(field, getattr(spec, field), getattr(own, field)):
                yield Problem(path, "has no effect on a JobSet that is run as it is", _CHANGE_IT)
    if spec.suspend and spec.workload.uid is not None:
        yield Problem("suspend", "an adopted JobSet runs already", "leave it out")
    groups = {group.name: group for group in own.node_groups}
    if [*groups] != [group.name for group in spec.node_groups]:
        text = f"must be those of the JobSet: {', '.join(groups)}"
        yield Problem("node_groups", text, _CHANGE_IT)
        return
    empty = NodeGroup(name=DEFAULT_GROUP)
    for number, group in enumerate(spec.node_groups):
        expected = groups[group.name]
        for field in NodeGroup.__struct_fields__:
            sizes = field in ("nodes", "replicas", "name", "image")
            allowed = [getattr(expected, field)] if sizes else []
            allowed += [] if sizes else [getattr(empty, field)]
            if getattr(group, field) not in allowed:
                text = "has no effect on a JobSet that is run as it is"
                for path in _changed_in(field, getattr(group, field), getattr(expected, field)):
                    yield Problem(f"node_groups[{number}].{path}", text, _CHANGE_IT)


def _changed_in(field: str, value: Any, own: Any) -> list[str]:
    """The paths in a field that differ; an option may have set a single one of them."""
    if isinstance(value, Mapping):
        return [f"{field}.{key}" for key in value if value[key] != own.get(key)]
    if isinstance(value, Struct) and type(value) is type(own):
        names = value.__struct_fields__
        return [f"{field}.{n}" for n in names if getattr(value, n) != getattr(own, n)]
    return [field]
