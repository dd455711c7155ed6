"""Jobs: from a spec to the Job of that content, what may change of one, and its end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from muster.identity import new_id, user_name
from muster.storage.home import Home
from muster.store import jobs
from muster.store.database import Database
from muster.store.records import JobRecord

if TYPE_CHECKING:
    from muster.spec.models import JobSpec
    from muster.storage.artifacts import ArtifactRef
    from muster.storage.claims import Claims


def draft_job(
    home: Home, db: Database, claims: Claims, spec: JobSpec, *, own: bool = False
) -> tuple[JobRecord, bool]:
    """The Job of this content, and whether it is new. Only its artifact is stored yet, and claimed
    until somebody drops the claim or discards the Job.

    Same content, same Job; other content under a known name is a new version of it. own: a Job that
    is new in any case, and that is never taken for another.
    """
    job_id = new_id()
    try:
        job, new = _draft(home, db, claims, spec, job_id, own=own)
    except BaseException:
        claims.drop(job_id)
        raise
    if not new:
        claims.drop(job_id)
    return job, new


def _draft(
    home: Home, db: Database, claims: Claims, spec: JobSpec, job_id: str, *, own: bool
) -> tuple[JobRecord, bool]:
    if spec.artifact is not None or _has_sources(spec):
        home.prepare()
        claims.add(job_id)
    spec, artifact = _gather(home, spec)
    content = to_builtins(spec)
    name = spec.name or "job"
    digest = job_id if own else _digest(name, content, artifact.sha256 if artifact else None)
    known = jobs.by_content(db, digest)
    if known is not None:
        # its code may have come from another folder then
        return replace(known, spec={**known.spec, "artifact": content["artifact"]}), False
    now = time.time()
    job = JobRecord(
        id=job_id,
        name=name,
        version=0,  # the store counts
        content_hash=digest,
        spec=content,
        artifact_sha256=artifact.sha256 if artifact else None,
        artifact_name=artifact.file_name if artifact else None,
        description=spec.description,
        tags=dict(spec.tags),
        created_at=now,
        updated_at=now,
        display_name=spec.display_name,
        created_by=user_name(),
    )
    return job, True


def draft_copy(home: Home, claims: Claims, job: JobRecord) -> JobRecord:
    """A Job with the content of another and an id of its own, to be recorded or discarded like one
    of `draft_job`."""
    made = new_id()
    if job.artifact_sha256 is not None:
        home.prepare()
        claims.add(made)
    now = time.time()
    by = user_name()
    return replace(
        job, id=made, version=0, content_hash=made, created_at=now, updated_at=now, created_by=by
    )


def create_job(db: Database, claims: Claims, job: JobRecord) -> JobRecord:
    """Record a drafted Job. Raises InvalidInput if it was deleted meanwhile."""
    created = jobs.insert(db, job)
    claims.drop(job.id)
    return created


def edit_job(db: Database, job: JobRecord, changes: Sequence[str]) -> None:
    """Change what may change of a Job: resources, mounts, display name, description, tags (OCI:
    UpdateJobDetails). changes: `PATH=VALUE`. Runs keep what they started with."""
    from muster.spec.edit import differences, edit
    from muster.spec.resolve import spec_from_json

    jobs.check_active(job)
    before = spec_from_json(job.spec)
    spec = edit(before, changes)
    edited = replace(
        job,  # with its content_hash: the file that it was made from is still this Job
        spec=to_builtins(spec),
        display_name=spec.display_name,
        description=spec.description,
        tags=dict(spec.tags),
        updated_at=time.time(),
    )
    jobs.update(db, job, edited, by=user_name(), changes=differences(before, spec))


def delete_job(home: Home, db: Database, claims: Claims, job: JobRecord) -> None:
    """Have no further run of a Job start, and forget its code unless another has the same (OCI:
    DeleteJob). Its record, its event log and its runs stay. Nothing if it is deleted already.
    Raises InvalidInput if it has runs that have not ended."""
    if job.artifact_sha256 is not None:
        home.prepare()
        claims.add(job.id)
    try:
        jobs.delete(db, job.id, by=user_name(), now=time.time())
    finally:
        discard(home, db, claims, job)


def discard(home: Home, db: Database, claims: Claims, job: JobRecord) -> None:
    """Forget the code of a Job that came to nothing, or is deleted, unless another Job has it, or
    another process has stored code and not recorded it yet: it may be the same."""
    with claims.alone(job.id) as alone:
        if alone and job.artifact_sha256 is not None and not jobs.use(db, job.artifact_sha256):
            from muster.storage.artifacts import stored_path

            stored_path(home, job.artifact_sha256).unlink(missing_ok=True)


def _digest(name: str, content: Mapping[str, Any], code: str | None) -> str:
    """What makes a Job the same Job. The code counts by its content, not by where it lies; what
    is left at its default does not, so that a setting added later makes no Job another."""
    import hashlib

    from muster.spec.models import JobSpec, NodeGroup

    said = _less(content, to_builtins(JobSpec()))
    blank = to_builtins(NodeGroup(name=""))
    groups = [_less(group, blank) for group in content["node_groups"]]
    identity = {**said, "node_groups": groups, "artifact": code, "name": name}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _less(content: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: value for key, value in content.items() if value != defaults[key]}
    if "resources" in said:  # those of the first version counted whole
        said["resources"] = {
            key: value
            for key, value in said["resources"].items()
            if value not in (None, False) or key in ("cpus", "memory", "gpus")
        }
    return said


def _has_sources(spec: JobSpec) -> bool:
    return spec.git is not None or bool(spec.requirements) or spec.conda is not None


def _gather(home: Home, spec: JobSpec) -> tuple[JobSpec, ArtifactRef | None]:
    """What the Job is made of, stored; and the spec that says so."""
    if spec.artifact is None and not _has_sources(spec):
        return spec, None
    from muster.storage.sources import with_entrypoint

    with with_entrypoint(spec) as chosen:
        return _gather_chosen(home, chosen)


def _gather_chosen(home: Home, spec: JobSpec) -> tuple[JobSpec, ArtifactRef | None]:
    from muster.spec.source_rules import entrypoint_of

    if _has_sources(spec):
        from muster.storage.sources import gather

        return gather(home, spec, os.environ)
    if spec.artifact is None:
        return spec, None
    from muster.storage.neighbours import store_code

    artifact, entrypoint = store_code(home, Path(spec.artifact), entrypoint_of(spec))
    return replace(spec, entrypoint=entrypoint or None), artifact
