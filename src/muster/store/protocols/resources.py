"""What the OCI API shows: jobs, job runs, projects, log groups and so on, by kind and id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from muster.store.resource_records import ResourceFilter, ResourceRecord


class Resources(Protocol):
    """See the module."""

    def insert(self, resource: ResourceRecord) -> bool:
        """Add a resource. False if there is one of this kind with this id."""
        ...

    def get(self, kind: str, resource_id: str) -> ResourceRecord:
        """The resource of this kind with this id. Raises NotFound, CorruptRecord."""
        ...

    def some(self, kind: str, ids: Collection[str]) -> dict[str, ResourceRecord]:
        """The resources of this kind that have one of these ids, by their ids. Raises
        CorruptRecord."""
        ...

    def listing(self, chosen: ResourceFilter) -> list[ResourceRecord]:
        """Resources of a project and kind, in the order of the filter, then of their ids."""
        ...

    def update(self, before: ResourceRecord, after: ResourceRecord) -> ResourceRecord:
        """Change the project, name, state, run or data. Raises Conflict if it was changed since
        `before` was read, NotFound."""
        ...

    def delete(self, kind: str, resource_id: str) -> bool:
        """Delete a resource. False if there is none."""
        ...

    def in_state(
        self, kind: str, state: str, created_by_then: float | None = None
    ) -> list[ResourceRecord]:
        """Resources of a kind in all projects that have a state of their own, which is not that of
        a run, the oldest first. created_by_then: only those (epoch seconds)."""
        ...

    def forget_deleted(self, until: float) -> int:
        """Delete resources whose state is DELETED and that were changed last by this time (epoch
        seconds). Returns their number."""
        ...
