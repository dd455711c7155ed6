"""A Job, as an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from muster.client.times import time_text
from muster.store.records import JobEventRecord, JobRecord


class Job:
    """A named template. Its code never changes; a new version of it is another Job."""

    def __init__(self, client: Client, record: JobRecord) -> None:
        self._client = client
        self._record = record

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def version(self) -> int:
        """1, 2, ... among the Jobs of this name."""
        return self._record.version

    @property
    def display_name(self) -> str | None:
        """What people call it; other Jobs may be called so, too."""
        return self._record.display_name

    @property
    def state(self) -> str:
        """ACTIVE or DELETED."""
        return self._record.state

    @property
    def created_by(self) -> str:
        """The user who made it; "" where that is not known."""
        return self._record.created_by

    @property
    def tags(self) -> dict[str, str]:
        """Labels; its runs have them, too."""
        return dict(self._record.tags)

    @property
    def artifact_size(self) -> int | None:
        """Bytes of its code as it is stored; None if it has none, or is deleted."""
        from muster.storage.artifacts import stored_path

        digest = self._record.artifact_sha256
        if digest is None:
            return None
        try:
            return stored_path(self._client.service.home, digest).stat().st_size
        except FileNotFoundError:
            return None

    @property
    def spec(self) -> dict[str, Any]:
        """What was asked for, as data. Secrets in `env` are hidden."""
        from muster.secrets import hidden

        shown: dict[str, Any] = hidden(self._record.spec)
        return shown

    @property
    def written(self) -> dict[str, Any]:
        """The same as in a spec file: without what is at its default, times and sizes as people
        write them."""
        from muster.secrets import hidden
        from muster.spec.formats.muster_write import write_spec
        from muster.spec.resolve import spec_from_json

        shown: dict[str, Any] = hidden(write_spec(spec_from_json(self._record.spec)))
        return shown

    def run(self, **overrides: Any) -> JobRun:
        """Start a run of it. overrides: fields of `muster.spec.override_models.RunOverrides`.
        Raises InvalidInput, also if it is deleted."""
        return self._client.start(self._client.draft(self._record, overrides_from(overrides)))

    def runs(self) -> list[JobRun]:
        """Its runs, newest first."""
        return self._client.runs(job=self.id)

    def edit(self, *changes: str) -> Job:
        """Change resources, mounts, display name, description or tags: `edit("resources.cpus=2")`.
        Runs keep what they started with. Returns itself."""
        self._record = self._client.service.edit_job(self.id, changes)
        return self

    def delete(self, *, runs: bool = False) -> Job:
        """Have no further run of it start. It can still be read, and so can its runs; runs: delete
        those. Returns itself. Raises InvalidInput if it has runs that have not ended."""
        self._record = self._client.service.delete_job(self.id)
        if runs:
            for run in self._client.summaries(job=self.id):
                self._client.service.delete(run.id)
        return self

    def events(self, *, after: int = 0) -> list[JobEventRecord]:
        """Who created, edited and deleted it, and when, after entry number `after`; secrets
        hidden."""
        found = self._client.service.job_events(self.id, after)
        return [replace(entry, data=_shown(entry.data)) for entry in found]

    def to_dict(self) -> dict[str, Any]:
        """The Job as JSON-ready data; secrets hidden."""
        from muster.secrets import hidden

        record = self._record
        shown: dict[str, Any] = hidden(
            {
                "id": record.id,
                "name": record.name,
                "version": record.version,
                "display_name": record.display_name,
                "state": record.state,
                "description": record.description,
                "artifact": record.artifact_name,
                "artifact_size": self.artifact_size,
                "artifact_sha256": record.artifact_sha256,
                "tags": dict(record.tags),
                "created_by": record.created_by,
                "created_at": time_text(record.created_at),
                "updated_at": time_text(record.updated_at),
                "spec": record.spec,
            }
        )
        return shown

    def __repr__(self) -> str:
        return f"<Job {self.name}@{self.version} {self.id}>"


def _shown(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of an event; the values of a change are hidden by the name of what has changed."""
    from muster.secrets import hidden, hide

    changes = {
        path: {
            side: hide(path.rpartition(".")[2], value) if isinstance(value, str) else hidden(value)
            for side, value in change.items()
        }
        for path, change in data.get("changes", {}).items()
    }
    return {**hidden(data), "changes": changes} if changes else hidden(data)
