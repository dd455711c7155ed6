"""List the fields of a JobSet that a conversion loses: those that have no effect on a run."""

from __future__ import annotations

from collections.abc import Iterator

from muster.spec.formats.jobset.job_arrays import pods_at_once
from muster.spec.formats.jobset.kubernetes import ObjectMeta
from muster.spec.formats.jobset.model import JobSet, ReplicatedJob
from muster.spec.formats.notes import Notes

_WHY = "is not in a spec, and is lost"
_IN_VARIABLES = f"{_WHY}; the variables that refer to it keep their values"


def lost_fields(jobset: JobSet) -> tuple[str, ...]:
    """One note for each field."""
    notes = Notes()
    if jobset.spec.coordinator is not None:
        notes.add("coordinator", _IN_VARIABLES)
    for policy in jobset.spec.volume_claim_policies:
        for claim in policy.templates:
            for what in (*_metadata(claim.metadata), *_labels(claim.metadata)):
                notes.add(f"{what} of claim {claim.metadata.name}", _WHY)
    for rj in jobset.spec.replicated_jobs:
        for what, why in _replicated_job_fields(rj):
            notes.add(what, why, rj.name)
    return notes.lines([rj.name for rj in jobset.spec.replicated_jobs])


def _replicated_job_fields(rj: ReplicatedJob) -> Iterator[tuple[str, str]]:
    job = rj.template.spec
    if rj.replicas == 0:
        yield f"replicated Job {rj.name}, without replicas,", _WHY
    if rj.group_name != "default":
        yield f"groupName {rj.group_name}", _IN_VARIABLES
    if (job.parallelism or 1) > (job.completions or pods_at_once(job)):
        yield "more parallelism than completions", _WHY
    for what in _metadata(rj.template.metadata):
        yield f"{what} of a Job", _WHY
    for what in _metadata(job.template.metadata):
        yield f"{what} of a pod", _WHY
    for container in job.template.spec.containers[:1]:
        if container.startup_probe is not None and container.readiness_probe is not None:
            yield "readinessProbe", f"{_WHY}: the startupProbe has the same action"


def _metadata(meta: ObjectMeta) -> Iterator[str]:
    if meta.generate_name:
        yield "generateName"
    if meta.namespace:
        yield "namespace"


def _labels(meta: ObjectMeta) -> Iterator[str]:
    """Labels and annotations of a claim. Those of Jobs and pods are kept."""
    yield from (f"label {key}" for key in meta.labels)
    yield from (f"annotation {key}" for key in meta.annotations)
