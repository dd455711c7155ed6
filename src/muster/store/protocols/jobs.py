"""Jobs and their event logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster.store.records import JobEventRecord, JobRecord


class Jobs(Protocol):
    """See the module."""

    def insert(self, job: JobRecord) -> JobRecord:
        """Add a Job under the next version of its name. Returns the stored Job: another process may
        have added the same content, or edited this Job, before. Raises InvalidInput if the Job is
        deleted, NotFound if the one with its id is of another project."""
        ...

    def by_content(self, project: str, content_hash: str) -> JobRecord | None:
        """The newest Job with this content that is not deleted; None if there is none."""
        ...

    def find(self, project: str, text: str) -> JobRecord:
        """A Job by id, name (the newest version that is not deleted, if there is one),
        `name@version`, display name, id prefix of at least 4 characters, or OCID that ends in the
        id.

        Raises NotFound, or InvalidInput if several Jobs match.
        """
        ...

    def listing(
        self,
        project: str,
        *,
        deleted: bool = False,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[JobRecord]:
        """Jobs, newest first. deleted: include deleted ones. tags: required tags; None matches any
        value. limit: only the first ones. before: only Jobs older than the one with this id.

        A corrupt record gives a placeholder, so that it does not hide the others.
        """
        ...

    def update(
        self, before: JobRecord, job: JobRecord, *, by: str, changes: Mapping[str, Any]
    ) -> None:
        """Store the changes of a Job, and log who made them. Raises InvalidInput if the Job was
        changed or deleted since `before` was read, NotFound if it does not exist."""
        ...

    def delete(self, job_id: str, *, by: str, now: float) -> bool:
        """Mark a Job as deleted, so that no further run of it starts. False if it is deleted
        already. Raises InvalidInput if it has runs that have not ended, or schedules, NotFound."""
        ...

    def delete_unused(self, job_id: str) -> None:
        """Remove a Job and its event log unless it has runs or schedules."""
        ...

    def check_ended(self, job_ids: Sequence[str]) -> None:
        """Raises InvalidInput with every run of these Jobs that has not ended, and every schedule
        of them."""
        ...

    def artifact_in_use(self, sha256: str) -> bool:
        """Whether a Job of any project that is not deleted uses this artifact."""
        ...

    def has_artifact(self, project: str, sha256: str) -> bool:
        """Whether a Job of a project that is not deleted uses this artifact."""
        ...

    def artifacts_in_use(self) -> set[str]:
        """The artifacts of all Jobs that are not deleted. Runs that have not ended are of such
        Jobs."""
        ...

    def events(self, job_id: str, seq: int = 0) -> list[JobEventRecord]:
        """Entries of the Job's event log after number `seq`, in order."""
        ...
