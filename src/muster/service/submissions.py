"""Prepare and start runs from what was sent by a client on another machine.

Everything is planned from the request, here and now: nothing that a client says of a plan, of a
record or of a path counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec.structs import replace

from muster.api.prepared import PreparedJob, PreparedRun
from muster.api.submissions import (
    JobRequest,
    Preview,
    PreviewRequest,
    RerunSource,
    RetrySource,
    RunRequest,
    SpecSource,
    StartRequest,
)
from muster.errors import Conflict, InvalidInput, NotFound, Problem
from muster.service import jobs
from muster.service.backend import Backend
from muster.service.context import Context
from muster.service.readable import readable_job, readable_run
from muster.service.stored_spec import spec_of
from muster.spec.overrides import Changes, combined, received_overrides
from muster.spec.reader import parse_received
from muster.spec.separation import local_paths
from muster.storage import uploads

if TYPE_CHECKING:
    from muster.api.schedules import ScheduleRequest
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides
    from muster.storage.artifacts import ArtifactRef
    from muster.store.records import JobRecord, RunRecord
    from muster.store.schedule_records import ScheduleRecord

R = TypeVar("R", "RunRecord", "ScheduleRecord")
#: Checks that the caller may create the Job that a request records. Raises NotPermitted.
CheckJob: TypeAlias = "Callable[[JobRecord], object]"


def preview(context: Context, request: PreviewRequest, check_job: CheckJob) -> Preview:
    """A run as it would start now, and what else is asked of it. Nothing is recorded. Raises
    InvalidInput."""
    from muster.api.prepared import FrameworkCheck
    from muster.service import planning
    from muster.service.framework_check import check_framework
    from muster.service.prepare import packed_files

    home = context.home
    prepared = _prepared(context, request.run, check_job)
    try:
        plan, framework = prepared.plan, None
        if request.framework:
            known = planning.has_our_files(home, plan)
            framework = check_framework(plan, context.submission) if known else FrameworkCheck()
        return Preview(
            prepared,
            planning.limits_of(home, plan) if request.limits else None,
            framework,
            tuple(planning.dry_run(home, plan)) if request.dry_run else (),
            tuple(packed_files(home, prepared)) if request.files else (),
        )
    finally:
        context.artifact_lock.release(prepared.job.id)


def start(context: Context, request: StartRequest, check_job: CheckJob) -> RunRecord:
    """Start a run; nothing new if the same request has started it before (`Submission.run_id`).
    Raises InvalidInput, EngineError; Conflict if that was another request."""
    from muster.service.start import start, start_function

    if (known := _of_earlier_request(context, context.store.runs.get)) is not None:
        return known
    prepared = _prepared(context, request.run, check_job)
    try:
        if request.arguments is not None:
            return start_function(context, prepared, request.arguments)
        return start(context, prepared, queue=request.queue)
    finally:
        context.artifact_lock.release(prepared.job.id)


def create_job(context: Context, source: JobRequest) -> JobRecord:
    """Record a Job, if there is none with this content. Raises InvalidInput."""
    prepared = prepare_job(context, source)
    try:
        return jobs.create(context, prepared.record) if prepared.new else prepared.record
    finally:
        context.artifact_lock.release(prepared.record.id)


def prepare_job(context: Context, source: JobRequest) -> PreparedJob:
    """The Job of a source. The claim on its code is to be released. Raises InvalidInput."""
    if isinstance(source, SpecSource):
        spec = parse_received(source.spec).require_valid()
        _check_sent(context, spec, source)
        return jobs.prepare(context, spec, always_new=source.new, code=source.code)
    job = readable_job(context, source.job)
    job.check_active()
    spec = spec_of(context.home, job)
    return PreparedJob(jobs.copy(context, job) if source.copy else job, spec, new=source.copy)


def create_schedule(
    context: Context, request: ScheduleRequest, check_job: CheckJob
) -> ScheduleRecord:
    """Record a schedule; nothing new if the same request has created it before. Raises
    InvalidInput; Conflict if that was another request."""
    from muster.service.schedules import create

    if (known := _of_earlier_request(context, context.store.schedules.get)) is not None:
        return known
    prepared = _prepared(context, request.run, check_job)
    try:
        return create(
            *(context, request.name, request.timing, prepared, request.run.environ),
            trigger=request.trigger,
        )
    finally:
        context.artifact_lock.release(prepared.job.id)


def _of_earlier_request(context: Context, get: Callable[[str], R]) -> R | None:
    """What an earlier request with the same idempotency key has created; None if there was none.
    get: finds it by its id. Raises Conflict if it is another caller's."""
    if context.submission.created_id is None:
        return None
    try:
        found = get(context.submission.created_id)
    except NotFound:
        return None
    if found.project != context.project or found.created_by != context.caller.user:
        raise Conflict("another request has this idempotency key")
    return found


def _prepared(context: Context, request: RunRequest, check_job: CheckJob) -> PreparedRun:
    overrides = received_overrides(request.overrides)
    source = request.source
    if isinstance(source, (RetrySource, RerunSource)):
        again = _again(context, source, overrides, request.notes)
        _check(context, again.job, check_job, new=again.new_job)
        return again
    prepared = prepare_job(context, source)
    _check(context, prepared.record, check_job, new=prepared.new)
    try:
        return _of_job(context, prepared, overrides, request)
    except BaseException:
        context.artifact_lock.release(prepared.record.id)
        raise


def _check(context: Context, job: JobRecord, check_job: CheckJob, *, new: bool) -> None:
    """Raises NotPermitted if a Job is new and the caller may not create it; its code is no longer
    held then."""
    if not new:
        return
    try:
        check_job(job)
    except BaseException:
        context.artifact_lock.release(job.id)
        raise


def _of_job(
    context: Context, prepared: PreparedJob, overrides: RunOverrides, request: RunRequest
) -> PreparedRun:
    from muster.service.prepare import prepare_run

    return prepare_run(
        *(context, prepared.record, overrides),
        spec=prepared.spec,
        new_job=prepared.new,
        notes=request.notes,
    )


def _again(
    context: Context,
    source: RetrySource | RerunSource,
    overrides: RunOverrides,
    notes: Sequence[str],
) -> PreparedRun:
    from muster.service.rerun import prepare_rerun
    from muster.service.retry import prepare_retry

    run = readable_run(context, source.run)
    code = source.present_code
    if code is not None:
        _check_code(context, code.code, "present_code.code.sha256")
    if isinstance(source, RetrySource):
        if source.retry.update_code and code is None:
            text, hint = "the code is on another machine", "upload it, and name it in present_code"
            raise InvalidInput(Problem("retry.update_code", text, hint))
        return prepare_retry(context, run, source.retry, present_code=code, notes=notes)
    changes: Changes = source.changes
    changes = replace(changes, overrides=combined(changes.overrides, overrides))
    return prepare_rerun(
        *(context, run, changes), update_code=code is not None, present_code=code, notes=notes
    )


def has_code(backend: Backend, project: str, sha256: str) -> bool:
    """Whether a project can use stored code: it has uploaded it, or has a Job with it."""
    if uploads.has(backend.home, project, sha256):
        return True
    return backend.store.jobs.has_artifact(project, sha256)


def _check_sent(context: Context, spec: JobSpec, source: SpecSource) -> None:
    """Raises InvalidInput for code that is not here, or not the project's, and for paths: those of
    the client mean nothing here, and what is at them here is not the client's to read."""
    if source.code is None and (spec.artifact is not None or spec.git is not None):
        path = "git" if spec.artifact is None else "artifact"
        hint = "upload it first, and name it in `code`; `muster run` does both"
        raise InvalidInput(Problem(path, "the code is not on the server", hint))
    if source.code is not None:
        _check_code(context, source.code, "code.sha256")
    if problems := local_paths(replace(spec, artifact=None, git=None)):
        raise InvalidInput(*problems)


def _check_code(context: Context, code: ArtifactRef, path: str) -> None:
    if not has_code(context.backend, context.project, code.sha256):
        text = f"no code with the digest {code.sha256} was uploaded to this project"
        raise InvalidInput(Problem(path, text, "upload it first"))
