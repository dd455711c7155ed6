"""A Job, as an object."""

from __future__ import annotations

from typing import Any

from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from muster.client.times import time_text
from muster.store.records import JobRecord


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
        """Start a run of it. overrides: fields of `muster.spec.override_models.RunOverrides`."""
        return self._client.start(self._client.draft(self._record, overrides_from(overrides)))

    def runs(self) -> list[JobRun]:
        """Its runs, newest first."""
        return self._client.runs(job=self.id)

    def edit(self, *changes: str) -> Job:
        """Change resources, mounts, description or tags: `edit("resources.cpus=2")`. Runs keep
        what they started with. Returns itself."""
        self._record = self._client.service.edit_job(self.id, changes)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The Job as JSON-ready data; secrets hidden."""
        from muster.secrets import hidden

        record = self._record
        shown: dict[str, Any] = hidden(
            {
                "id": record.id,
                "name": record.name,
                "version": record.version,
                "description": record.description,
                "artifact": record.artifact_name,
                "artifact_sha256": record.artifact_sha256,
                "tags": dict(record.tags),
                "created_at": time_text(record.created_at),
                "updated_at": time_text(record.updated_at),
                "spec": record.spec,
            }
        )
        return shown

    def __repr__(self) -> str:
        return f"<Job {self.name}@{self.version} {self.id}>"
