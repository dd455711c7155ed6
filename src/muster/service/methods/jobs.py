"""Jobs, and the code that is uploaded for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.permissions import Permission
from muster.service import resources
from muster.service.caller_checks import CallerChecks
from muster.service.readable import readable_job
from muster.service.required_permissions import job_of, of_one, requires

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from muster.api.prepared import PreparedJob
    from muster.api.submissions import JobRequest
    from muster.spec.models import JobSpec
    from muster.storage.artifacts import ArtifactRef
    from muster.store.records import JobEventRecord, JobRecord


class JobMethods(CallerChecks):
    """See `MusterAPI`."""

    @of_one(job_of, Permission.JOB_READ, "see jobs")
    def job(self, text: str) -> JobRecord:
        self.recover()
        return self.store.jobs.find(self._caller.project, text)

    @requires(Permission.JOB_INSPECT, "see jobs", some=True)
    def jobs(
        self,
        *,
        deleted: bool = False,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[JobRecord]:
        self.recover()
        project = self._caller.project

        def page(last: JobRecord | None) -> list[JobRecord]:
            first = before if last is None else last.id
            return self.store.jobs.listing(
                project, deleted=deleted, tags=tags, limit=limit, before=first
            )

        return self._visible(Permission.JOB_INSPECT, resources.of_jobs, page, limit)

    @of_one(job_of, Permission.JOB_READ, "see jobs")
    def job_events(self, job_id: str, after: int = 0) -> list[JobEventRecord]:
        return self.store.jobs.events(self._own_job(job_id).id, after)

    @of_one(job_of, Permission.JOB_READ, "see jobs")
    def job_spec(self, job_id: str) -> JobSpec:
        from muster.service.stored_spec import spec_of

        # it has the job's secrets, for runs that start from it
        self._caller.require(Permission.JOB_RUN_CREATE, "start runs")
        return spec_of(self.home, self._own_job(job_id))

    @of_one(job_of, Permission.JOB_READ, "see jobs")
    def code_size(self, job_id: str) -> int | None:
        from muster.storage.artifacts import stored_size

        digest = self._own_job(job_id).artifact_sha256
        return None if digest is None else stored_size(self.home, digest)

    @requires(Permission.JOB_CREATE, "create jobs")
    def prepare_job(self, spec: JobSpec, *, always_new: bool = False) -> PreparedJob:
        from muster.service.jobs import prepare

        self.recover()
        return prepare(self.context, spec, always_new=always_new)

    @requires(Permission.JOB_CREATE, "create jobs")
    def preview_job(self, source: JobRequest) -> PreparedJob:
        """The Job that `submit_job` would create or find. Raises InvalidInput."""
        from muster.service.submissions import prepare_job

        prepared = prepare_job(self.context, source)
        self.context.artifact_lock.release(prepared.record.id)
        return prepared

    @requires(Permission.JOB_CREATE, "create jobs")
    def copy_job(self, job_id: str) -> JobRecord:
        from muster.service.jobs import copy

        job = readable_job(self.context, job_id)
        job.check_active()
        return copy(self.context, job)

    @requires(Permission.JOB_CREATE, "create jobs", action="jobs.create")
    def create_job(self, job: JobRecord) -> JobRecord:
        from muster.service.jobs import create

        self._check_project(job)
        return create(self.context, replace(job, created_by=self._caller.user))

    @requires(Permission.JOB_CREATE, "create jobs", action="jobs.create")
    def submit_job(self, source: JobRequest) -> JobRecord:
        """Create a Job, for a client on another machine. Raises InvalidInput."""
        from muster.service.submissions import create_job

        return create_job(self.context, source)

    @requires(Permission.JOB_CREATE, "create jobs")
    def discard(self, job: JobRecord) -> None:
        from muster.service.jobs import discard

        self._check_project(job)
        discard(self.context, job)

    @of_one(job_of, Permission.JOB_DELETE, "delete jobs", action="jobs.delete")
    def delete_unused_job(self, job_id: str) -> None:
        self.store.jobs.delete_unused(self._own_job(job_id).id)

    @of_one(job_of, Permission.JOB_UPDATE, "edit jobs", action="jobs.edit")
    def edit_job(self, job_id: str, changes: Sequence[str]) -> JobRecord:
        from muster.service.jobs import edit

        job = self._own_job(job_id)
        edit(self.context, job, changes)
        return self._own_job(job.id)

    @requires(Permission.JOB_READ, "see jobs", some=True)
    def check_deletable(self, job_ids: Sequence[str]) -> None:
        self.recover()
        jobs = [readable_job(self.context, job_id) for job_id in job_ids]
        self.store.jobs.check_ended([job.id for job in jobs])

    @of_one(job_of, Permission.JOB_DELETE, "delete jobs", action="jobs.delete")
    def delete_job(self, job_id: str) -> JobRecord:
        from muster.service.jobs import delete

        self.recover()
        job = self._own_job(job_id)
        delete(self.context, job)
        return self._own_job(job.id)

    @requires(Permission.JOB_CREATE, "create jobs")
    def check_may_upload(self) -> None:
        """Raises Forbidden if the caller may not upload code."""

    @requires(Permission.JOB_CREATE, "create jobs", action="code.upload")
    def store_code(
        self, digest: str, file_name: str, kind: Literal["file", "folder"]
    ) -> ArtifactRef:
        """Store what was uploaded as code. See `storage.uploads.finish`. Raises InvalidInput."""
        from muster.storage.uploads import finish

        project, lock = self._caller.project, self._backend.artifact_lock
        return finish(self.home, project, digest, file_name, kind, lock)
