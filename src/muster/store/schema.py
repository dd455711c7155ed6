"""The tables, as a list of migrations: version N of the schema is the result of the first N."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

#: Condition for runs that have not ended. SQLite uses the index `runs_alive` only for the same
#: condition, written in the same way.
LIVE = "state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'DELETED')"

#: A released migration is never changed; new ones are appended.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        content_hash TEXT NOT NULL,
        spec TEXT NOT NULL,
        artifact_sha256 TEXT,
        artifact_name TEXT,
        description TEXT NOT NULL,
        tags TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        UNIQUE (name, version)
    );
    CREATE INDEX jobs_by_content ON jobs (content_hash);
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        number INTEGER NOT NULL,
        job_id TEXT NOT NULL REFERENCES jobs (id),
        job_name TEXT NOT NULL,
        state TEXT NOT NULL,
        details TEXT NOT NULL,
        engine TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        created_at REAL NOT NULL,
        started_at REAL,
        finished_at REAL,
        exit_code INTEGER,
        node_count INTEGER NOT NULL,
        spec TEXT NOT NULL,
        origins TEXT NOT NULL,
        overrides TEXT NOT NULL,
        plan TEXT NOT NULL,
        lifecycle TEXT NOT NULL,
        notes TEXT NOT NULL,
        cancel_requested_at REAL,
        cancel_reason TEXT
    );
    CREATE INDEX runs_by_time ON runs (created_at);
    CREATE INDEX runs_by_job ON runs (job_name, number);
    CREATE INDEX runs_alive ON runs (state)
        WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'DELETED');
    CREATE TABLE nodes (
        run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        rank INTEGER NOT NULL,
        grp TEXT NOT NULL,
        replica INTEGER NOT NULL,
        idx INTEGER NOT NULL,
        node_id TEXT NOT NULL,
        fqdn TEXT NOT NULL,
        address TEXT NOT NULL,
        state TEXT NOT NULL,
        exit_code INTEGER,
        started_at REAL,
        finished_at REAL,
        PRIMARY KEY (run_id, rank)
    ) WITHOUT ROWID;
    CREATE TABLE events (
        run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        time REAL NOT NULL,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (run_id, seq)
    ) WITHOUT ROWID;
    """,
    # restarts, suspension and time to live
    """
    CREATE TABLE plans (
        run_id TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
        plan TEXT NOT NULL
    );
    INSERT INTO plans SELECT id, plan FROM runs;
    -- a whole row is rewritten with each step of its run, so large values have their own
    ALTER TABLE runs DROP COLUMN plan;
    ALTER TABLE runs ADD COLUMN suspend_requested_at REAL;
    ALTER TABLE runs ADD COLUMN suspend_reason TEXT;
    ALTER TABLE runs ADD COLUMN expires_at REAL;
    CREATE INDEX runs_expiring ON runs (expires_at) WHERE expires_at IS NOT NULL;
    ALTER TABLE nodes ADD COLUMN signal INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE nodes ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE nodes ADD COLUMN intent TEXT NOT NULL DEFAULT '';
    """,
    # elastic groups
    """
    ALTER TABLE runs ADD COLUMN scale_requested TEXT NOT NULL DEFAULT '{}';
    """,
    # display names, tags of runs, who has made what; Jobs that are deleted, and their event log
    """
    ALTER TABLE jobs ADD COLUMN display_name TEXT;
    ALTER TABLE jobs ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
    ALTER TABLE jobs ADD COLUMN state TEXT NOT NULL DEFAULT 'ACTIVE';
    ALTER TABLE runs ADD COLUMN display_name TEXT;
    ALTER TABLE runs ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN tags TEXT NOT NULL DEFAULT '{}';
    UPDATE runs SET tags = coalesce(json_extract(spec, '$.tags'), '{}') WHERE json_valid(spec);
    CREATE INDEX runs_by_display_name ON runs (display_name) WHERE display_name IS NOT NULL;
    CREATE TABLE job_events (
        job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        time REAL NOT NULL,
        kind TEXT NOT NULL,
        by TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (job_id, seq)
    ) WITHOUT ROWID;
    INSERT INTO job_events SELECT id, 1, created_at, 'created', '', '{}' FROM jobs;
    """,
)


def statements(script: str) -> Iterator[str]:
    """Split a script into statements; the body of a trigger is part of its statement."""
    statement = ""
    for part in script.split(";"):
        statement += part
        if statement.strip() and sqlite3.complete_statement(statement + ";"):
            yield statement
            statement = ""
        else:
            statement += ";" if statement.strip() else ""
    if rest := statement.rstrip("; \n\t"):
        yield rest
