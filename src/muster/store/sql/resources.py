"""Resources of the OCI API."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from muster.errors import Conflict, NotFound
from muster.store.records import CorruptRecord, decoded, read_record
from muster.store.resource_records import JOB, ResourceFilter, ResourceRecord, RunFacts
from muster.store.sql.database import Connection, Database, Row
from muster.store.sql.reports import report_job_resource
from muster.store.times import micros, seconds

_COLUMNS = tuple(name for name in ResourceRecord.__struct_fields__ if name != "run")
_RUN = RunFacts.__struct_fields__
#: OCI: JobRun.lifecycleState has no state of its own for these.
_STATE = (
    "CASE WHEN runs.id IS NULL THEN resources.state "
    "WHEN runs.state = 'QUEUED' THEN 'ACCEPTED' "
    "WHEN runs.state = 'SUSPENDED' THEN 'NEEDS_ATTENTION' "
    "ELSE runs.state END"
)
_QUERY = "SELECT {}, {}, {} AS state FROM resources LEFT JOIN runs ON runs.id = run_id".format(
    ", ".join(f"resources.{name}" for name in _COLUMNS if name != "state"),
    ", ".join(f"runs.{name} AS run_{name}" for name in _RUN),
    _STATE,
)
#: Resources that one query reads by their ids.
_AT_ONCE = 500
_HINT = "delete it, and create it again"


class SqlResources:
    """See `store.protocols.resources.Resources`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def insert(self, resource: ResourceRecord) -> bool:
        """See `Resources.insert`."""
        sql = (
            f"INSERT INTO resources ({', '.join(_COLUMNS)}) "
            f"VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT DO NOTHING RETURNING 1"
        )
        values = [*_values(resource).values()]

        def step(connection: Connection) -> bool:
            new = connection.execute(sql, values).fetchone() is not None
            if new and resource.kind == JOB:
                report_job_resource(connection, resource, "created")
            return new

        def done(connection: Connection) -> bool:
            found = "SELECT 1 FROM resources WHERE kind = ? AND id = ? AND created_at = ?"
            given = (resource.kind, resource.id, micros(resource.created_at))
            return connection.execute(found, given).fetchone() is not None

        return self._db.write(step, durable=True, done=done)

    def get(self, kind: str, resource_id: str) -> ResourceRecord:
        """See `Resources.get`."""
        rows = self._db.read(
            f"{_QUERY} WHERE resources.kind = ? AND resources.id = ?", (kind, resource_id)
        )
        if not rows:
            raise NotFound(f"no {kind} with the id {resource_id!r}")
        return _resource(rows[0])

    def some(self, kind: str, ids: Collection[str]) -> dict[str, ResourceRecord]:
        """See `Resources.some`."""
        found: dict[str, ResourceRecord] = {}
        left = [*ids]
        while left:
            part, left = left[:_AT_ONCE], left[_AT_ONCE:]
            marks = ", ".join("?" * len(part))
            sql = f"{_QUERY} WHERE resources.kind = ? AND resources.id IN ({marks})"
            rows = self._db.read(sql, [kind, *part])
            found |= {one.id: one for one in map(_resource, rows)}
        return found

    def listing(self, chosen: ResourceFilter) -> list[ResourceRecord]:
        """See `Resources.listing`."""
        conditions, values = ["resources.kind = ?"], list[Any]((chosen.kind,))
        for name in ("project", "id", "parent", "name", "created_by"):
            if (given := getattr(chosen, name)) is not None:
                conditions.append(f"resources.{name} = ?")
                values.append(given)
        if chosen.states is not None:
            marks = ", ".join("?" * len(chosen.states))
            conditions.append(f"{_STATE} IN ({marks})" if marks else "1 = 0")
            values += chosen.states
        if chosen.after is not None:
            last, last_id = chosen.after
            sign = "<" if chosen.descending else ">"
            conditions.append(f"(resources.{chosen.sort}, resources.id) {sign} (?, ?)")
            values += [micros(last) if isinstance(last, float) else last, last_id]
        order = "DESC" if chosen.descending else "ASC"
        sql = (
            f"{_QUERY} WHERE {' AND '.join(conditions)} "
            f"ORDER BY resources.{chosen.sort} {order}, resources.id {order}"
        )
        if chosen.limit is not None:
            sql += f" LIMIT {int(chosen.limit)}"
        return [_resource(row) for row in self._db.read(sql, values)]

    def update(self, before: ResourceRecord, after: ResourceRecord) -> ResourceRecord:
        """See `Resources.update`."""
        changed = ("project", "name", "state", "updated_at", "data", "run_id", "version")
        given = _values(replace(after, version=before.version + 1))
        sql = (
            f"UPDATE resources SET {', '.join(f'{name} = ?' for name in changed)} "
            "WHERE kind = ? AND id = ? AND version = ? RETURNING 1"
        )
        values = [*(given[name] for name in changed), before.kind, before.id, before.version]

        def step(connection: Connection) -> bool:
            changed = connection.execute(sql, values).fetchone() is not None
            if changed and before.kind == JOB:
                deleted = after.state == "DELETED" != before.state
                report = replace(after, version=before.version + 1)
                report_job_resource(connection, report, "deleted" if deleted else "updated")
            return changed

        if not self._db.write(step, durable=True):
            self.get(before.kind, before.id)  # raises NotFound
            raise Conflict(f"{before.kind} {before.id} was changed by another request meanwhile")
        return self.get(before.kind, before.id)

    def delete(self, kind: str, resource_id: str) -> bool:
        """See `Resources.delete`."""
        sql = "DELETE FROM resources WHERE kind = ? AND id = ? RETURNING 1"

        def step(connection: Connection) -> bool:
            return bool(connection.execute(sql, (kind, resource_id)).fetchall())

        return self._db.write(step, durable=True)

    def in_state(
        self, kind: str, state: str, created_by_then: float | None = None
    ) -> list[ResourceRecord]:
        """See `Resources.in_state`."""
        sql = f"{_QUERY} WHERE resources.kind = ? AND resources.state = ? AND runs.id IS NULL"
        values: list[Any] = [kind, state]
        if created_by_then is not None:
            sql, values = f"{sql} AND resources.created_at <= ?", [*values, micros(created_by_then)]
        sql += " ORDER BY resources.created_at, resources.id"
        return [_resource(row) for row in self._db.read(sql, values)]

    def forget_deleted(self, until: float) -> int:
        """See `Resources.forget_deleted`."""
        sql = (
            "DELETE FROM resources WHERE updated_at <= ? AND state = 'DELETED' "
            "AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = run_id) RETURNING 1"
        )

        def step(connection: Connection) -> int:
            return len(connection.execute(sql, (micros(until),)).fetchall())

        return self._db.write(step)


def _values(resource: ResourceRecord) -> dict[str, Any]:
    """Column -> its value."""
    given = {name: getattr(resource, name) for name in _COLUMNS}
    given["data"] = json.dumps(to_builtins(resource.data))
    for name in ("created_at", "updated_at"):
        given[name] = micros(given[name])
    return given


def _resource(row: Row) -> ResourceRecord:
    data: dict[str, Any] = dict(row)
    what = f"the record of {data['kind']} {data['id']}"
    run = {name: data.pop(f"run_{name}") for name in _RUN}
    for name in ("started_at", "finished_at"):
        run[name] = seconds(run[name])
    for name in ("created_at", "updated_at"):
        data[name] = seconds(data[name])
    try:
        data["data"] = decoded(data["data"])
    except ValueError as error:
        raise CorruptRecord(f"{what} is corrupt: {error}; {_HINT}") from None
    return read_record(
        ResourceRecord, {**data, "run": None if run["state"] is None else run}, what, _HINT
    )
