"""Queries and changes of Jobs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from muster.errors import InvalidInput, NotFound, Problem
from muster.lifecycle.states import JobState
from muster.store import job_events, lookup
from muster.store.database import Database, Row
from muster.store.records import CorruptRecord, JobRecord, decoded, read_record, readable_time
from muster.store.schema import LIVE

# an edited Job may have the content of another one: the newest is used
_BY_CONTENT = (
    "SELECT * FROM jobs WHERE content_hash = ? AND state = 'ACTIVE' ORDER BY version DESC LIMIT 1"
)
_BY_ID = "SELECT * FROM jobs WHERE id = ?"
_ALIVE = f"SELECT name, state FROM runs WHERE job_id = ? AND {LIVE} ORDER BY rowid"
_COLUMNS = JobRecord.__struct_fields__
_JSON = ("spec", "tags")
_EDITABLE = ("spec", "display_name", "description", "tags", "updated_at")


def insert_into(connection: sqlite3.Connection, job: JobRecord) -> JobRecord:
    """Within a transaction: add a Job under the next version of its name. Returns the stored Job:
    another process may have added the same content, or edited this Job, before. Raises InvalidInput
    if the Job is deleted."""
    row = connection.execute(_BY_ID, (job.id,)).fetchone()
    row = row or connection.execute(_BY_CONTENT, (job.content_hash,)).fetchone()
    if row:
        found = _job(row)
        check_active(found)
        return found
    (version,) = connection.execute(
        "SELECT coalesce(max(version), 0) + 1 FROM jobs WHERE name = ?", (job.name,)
    ).fetchone()
    values = {name: getattr(job, name) for name in _COLUMNS} | {"version": version}
    connection.execute(
        f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})",
        [_column(name, value) for name, value in values.items()],
    )
    now = job.created_at
    job_events.append(connection, job.id, "created", by=job.created_by, data={}, now=now)
    return _job(connection.execute(_BY_ID, (job.id,)).fetchone())


def check_active(job: JobRecord) -> None:
    """Raises InvalidInput if the Job is deleted."""
    if job.state == JobState.DELETED:
        hint = "run its file again, which makes a new one"
        raise InvalidInput(Problem("", f"job {job.handle} is deleted", hint))


def insert(db: Database, job: JobRecord) -> JobRecord:
    """Add a Job; see `insert_into`."""
    with db.transaction(durable=True) as connection:
        return insert_into(connection, job)


def by_content(db: Database, content_hash: str) -> JobRecord | None:
    """The Job with this content; None if there is none."""
    rows = db.read(_BY_CONTENT, (content_hash,))
    return _job(rows[0]) if rows else None


def find(db: Database, text: str) -> JobRecord:
    """A Job by id, name (the newest version that is not deleted, if there is one), `name@version`,
    display name, id prefix, or OCID that ends in the id.

    Raises NotFound, or InvalidInput if several Jobs match.
    """
    rows: list[Row] = []
    if lookup.is_valid_unicode(text):
        rows = db.read(_BY_ID, (text,)) or _by_name(db, text) or _by_display_name(db, text)
        rows = rows or lookup.by_prefix(db, "jobs", lookup.id_from_ocid(text))
    if not rows:
        known = "SELECT DISTINCT name FROM jobs UNION SELECT DISTINCT display_name FROM jobs"
        names = [row["name"] for row in db.read(known) if row["name"]]
        raise lookup.not_found_error("job", text, names, "muster jobs list")
    if len(rows) > 1:
        raise lookup.ambiguous_id_error("jobs", text, rows)
    return _job(rows[0])


def _by_name(db: Database, text: str) -> list[Row]:
    """The newest version of a name, or the given one. Raises NoSuchVersion."""
    name, at, version = text.partition("@")
    rows = db.read("SELECT * FROM jobs WHERE name = ? ORDER BY version DESC", (name,))
    if not at or not rows:
        return _active_first(rows)[:1]
    matching = [row for row in rows if str(row["version"]) == version]
    if not matching:
        newest = rows[0]["version"]
        there = "only version 1" if newest == 1 else f"versions 1 to {newest}"
        raise lookup.NoSuchVersion(f"job {name!r} has no version {version!r} (it has {there})")
    return matching


def _by_display_name(db: Database, text: str) -> list[Row]:
    """The newest version of the Job with a display name. Raises InvalidInput for several."""
    sql = "SELECT * FROM jobs WHERE display_name = ? ORDER BY rowid DESC"
    rows = _active_first(db.read(sql, (text,)))
    active = [row for row in rows if row["state"] == JobState.ACTIVE] or rows
    if len({row["name"] for row in active}) > 1:
        raise lookup.ambiguous_name_error(
            "jobs", text, [f"{row['name']}@{row['version']}" for row in active]
        )
    return rows[:1]


def _active_first(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["state"] != JobState.ACTIVE)


def listing(
    db: Database, *, deleted: bool = False, tags: Mapping[str, str | None] | None = None
) -> list[JobRecord]:
    """Jobs, newest first. deleted: include deleted ones. tags: required tags; None matches any
    value."""
    where, values = lookup.tag_conditions(tags or {})
    if not deleted:
        where = ["state = 'ACTIVE'", *where]
    sql = "SELECT * FROM jobs"
    if where:
        sql += f" WHERE {' AND '.join(where)}"
    return [_job_even_if_corrupt(row) for row in db.read(f"{sql} ORDER BY rowid DESC", values)]


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
            created_at=readable_time(row["created_at"]) or 0.0,
            updated_at=0.0,
            state=str(row["state"]),
        )


def update(
    db: Database, before: JobRecord, job: JobRecord, *, by: str, changes: Mapping[str, Any]
) -> None:
    """Store the changes of a Job, and log who made them. Raises InvalidInput if another user has
    changed or deleted the Job meanwhile, NotFound if it does not exist."""
    values = {name: getattr(job, name) for name in _EDITABLE}
    with db.transaction(durable=True) as connection:
        stored = _job(_row(connection, job.id))
        check_active(stored)
        if stored.updated_at != before.updated_at:
            text = f"job {job.handle} was changed by another user meanwhile"
            raise InvalidInput(Problem("", text, "review the change, then edit the job again"))
        connection.execute(
            f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in values)} WHERE id = ?",
            [*(_column(name, value) for name, value in values.items()), job.id],
        )
        data = {"changes": changes}
        job_events.append(connection, job.id, "edited", by=by, data=data, now=job.updated_at)


def delete(db: Database, job_id: str, *, by: str, now: float) -> bool:
    """Mark a Job as deleted, so that no further run of it starts. False if it is deleted already.
    Raises InvalidInput if it has runs that have not ended, NotFound."""

    def step(connection: sqlite3.Connection) -> bool:
        if _row(connection, job_id)["state"] == JobState.DELETED:
            return False
        _refuse(connection.execute(_ALIVE, (job_id,)).fetchall())
        connection.execute("UPDATE jobs SET state = 'DELETED' WHERE id = ?", (job_id,))
        job_events.append(connection, job_id, "deleted", by=by, data={}, now=now)
        return True

    return db.write(step, durable=True)


def check_ended(db: Database, job_ids: Sequence[str]) -> None:
    """Raises InvalidInput with every run of these Jobs that has not ended."""
    _refuse([row for job_id in job_ids for row in db.read(_ALIVE, (job_id,))])


def _refuse(alive: Sequence[Row]) -> None:
    if alive:
        raise InvalidInput(
            *(
                Problem("", f"{name} is {state}", f"`muster cancel {name}` ends it")
                for name, state in alive
            )
        )


def delete_unused(db: Database, job_id: str) -> None:
    """Remove a Job from the store unless it has runs."""

    def step(connection: sqlite3.Connection) -> None:
        unused = "NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id)"
        connection.execute(f"DELETE FROM jobs WHERE id = ? AND {unused}", (job_id,))

    db.write(step, durable=True)


def _row(connection: sqlite3.Connection, job_id: str) -> Row:
    """Raises NotFound."""
    row: Row | None = connection.execute(_BY_ID, (job_id,)).fetchone()
    if row is None:
        raise NotFound(f"no job with the id {job_id!r}")
    return row


def _column(name: str, value: Any) -> Any:
    return json.dumps(value) if name in _JSON else value


def artifact_in_use(db: Database, sha256: str) -> bool:
    """Whether a Job that is not deleted uses this artifact."""
    sql = "SELECT 1 FROM jobs WHERE artifact_sha256 = ? AND state = 'ACTIVE' LIMIT 1"
    return bool(db.read(sql, (sha256,)))


def artifacts_in_use(db: Database) -> set[str]:
    """The artifacts of all Jobs that are not deleted. Runs that have not ended are of such Jobs."""
    sql = "SELECT DISTINCT artifact_sha256 FROM jobs WHERE state = 'ACTIVE'"
    return {row[0] for row in db.read(sql) if row[0] is not None}


def _job(row: Row) -> JobRecord:
    data = dict(row)
    what = f"the record of job {row['name']}@{row['version']} (id {row['id']})"
    hint = "a run from its file under another --name makes another job"
    for name in _JSON:
        try:
            data[name] = decoded(data[name])
        except ValueError as error:
            raise CorruptRecord(f"{what} is corrupt: {name}: {error}; {hint}") from None
    return read_record(JobRecord, data, what, hint)
