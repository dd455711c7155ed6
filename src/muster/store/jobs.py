"""Jobs in the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from muster.errors import InvalidInput, NotFound
from muster.store.database import Database
from muster.store.records import JobRecord


def insert_into(connection: sqlite3.Connection, job: JobRecord) -> JobRecord:
    """Within a transaction: add a Job under the next version of its name. Returns what is there:
    somebody may have added the same content a moment ago."""
    query = "SELECT * FROM jobs WHERE content_hash = ?"
    if row := connection.execute(query, (job.content_hash,)).fetchone():
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
    return _job(connection.execute(query, (job.content_hash,)).fetchone())


def insert(db: Database, job: JobRecord) -> JobRecord:
    """Add a Job; see `insert_into`."""
    with db.transaction(durable=True) as connection:
        return insert_into(connection, job)


def by_content(db: Database, content_hash: str) -> JobRecord | None:
    """The Job made from this content."""
    rows = db.read("SELECT * FROM jobs WHERE content_hash = ?", (content_hash,))
    return _job(rows[0]) if rows else None


def find(db: Database, text: str) -> JobRecord:
    """By name (its newest version), `name@version`, id, or beginning of an id.

    Raises NotFound, or InvalidInput if several ids begin so.
    """
    name, _, version = text.partition("@")
    rows = db.read(
        "SELECT * FROM jobs WHERE name = ? AND (? = '' OR version = ?) "
        "ORDER BY version DESC LIMIT 1",
        (name, version, version),
    )
    rows = rows or db.read(
        "SELECT * FROM jobs WHERE substr(id, 1, ?) = ? LIMIT 6", (len(text), text)
    )
    if not rows or not text:
        names = [row["name"] for row in db.read("SELECT DISTINCT name FROM jobs")]
        raise NotFound(_missing("job", text, names, "muster jobs list"))
    if len(rows) > 1:
        raise InvalidInput(_ambiguous("jobs", text, rows))
    return _job(rows[0])


def listing(db: Database) -> list[JobRecord]:
    """All, newest first."""
    return [_job(row) for row in db.read("SELECT * FROM jobs ORDER BY created_at DESC, rowid DESC")]


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
    """Change what may change of a Job."""
    with db.transaction(durable=True) as connection:
        connection.execute(
            "UPDATE jobs SET spec = ?, content_hash = ?, description = ?, tags = ?, updated_at = ?"
            " WHERE id = ?",
            (json.dumps(spec), content_hash, description, json.dumps(tags), now, job_id),
        )


def use(db: Database, sha256: str) -> bool:
    """Whether any Job has this code."""
    return bool(db.read("SELECT 1 FROM jobs WHERE artifact_sha256 = ? LIMIT 1", (sha256,)))


def _missing(kind: str, text: str, names: list[str], command: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(text, names, 3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"`{command}` shows what there is"
    return f"no {kind} called {text!r} ({hint})"


def _ambiguous(kind: str, text: str, rows: list[sqlite3.Row]) -> str:
    named = ", ".join(f"{row['id']} ({row['name']})" for row in rows[:5])
    more = ", ..." if len(rows) > 5 else ""
    return f"several {kind} have an id that begins with {text!r}: {named}{more}"


def _job(row: sqlite3.Row) -> JobRecord:
    data = dict(row)
    for name in ("spec", "tags"):
        data[name] = json.loads(data[name])
    return JobRecord(**data)
