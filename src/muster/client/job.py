"""The Python API of a Job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from muster.client.client import Client, check_array_size, overrides_from
from muster.client.item import Item
from muster.client.run import JobRun
from muster.describe.times import json_ready, minute, moment, rfc3339
from muster.store.records import JobRecord

if TYPE_CHECKING:
    from muster.client.table import Table


class JobEvent(Struct, Item, frozen=True):
    """An entry of a Job's event log; secrets hidden."""

    #: From 1, within the Job.
    seq: int
    #: In UTC.
    time: datetime
    #: `created`, `edited` or `deleted`.
    kind: str
    #: The user; "" if unknown.
    by: str
    #: What belongs to an entry of this kind.
    data: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON-ready data, flat; the time as RFC 3339 text."""
        return {**json_ready(self._head()), **self.data}

    def _facts(self) -> dict[str, Any]:
        return {**self._head(), **self.data}

    def _head(self) -> dict[str, Any]:
        return {"seq": self.seq, "time": self.time, "kind": self.kind, "by": self.by}

    def _cells(self) -> dict[str, str]:
        return {
            "SEQ": f"{self.seq:>3}",
            "TIME": rfc3339(self.time),
            "WHAT": self.kind,
            "BY": self.by or "-",
            "DATA": ", ".join(_changes(self.data)),
        }

    def __str__(self) -> str:
        return f"{rfc3339(self.time)} {self.kind}{f' by {self.by}' if self.by else ''}"


class Job(Item):
    """A named template of runs. Its code never changes; a new version is another Job."""

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
        """A name for people; other Jobs may have the same."""
        return self._record.display_name

    @property
    def state(self) -> str:
        """ACTIVE or DELETED."""
        return self._record.state

    @property
    def created_by(self) -> str:
        """The user who created it; "" if unknown."""
        return self._record.created_by

    @property
    def created_at(self) -> datetime:
        """When it was created, in UTC."""
        return moment(self._record.created_at)

    @property
    def updated_at(self) -> datetime:
        """When it was last edited, in UTC."""
        return moment(self._record.updated_at)

    @property
    def tags(self) -> dict[str, str]:
        """Labels, which its runs have as well; secrets hidden."""
        from muster.secrets import hidden

        shown: dict[str, str] = hidden(dict(self._record.tags))
        return shown

    @property
    def artifact_size(self) -> int | None:
        """Bytes of its stored code; None if it has none, or is deleted."""
        if self._record.artifact_sha256 is None:
            return None
        return self._client.api.code_size(self.id)

    @property
    def spec(self) -> dict[str, Any]:
        """Its spec as plain data; secrets hidden."""
        from muster.secrets import hidden

        shown: dict[str, Any] = hidden(to_builtins(self._record.spec))
        return shown

    @property
    def written(self) -> dict[str, Any]:
        """Its spec as in a spec file: without defaults, with times and sizes as text."""
        from muster.secrets import hidden
        from muster.spec.formats.spec_write import write_spec
        from muster.spec.resolve import spec_from_json

        shown: dict[str, Any] = hidden(write_spec(spec_from_json(hidden(self._record.spec))))
        return shown

    def run(self, *, large_array: bool = False, **overrides: Any) -> JobRun:
        """Start a run. overrides: fields of RunOverrides (docs/reference/spec.md).

        large_array: allow an array of more than 100,000 parameter sets. Raises InvalidInput, also
        if the Job is deleted.
        """
        changes = overrides_from(overrides)
        if not large_array:
            check_array_size(None, changes)
        return self._client.start(self._client.prepare_run(self._record, changes))

    def runs(self) -> Table[JobRun]:
        """Its runs, newest first."""
        return self._client.runs(job=self.id)

    def edit(self, *changes: str) -> Job:
        """Change resources, mounts, display name, description or tags: `edit("resources.cpus=2")`.

        Runs keep the settings that they started with. Returns itself.
        """
        self._record = self._client.api.edit_job(self.id, changes)
        return self

    def delete(self, *, runs: bool = False) -> Job:
        """Mark it deleted, so that it starts no more runs. Returns itself.

        The Job and its runs can still be read; runs: delete the runs. Raises InvalidInput if it has
        runs that have not ended.
        """
        self._record = self._client.api.delete_job(self.id)
        if runs:
            for run in self._client.summaries(job=self.id):
                self._client.api.delete(run.id)
        return self

    def events(self, *, after: int = 0) -> Table[JobEvent]:
        """The event log after entry number `after`: who created, edited and deleted the Job, and
        when. Secrets are hidden."""
        from muster.client.table import Table

        found = self._client.api.job_events(self.id, after)
        return Table(
            JobEvent(entry.seq, moment(entry.time), entry.kind, entry.by, _shown(entry.data))
            for entry in found
        )

    def to_dict(self) -> dict[str, Any]:
        """The Job as JSON-ready data; times as RFC 3339 text, secrets hidden."""
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
                "created_at": rfc3339(self.created_at),
                "updated_at": rfc3339(self.updated_at),
                "spec": record.spec,
            }
        )
        return shown

    def _facts(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "version": self.version,
            "display_name": self.display_name,
            "state": self.state,
            "created_by": self.created_by,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "artifact_size": self.artifact_size,
            "tags": self.tags,
        }

    def _cells(self) -> dict[str, str]:
        return {
            "JOB": self._record.handle,
            "ID": self.id,
            "NAME": self.display_name or "-",
            "STATE": self.state,
            "CREATED": minute(self.created_at),
            "BY": self.created_by or "-",
        }

    def __repr__(self) -> str:
        return f"<Job {self.name}@{self.version} {self.id}>"


def _changes(data: Mapping[str, Any]) -> Iterator[str]:
    for path, change in data.get("changes", {}).items():
        yield f"{path}: {_value(change['from'])} -> {_value(change['to'])}"


def _value(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def _shown(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of an event; the values of a change are hidden by the name of the setting."""
    from muster.secrets import hidden, hide

    changes = {
        path: {
            side: hide(path.rpartition(".")[2], value) if isinstance(value, str) else hidden(value)
            for side, value in change.items()
        }
        for path, change in data.get("changes", {}).items()
    }
    return {**hidden(data), "changes": changes} if changes else hidden(data)
