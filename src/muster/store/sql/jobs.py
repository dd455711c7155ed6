"""Jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound, Problem
from muster.lifecycle.states import JobState
from muster.store import names
from muster.store.records import (
    CorruptRecord,
    JobEventRecord,
    JobRecord,
    decoded,
    read_entry,
    read_record,
    readable_time,
)
from muster.store.sql.database import LIVE, Connection, Database, Row
from muster.store.sql.numbers import next_number
from muster.store.sql.reports import report_job
from muster.store.sql.search import by_prefix, tag_conditions
from muster.store.times import micros, seconds

# an edited Job may have the content of another one: the newest is used
_BY_CONTENT = (
    "SELECT * FROM jobs WHERE content_hash = ? AND project = ? AND state = 'ACTIVE' "
    "ORDER BY position DESC LIMIT 1"
)
_BY_ID = "SELECT * FROM jobs WHERE id = ?"
# not their specs, which may be large: an array from a file has its rows there, in each version
_NAMES = "SELECT id, name, version, state FROM jobs WHERE project = ?"
_ALIVE = f"SELECT name, state FROM runs WHERE job_id = ? AND {LIVE} ORDER BY position"
_SCHEDULED = "SELECT name FROM schedules WHERE job_id = ? ORDER BY name"
_COLUMNS = JobRecord.__struct_fields__
_JSON = ("spec", "tags")
_TIMES = ("created_at", "updated_at")
_EDITABLE = ("spec", "display_name", "description", "tags", "updated_at")


class SqlJobs:
    """See `store.protocols.jobs.Jobs`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def insert(self, job: JobRecord) -> JobRecord:
        """See `Jobs.insert`."""
        return self._db.write(lambda connection: insert_job(connection, job), durable=True)

    def by_content(self, project: str, content_hash: str) -> JobRecord | None:
        """See `Jobs.by_content`."""
        rows = self._db.read(_BY_CONTENT, (content_hash, project))
        return _job(rows[0]) if rows else None

    def find(self, project: str, text: str) -> JobRecord:
        """See `Jobs.find`."""
        rows: Sequence[Row] = []
        if names.is_valid_unicode(text):
            rows = (
                self._db.read(f"{_NAMES} AND id = ?", (project, text))
                or self._by_name(project, text)
                or self._by_display_name(project, text)
                or by_prefix(self._db, "jobs", project, names.id_from_ocid(text))
            )
        if not rows:
            known = "SELECT DISTINCT name, display_name FROM jobs WHERE project = ?"
            found = self._db.read(known, (project,))
            given = sorted({name for row in found for name in row if name})
            raise names.not_found_error("job", text, given, "muster jobs list")
        if len(rows) > 1:
            pairs = [(row["id"], row["name"]) for row in rows]
            raise names.ambiguous_id_error("jobs", text, pairs)
        return _job(self._whole(rows[0]["id"]))

    def _whole(self, job_id: str) -> Row:
        """Raises NotFound if it was removed meanwhile."""
        rows = self._db.read(_BY_ID, (job_id,))
        if not rows:
            raise names.no_job_error(job_id)
        return rows[0]

    def _by_name(self, project: str, text: str) -> Sequence[Row]:
        """The newest version of a name, or the given one. Raises NoSuchVersion."""
        name, at, version = text.partition("@")
        rows = self._db.read(f"{_NAMES} AND name = ? ORDER BY version DESC", (project, name))
        if not at or not rows:
            return _active_first(rows)[:1]
        matching = [row for row in rows if str(row["version"]) == version]
        if not matching:
            newest = rows[0]["version"]
            there = "only version 1" if newest == 1 else f"versions 1 to {newest}"
            raise names.NoSuchVersion(f"job {name!r} has no version {version!r} (it has {there})")
        return matching

    def _by_display_name(self, project: str, text: str) -> Sequence[Row]:
        """The newest version of the Job with a display name. Raises InvalidInput for several."""
        sql = f"{_NAMES} AND display_name = ? ORDER BY position DESC"
        rows = _active_first(self._db.read(sql, (project, text)))
        active = [row for row in rows if row["state"] == JobState.ACTIVE] or rows
        if len({row["name"] for row in active}) > 1:
            handles = [f"{row['name']}@{row['version']}" for row in active]
            raise names.ambiguous_name_error("jobs", text, handles)
        return rows[:1]

    def listing(
        self,
        project: str,
        *,
        deleted: bool = False,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[JobRecord]:
        """See `Jobs.listing`."""
        where, values = tag_conditions(self._db.dialect, tags or {})
        where = ["project = ?", *([] if deleted else ["state = 'ACTIVE'"]), *where]
        values = [project, *values]
        if before is not None:
            where.append("position < (SELECT position FROM jobs WHERE id = ? AND project = ?)")
            values += [before, project]
        sql = f"SELECT * FROM jobs WHERE {' AND '.join(where)} ORDER BY position DESC"
        if limit is not None:
            sql, values = f"{sql} LIMIT ?", [*values, limit]
        return [_job_even_if_corrupt(row) for row in self._db.read(sql, values)]

    def update(
        self, before: JobRecord, job: JobRecord, *, by: str, changes: Mapping[str, Any]
    ) -> None:
        """See `Jobs.update`."""
        values = {name: _column(name, getattr(job, name)) for name in _EDITABLE}

        def step(connection: Connection) -> None:
            stored = _job(_lock_job(connection, job.id))
            stored.check_active()
            if stored.updated_at != before.updated_at:
                text = f"job {job.handle} was changed by another user meanwhile"
                raise InvalidInput(Problem("", text, "review the change, then edit the job again"))
            connection.execute(
                f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in values)} WHERE id = ?",
                [*values.values(), job.id],
            )
            data = {"changes": changes}
            _append_event(connection, job.id, "edited", by=by, data=data, now=job.updated_at)
            report_job(connection, job, "updated", job.updated_at, by=by, changes=changes)

        self._db.write(step, durable=True)

    def delete(self, job_id: str, *, by: str, now: float) -> bool:
        """See `Jobs.delete`."""

        def step(connection: Connection) -> bool:
            row = _lock_job(connection, job_id)
            if row["state"] == JobState.DELETED:
                return False
            _refuse(
                connection.execute(_ALIVE, (job_id,)).fetchall(),
                connection.execute(_SCHEDULED, (job_id,)).fetchall(),
            )
            connection.execute("UPDATE jobs SET state = 'DELETED' WHERE id = ?", (job_id,))
            _append_event(connection, job_id, "deleted", by=by, data={}, now=now)
            deleted = replace(_job_even_if_corrupt(row), state=JobState.DELETED)
            report_job(connection, deleted, "deleted", now, by=by)
            return True

        return self._db.write(step, durable=True)

    def delete_unused(self, job_id: str) -> None:
        """See `Jobs.delete_unused`."""
        users = ("runs", "schedules")
        unused = [f"NOT EXISTS (SELECT 1 FROM {one} WHERE job_id = jobs.id)" for one in users]
        sql = f"DELETE FROM jobs WHERE id = ? AND {' AND '.join(unused)}"

        def step(connection: Connection) -> None:
            with suppress(NotFound):
                _lock_job(connection, job_id)
                connection.execute(sql, (job_id,))

        self._db.write(step, durable=True)

    def check_ended(self, job_ids: Sequence[str]) -> None:
        """See `Jobs.check_ended`."""
        _refuse(
            [row for job_id in job_ids for row in self._db.read(_ALIVE, (job_id,))],
            [row for job_id in job_ids for row in self._db.read(_SCHEDULED, (job_id,))],
        )

    def artifact_in_use(self, sha256: str) -> bool:
        """See `Jobs.artifact_in_use`."""
        sql = "SELECT 1 FROM jobs WHERE artifact_sha256 = ? AND state = 'ACTIVE' LIMIT 1"
        return bool(self._db.read(sql, (sha256,)))

    def has_artifact(self, project: str, sha256: str) -> bool:
        """See `Jobs.has_artifact`."""
        used = "SELECT 1 FROM jobs WHERE project = ? AND artifact_sha256 = ? AND state = 'ACTIVE'"
        return bool(self._db.read(f"{used} LIMIT 1", (project, sha256)))

    def artifacts_in_use(self) -> set[str]:
        """See `Jobs.artifacts_in_use`."""
        sql = "SELECT DISTINCT artifact_sha256 FROM jobs WHERE state = 'ACTIVE'"
        return {row[0] for row in self._db.read(sql) if row[0] is not None}

    def events(self, job_id: str, seq: int = 0) -> list[JobEventRecord]:
        """See `Jobs.events`."""
        sql = "SELECT * FROM job_events WHERE job_id = ? AND seq > ? ORDER BY seq"
        return [self._event(row) for row in self._db.read(sql, (job_id, seq))]

    def _event(self, row: Row) -> JobEventRecord:
        what = f"event {row['seq']} of the job {row['job_id']} in {self._db.place}"
        hint = f"`muster jobs events {row['job_id']} --after {row['seq']}` shows those after it"
        return read_entry(JobEventRecord, {**dict(row), "time": seconds(row["time"])}, what, hint)


def insert_job(connection: Connection, job: JobRecord) -> JobRecord:
    """Within a transaction: see `Jobs.insert`. The Job is not changed until it ends."""
    made, new = add_job(connection, job)
    if new:
        report_job(connection, made, "created", job.created_at, by=job.created_by)
    return made


def add_job(connection: Connection, job: JobRecord) -> tuple[JobRecord, bool]:
    """As `insert_job`, and whether the Job is new, which is not reported."""
    row = _same(connection, job)
    if row is None and (lock := connection.dialect.lock_text):
        connection.execute(lock, (f"{job.project} {job.content_hash}",))
        row = _same(connection, job)  # another transaction may have added it
    if row is not None:
        found = _job(row)
        found.check_active()
        return found, False
    version = next_number(connection, "versions", job.project, job.name)
    values = {name: getattr(job, name) for name in _COLUMNS} | {"version": version}
    connection.execute(
        f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})",
        [_column(name, value) for name, value in values.items()],
    )
    now = job.created_at
    _append_event(connection, job.id, "created", by=job.created_by, data={}, now=now)
    return _job(connection.execute(_BY_ID, (job.id,)).fetchone()), True


def _same(connection: Connection, job: JobRecord) -> Row | None:
    """The row of the Job, or of another one with its content. Raises NotFound if the Job is of
    another project."""
    lock = connection.dialect.lock_to_refer
    row: Row | None = connection.execute(f"{_BY_ID}{lock}", (job.id,)).fetchone()
    if row and row["project"] != job.project:
        raise names.no_job_error(job.id)
    if row is None:
        values = (job.content_hash, job.project)
        row = connection.execute(f"{_BY_CONTENT}{lock}", values).fetchone()
    return row


def _append_event(
    connection: Connection,
    job_id: str,
    kind: Literal["created", "edited", "deleted"],
    *,
    by: str,
    data: Mapping[str, Any],
    now: float,
) -> None:
    newest = "SELECT seq, time FROM job_events WHERE job_id = ? ORDER BY seq DESC LIMIT 1"
    last, latest = connection.execute(newest, (job_id,)).fetchone() or (0, 0)
    time = micros(now)
    if type(latest) is int:
        time = max(time, latest)  # times never decrease, even if the clock was set back
    connection.execute(
        "INSERT INTO job_events VALUES (?, ?, ?, ?, ?, ?)",
        (job_id, last + 1, time, kind, by, json.dumps(data)),
    )


def _active_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["state"] != JobState.ACTIVE)


def _refuse(alive: Sequence[Row], schedules: Sequence[Row]) -> None:
    problems = [
        Problem("", f"{name} is {state}", f"`muster cancel {name}` ends it")
        for name, state in alive
    ]
    for (name,) in schedules:
        hint = f"`muster schedules edit {name} --job JOB` has it start another one"
        problems.append(Problem("", f"schedule {name} starts runs of it", hint))
    if problems:
        raise InvalidInput(*problems)


def _lock_job(connection: Connection, job_id: str) -> Row:
    """The row of a Job, of which no other transaction starts a run until this one ends. Raises
    NotFound."""
    sql = f"{_BY_ID}{connection.dialect.lock_alone}"
    row: Row | None = connection.execute(sql, (job_id,)).fetchone()
    if row is None:
        raise names.no_job_error(job_id)
    return row


def _column(name: str, value: Any) -> Any:
    if name in _TIMES:
        return micros(value)
    return json.dumps(value) if name in _JSON else value


def _job(row: Row) -> JobRecord:
    data = dict(row)
    what = f"the record of job {row['name']}@{row['version']} (id {row['id']})"
    hint = "a run from its file under another --name makes another job"
    for name in _JSON:
        try:
            data[name] = decoded(data[name])
        except ValueError as error:
            raise CorruptRecord(f"{what} is corrupt: {name}: {error}; {hint}") from None
    for name in _TIMES:
        data[name] = seconds(data[name])
    return read_record(JobRecord, data, what, hint)


def _job_even_if_corrupt(row: Row) -> JobRecord:
    """A row of a list. A corrupt row gives a placeholder record, so that it does not hide the
    others."""
    try:
        return _job(row)
    except CorruptRecord as error:
        return JobRecord(
            id=str(row["id"]),
            name=str(row["name"]),
            version=row["version"] if isinstance(row["version"], int) else 0,
            content_hash=str(row["content_hash"]),
            spec={},
            artifact_sha256=None,
            artifact_name=None,
            description=str(error),
            tags={},
            created_at=readable_time(seconds(row["created_at"])) or 0.0,
            updated_at=0.0,
            state=str(row["state"]),
        )
