"""Jobs in the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from muster.errors import NotFound
from muster.store import lookup
from muster.store.database import Database, Row
from muster.store.records import CorruptRecord, JobRecord, decoded, read_record, readable_time

# an edited Job may come to have the content of another: the newest stands for it
_BY_CONTENT = "SELECT * FROM jobs WHERE content_hash = ? ORDER BY version DESC LIMIT 1"
_BY_ID = "SELECT * FROM jobs WHERE id = ?"


def insert_into(connection: sqlite3.Connection, job: JobRecord) -> JobRecord:
    """Within a transaction: add a Job under the next version of its name. Returns what is there:
    somebody may have added the same content, or edited this very Job, a moment ago."""
    row = connection.execute(_BY_ID, (job.id,)).fetchone()
    row = row or connection.execute(_BY_CONTENT, (job.content_hash,)).fetchone()
    if row:
        return _job(row)
    (version,) = connection.execute(
        "SELECT coalesce(max(version), 0) + 1 FROM jobs WHERE name = ?", (job.name,)
    ).fetchone()
    connection.execute(
        "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            job.id,
            job.name,
            version,
            job.content_hash,
            json.dumps(job.spec),
            job.artifact_sha256,
            job.artifact_name,
            job.description,
            json.dumps(job.tags),
            job.created_at,
            job.updated_at,
        ),
    )
    return _job(connection.execute(_BY_ID, (job.id,)).fetchone())


def insert(db: Database, job: JobRecord) -> JobRecord:
    """Add a Job; see `insert_into`."""
    with db.transaction(durable=True) as connection:
        return insert_into(connection, job)


def by_content(db: Database, content_hash: str) -> JobRecord | None:
    """The Job made from this content."""
    rows = db.read(_BY_CONTENT, (content_hash,))
    return _job(rows[0]) if rows else None


def find(db: Database, text: str) -> JobRecord:
    """By id, name (its newest version), `name@version`, or beginning of an id.

    Raises NotFound, or InvalidInput if several ids begin so.
    """
    rows: list[Row] = []
    if lookup.typed(text):
        rows = db.read(_BY_ID, (text,)) or _by_name(db, text) or lookup.by_prefix(db, "jobs", text)
    if not rows:
        names = [row["name"] for row in db.read("SELECT DISTINCT name FROM jobs")]
        raise lookup.missing("job", text, names, "muster jobs list")
    if len(rows) > 1:
        raise lookup.ambiguous("jobs", text, rows)
    return _job(rows[0])


def _by_name(db: Database, text: str) -> list[Row]:
    """The newest version of a name, or the one that is asked for. Raises NotFound if the name
    has no such version."""
    name, at, version = text.partition("@")
    rows = db.read("SELECT * FROM jobs WHERE name = ? ORDER BY version DESC", (name,))
    if not at or not rows:
        return rows[:1]
    wanted = [row for row in rows if str(row["version"]) == version]
    if not wanted:
        newest = rows[0]["version"]
        there = "only version 1" if newest == 1 else f"versions 1 to {newest}"
        raise NotFound(f"job {name!r} has no version {version!r} (it has {there})")
    return wanted


def listing(db: Database) -> list[JobRecord]:
    """All, newest first."""
    rows = db.read("SELECT * FROM jobs ORDER BY rowid DESC")
    return [_job_or_what_is_left(row) for row in rows]


def _job_or_what_is_left(row: Row) -> JobRecord:
    """Of a list: a corrupt row must not be in the way of the others."""
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
        )


def update(
    db: Database,
    job_id: str,
    *,
    spec: Mapping[str, Any],
    content_hash: str,
    description: str,
    tags: Mapping[str, str],
    now: float,
) -> None:
    """Change what may change of a Job. Raises NotFound."""
    with db.transaction(durable=True) as connection:
        cursor = connection.execute(
            "UPDATE jobs SET spec = ?, content_hash = ?, description = ?, tags = ?, updated_at = ?"
            " WHERE id = ?",
            (json.dumps(spec), content_hash, description, json.dumps(tags), now, job_id),
        )
        if not cursor.rowcount:
            raise NotFound(f"no job with the id {job_id!r}")


def delete_unused(db: Database, job_id: str) -> None:
    """Forget a Job unless it has runs."""

    def step(connection: sqlite3.Connection) -> None:
        unused = "NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id)"
        connection.execute(f"DELETE FROM jobs WHERE id = ? AND {unused}", (job_id,))

    db.write(step, durable=True)


def use(db: Database, sha256: str) -> bool:
    """Whether any Job has this code."""
    return bool(db.read("SELECT 1 FROM jobs WHERE artifact_sha256 = ? LIMIT 1", (sha256,)))


def _job(row: Row) -> JobRecord:
    data = dict(row)
    what = f"the record of job {row['name']}@{row['version']} (id {row['id']})"
    way_out = "a run from its file under another --name makes another job"
    for name in ("spec", "tags"):
        try:
            data[name] = decoded(data[name])
        except ValueError as error:
            raise CorruptRecord(f"{what} is corrupt: {name}: {error}; {way_out}") from None
    return read_record(JobRecord, data, what, way_out)
