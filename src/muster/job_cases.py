"""The use cases of Jobs: find, create, edit, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from muster import versions
from muster.store import job_events, jobs
from muster.store.records import JobEventRecord, JobRecord

if TYPE_CHECKING:
    from muster.spec.models import JobSpec
    from muster.storage.claims import Claims
    from muster.storage.home import Home
    from muster.store.database import Database


class JobCases:
    """What `service.Service` does with Jobs."""

    home: Home
    _claims: Claims

    @property
    def db(self) -> Database:
        """The store."""
        raise NotImplementedError

    def job(self, text: str) -> JobRecord:
        """The Job called `text` (name, name@version, display name, id or id prefix). Raises
        NotFound, InvalidInput."""
        return jobs.find(self.db, text)

    def jobs(
        self, *, deleted: bool = False, tags: Mapping[str, str | None] | None = None
    ) -> list[JobRecord]:
        """Jobs, newest first; see `store.jobs.listing`."""
        return jobs.listing(self.db, deleted=deleted, tags=tags)

    def job_events(self, job_id: str, after: int = 0) -> list[JobEventRecord]:
        """The Job's event log after entry number `after`."""
        return job_events.since(self.db, job_id, after)

    def draft_job(self, spec: JobSpec, *, own: bool = False) -> tuple[JobRecord, bool]:
        """See `versions.draft_job`."""
        return versions.draft_job(self.home, self.db, self._claims, spec, own=own)

    def draft_copy(self, job: JobRecord) -> JobRecord:
        """See `versions.draft_copy`. Raises InvalidInput if the Job is deleted."""
        jobs.check_active(job)
        return versions.draft_copy(self.home, self._claims, job)

    def create_job(self, job: JobRecord) -> JobRecord:
        """See `versions.create_job`."""
        return versions.create_job(self.db, self._claims, job)

    def discard(self, job: JobRecord) -> None:
        """See `versions.discard`."""
        versions.discard(self.home, self.db, self._claims, job)

    def forget_job(self, job_id: str) -> None:
        """Remove a Job and its event log unless it has runs."""
        jobs.delete_unused(self.db, job_id)

    def edit_job(self, text: str, changes: Sequence[str]) -> JobRecord:
        """See `versions.edit_job`."""
        job = self.job(text)
        versions.edit_job(self.db, job, changes)
        return self.job(job.id)

    def check_deletable(self, found: Sequence[JobRecord]) -> None:
        """Raises InvalidInput with every run of these Jobs that has not ended."""
        jobs.check_ended(self.db, [job.id for job in found])

    def delete_job(self, job_id: str) -> JobRecord:
        """See `versions.delete_job`."""
        versions.delete_job(self.home, self.db, self._claims, self.job(job_id))
        return self.job(job_id)
