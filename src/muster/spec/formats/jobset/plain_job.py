"""The fields of a Job's manifest (`batch/v1`), and the JobSet of one Job that it is read as.

A Job is read by the rules for the Jobs of JobSets.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from muster.spec.formats.jobset.kubernetes import Job, JobTemplate, ObjectMeta, PodSpec, PodTemplate
from muster.spec.formats.jobset.model import JobSetSpec, Network, ReplicatedJob
from muster.spec.formats.jobset.single_job import JOB_NAME_KEYS, JOB_UID_KEYS, SingleJob
from muster.spec.models import DEFAULT_GROUP


class PlainPodSpec(PodSpec, frozen=True, kw_only=True, rename="camel"):
    """The pods of a Job."""

    #: With a headless service of this name, pods have names below it.
    subdomain: str = ""
    #: Kubernetes: required; `schema` has reported it if it is missing.
    restart_policy: str = "Never"


class PlainPodTemplate(PodTemplate, frozen=True, kw_only=True):
    """The template of a Job's pods."""

    spec: PlainPodSpec = PlainPodSpec()


class PlainJob(Job, frozen=True, kw_only=True, rename="camel"):
    """A Job that belongs to no JobSet."""

    template: PlainPodTemplate = PlainPodTemplate()
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    ttl_seconds_after_finished: int | None = None
    managed_by: str | None = None


class JobManifest(Struct, frozen=True, kw_only=True):
    """A manifest."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PlainJob = PlainJob()


def as_jobset(manifest: JobManifest) -> SingleJob:
    """The JobSet of a Job."""
    job, template = manifest.spec, manifest.spec.template
    subdomain = template.spec.subdomain
    own = replace(job, template=replace(template, metadata=_without_generated(template.metadata)))
    rj = ReplicatedJob(name=DEFAULT_GROUP, template=JobTemplate(spec=own))
    spec = JobSetSpec(
        replicated_jobs=(rj,),
        network=Network(dns=bool(subdomain), subdomain=subdomain),
        suspend=job.suspend,
        ttl_seconds_after_finished=job.ttl_seconds_after_finished,
        managed_by=job.managed_by,
    )
    return SingleJob(metadata=_without_generated(manifest.metadata), spec=spec)


def _without_generated(metadata: ObjectMeta) -> ObjectMeta:
    """Metadata without the labels that Kubernetes has added to an exported Job and its pods."""
    generated = (*JOB_NAME_KEYS, *JOB_UID_KEYS)
    kept = {key: text for key, text in metadata.labels.items() if key not in generated}
    return replace(metadata, labels=kept)
