"""The code of a Job as it is now, where the Job's own was read: it may have been edited since."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.api.prepared import PreparedJob
from muster.errors import MusterError
from muster.service.context import Context
from muster.service.stored_spec import spec_of
from muster.store.records import JobRecord, RunRecord

if TYPE_CHECKING:
    from muster.api.submissions import PresentCode
    from muster.spec.models import JobSpec


def has_changed(context: Context, job: JobRecord, run: RunRecord) -> bool:
    """Whether a file or folder with the Job's code has other content than the Job. False if it
    cannot be read, and for code from a repository. run: of the Job; it knows the place."""
    from muster.spec.sources import entrypoint_of
    from muster.storage.script_modules import digest_of_code

    spec = _spec_to_prepare(context, job, run)
    if spec.artifact is None or spec.git is not None or not context.submission.has_files:
        return False
    try:
        found = digest_of_code(context.home, Path(spec.artifact), entrypoint_of(spec))
    except (MusterError, OSError):
        return False
    return found != job.artifact_sha256


def with_present_code(
    context: Context, job: JobRecord, run: RunRecord, sent: PresentCode | None
) -> PreparedJob:
    """The version of the Job with this code; the Job itself if its code is the same, or is not
    stored. To be recorded or discarded as by `jobs.prepare`. sent: what a client on another machine
    has read and uploaded. Raises InvalidInput."""
    from muster.service.jobs import discard, prepare

    spec = spec_of(context.home, job)
    if spec.artifact is None and spec.git is None:
        return PreparedJob(job, spec, new=False)
    if sent is None:
        prepared = prepare(context, _spec_to_prepare(context, job, run))
    else:
        git = None if spec.git is None else replace(spec.git, commit=sent.commit)
        place = _place(context, run)
        found = replace(spec, artifact=place, git=git, entrypoint=sent.entrypoint)
        prepared = prepare(context, found, code=sent.code)
    if prepared.record.artifact_sha256 != job.artifact_sha256:
        return prepared
    if prepared.new:  # the Job was edited, which does not change what its file means
        discard(context, prepared.record)
    return PreparedJob(job, spec, new=False)


def name_of_code(context: Context, job: JobRecord, run: RunRecord) -> str:
    """What the code is called in messages."""
    spec, place = spec_of(context.home, job), _place(context, run)
    if spec.git is not None:
        return spec.git.url
    return os.path.basename(os.path.abspath(place)) if place else "its program"


def _spec_to_prepare(context: Context, job: JobRecord, run: RunRecord) -> JobSpec:
    """The Job's spec, before its code was read."""
    from muster.storage.sources import before_reading

    return before_reading(spec_of(context.home, job), _place(context, run))


def _place(context: Context, run: RunRecord) -> str | None:
    """Where the code was read."""
    return spec_of(context.home, run).artifact
