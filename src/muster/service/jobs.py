"""Jobs: store the code, find or create the Job of this content, edit it, delete it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from muster.api.prepared import PreparedJob
from muster.identity import id_of, new_id
from muster.service.context import Context
from muster.service.readable import may_read
from muster.service.stored_spec import spec_of
from muster.spec.models import JobSpec
from muster.spec.sources import has_sources
from muster.storage.sealing import keyed_digest, seal, unseal
from muster.store.records import JobRecord

if TYPE_CHECKING:
    from muster.storage.artifacts import ArtifactRef
    from muster.storage.home import Home


def prepare(
    context: Context,
    spec: JobSpec,
    *,
    always_new: bool = False,
    code: ArtifactRef | None = None,
) -> PreparedJob:
    """Store the code and find the Job with this content.

    The same content is the same Job; other content under a known name is a new version of the Job.
    The code stays claimed until the Job is recorded or discarded.
    always_new: create a new Job even if one has the same content; it is never found by its content.
    code: the spec's code, if it is stored already.
    """
    job_id = _new_job_id(context)
    try:
        prepared = _prepare(context, spec, job_id, always_new=always_new, code=code)
    except BaseException:
        context.artifact_lock.release(job_id)
        raise
    if not prepared.new:
        context.artifact_lock.release(job_id)
    return prepared


def _new_job_id(context: Context) -> str:
    created_id = context.submission.created_id
    return new_id() if created_id is None else id_of("job", created_id)


def _prepare(
    context: Context, spec: JobSpec, job_id: str, *, always_new: bool, code: ArtifactRef | None
) -> PreparedJob:
    artifact: ArtifactRef | None = None
    if code is not None or spec.artifact is not None or has_sources(spec):
        from muster.storage.artifacts import load_ref
        from muster.storage.sources import store_sources

        context.home.prepare()
        context.artifact_lock.hold(job_id)
        if code is None:
            spec, artifact = store_sources(context.home, spec, context.submission)
        else:
            artifact = load_ref(context.home, code.sha256, code.file_name)
    content = to_builtins(spec)
    sealed = seal(context.home, content)
    name = spec.name or "job"
    sha256 = artifact.sha256 if artifact else None
    key = None if sealed is content else context.home
    digest = job_id if always_new else content_hash(name, content, sha256, key=key)
    oci_job = context.submission.oci_job
    if oci_job:  # what policies say of that job is about its Jobs alone
        digest = id_of(digest, oci_job)
    known = context.store.jobs.by_content(context.project, digest)
    if known is not None and not may_read(context, known):
        # another's, which may have been edited: the caller gets one of its own
        digest = id_of(digest, context.caller.user)
        known = context.store.jobs.by_content(context.project, digest)
    if known is not None:
        return _known(context.home, known, spec, content)
    now = time.time()
    job = JobRecord(
        id=job_id,
        name=name,
        version=0,  # counted by the store
        content_hash=digest,
        spec=sealed,
        artifact_sha256=sha256,
        artifact_name=artifact.file_name if artifact else None,
        description=sealed["description"],
        tags=sealed["tags"],
        created_at=now,
        updated_at=now,
        display_name=spec.display_name,
        created_by=context.caller.user,
        project=context.project,
        oci_job=oci_job,
    )
    return PreparedJob(job, spec, new=True)


def _known(home: Home, job: JobRecord, spec: JobSpec, content: Mapping[str, Any]) -> PreparedJob:
    """A Job that is recorded. Its code may come from another folder now, and it may be edited."""
    job = replace(job, spec={**job.spec, "artifact": seal(home, content["artifact"])})
    stored = unseal(home, job.spec, f"job {job.handle}")
    if msgspec.json.encode(stored) != msgspec.json.encode(content):
        from muster.spec.resolve import spec_from_json

        spec = spec_from_json(stored)
    return PreparedJob(job, spec, new=False)


def copy(context: Context, job: JobRecord) -> JobRecord:
    """A new Job with the content of another, to be recorded or discarded like that of `prepare`."""
    job_id = _new_job_id(context)
    if job.artifact_sha256 is not None:
        context.home.prepare()
        context.artifact_lock.hold(job_id)
    now = time.time()
    return replace(
        job,
        id=job_id,
        version=0,
        content_hash=job_id,
        created_at=now,
        updated_at=now,
        created_by=context.caller.user,
        oci_job="",
    )


def create(context: Context, job: JobRecord) -> JobRecord:
    """Record a prepared Job. Raises InvalidInput if it was deleted meanwhile."""
    created = context.store.jobs.insert(job)
    context.artifact_lock.release(job.id)
    return created


def edit(context: Context, job: JobRecord, changes: Sequence[str]) -> None:
    """Change resources, mounts, display name, description or tags (OCI: UpdateJobDetails).

    changes: `PATH=VALUE`. Runs keep the settings that they started with. Raises InvalidInput;
    Forbidden if a schedule runs it with the rights of the server's own user.
    """
    from muster.service.schedules import check_job
    from muster.spec.edit import differences, edit

    job.check_active()
    for schedule in context.store.schedules.listing(context.project):
        if schedule.job_id == job.id:
            check_job(context, schedule)
    before = spec_of(context.home, job)
    spec = edit(before, changes, context.submission.folder)
    sealed = seal(context.home, to_builtins(spec))
    edited = replace(
        job,  # its content_hash stays: the file that the Job was made from still means this Job
        spec=sealed,
        display_name=spec.display_name,
        description=sealed["description"],
        tags=sealed["tags"],
        updated_at=time.time(),
    )
    logged = {
        path: _sealed_change(context.home, path.rpartition(".")[2], change)
        for path, change in differences(before, spec).items()
    }
    context.store.jobs.update(job, edited, by=context.caller.user, changes=logged)


def _sealed_change(home: Home, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
    """The old and the new value of a setting, whose name may say that they are secret."""
    return {side: seal(home, {name: value})[name] for side, value in change.items()}


def delete(context: Context, job: JobRecord) -> None:
    """Mark a Job deleted, so that it starts no more runs, and delete its code (OCI: DeleteJob).

    Code that another Job has stays; so do the Job's record, its event log and its runs. No effect
    on a deleted Job. Raises InvalidInput if the Job has runs that have not ended.
    """
    if job.artifact_sha256 is not None:
        context.home.prepare()
        context.artifact_lock.hold(job.id)
    try:
        context.store.jobs.delete(job.id, by=context.caller.user, now=time.time())
    finally:
        discard(context, job)


def discard(context: Context, job: JobRecord) -> None:
    """Delete the code of a Job that is deleted, or was prepared and is not recorded.

    Nothing is deleted while another Job has the same code, or while another process has stored code
    that it has not yet recorded: that may be the same.
    """
    with context.artifact_lock.released(job.id) as alone:
        digest = job.artifact_sha256
        if not alone or digest is None or context.store.jobs.artifact_in_use(digest):
            return
        from muster.storage import uploads

        if not uploads.is_recent(context.home, digest):
            from muster.storage.code_trees import remove_artifact

            remove_artifact(context.home, digest)


def content_hash(
    name: str, content: Mapping[str, Any], code: str | None, *, key: Home | None = None
) -> str:
    """What identifies a Job by its content.

    The code counts by its hash, not by its path. Settings at their default do not count, so that a
    setting that is added to Muster changes no hash.
    key: whose key the hash depends on, since the content has secrets: nobody else can find out
    which ones have this hash. None: the content has none.
    """
    from muster.spec.models import NodeGroup

    changed = _without_defaults(content, to_builtins(JobSpec()))
    defaults = to_builtins(NodeGroup(name=""))
    groups = [_without_defaults(group, defaults) for group in content["node_groups"]]
    identity = {**changed, "node_groups": groups, "artifact": code, "name": name}
    text = json.dumps(identity, sort_keys=True)
    # the name in hashes of earlier versions
    text = text.replace('"scratch:incarnation/', '"scratch:life/')
    return keyed_digest(key, text) if key else _digest(text)


def _digest(text: str) -> str:
    """The SHA-256 of a text. `hashlib` loads OpenSSL, which takes 3 ms of each `muster run`: the
    interpreter's own implementation is used where it has one, as by the module `random`."""
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]  # Python 3.11
    except ImportError:
        from hashlib import sha256
    digest: str = sha256(text.encode()).hexdigest()
    return digest


def _without_defaults(content: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    changed = {key: value for key, value in content.items() if value != defaults[key]}
    if "resources" in changed:  # the three that the first version had always count
        changed["resources"] = {
            key: value
            for key, value in changed["resources"].items()
            if value not in (None, False) or key in ("cpus", "memory", "gpus")
        }
    return changed
