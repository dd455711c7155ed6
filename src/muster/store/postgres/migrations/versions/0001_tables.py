"""The tables of jobs, runs, nodes, events and leases, as in SQLite's schema 7.

Times are whole microseconds. JSON is text: see `postgres.dialect`. Ids are compared byte by byte,
as prefixes of them are looked for.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None

_STATEMENTS = (
    """
    CREATE TABLE jobs (
        position BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        id TEXT COLLATE "C" NOT NULL UNIQUE,
        project TEXT NOT NULL DEFAULT 'default',
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        content_hash TEXT NOT NULL,
        spec TEXT NOT NULL,
        artifact_sha256 TEXT,
        artifact_name TEXT,
        description TEXT NOT NULL,
        tags TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        display_name TEXT,
        created_by TEXT NOT NULL DEFAULT '',
        state TEXT NOT NULL DEFAULT 'ACTIVE',
        UNIQUE (project, name, version)
    )
    """,
    "CREATE INDEX jobs_by_content ON jobs (content_hash)",
    "CREATE INDEX jobs_by_artifact ON jobs (artifact_sha256) WHERE artifact_sha256 IS NOT NULL",
    """
    CREATE TABLE job_events (
        job_id TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        time BIGINT NOT NULL,
        kind TEXT NOT NULL,
        by TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (job_id, seq)
    )
    """,
    """
    CREATE TABLE runs (
        position BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        id TEXT COLLATE "C" NOT NULL UNIQUE,
        project TEXT NOT NULL DEFAULT 'default',
        name TEXT NOT NULL,
        number INTEGER NOT NULL,
        job_id TEXT COLLATE "C" NOT NULL REFERENCES jobs (id),
        job_name TEXT NOT NULL,
        state TEXT NOT NULL,
        details TEXT NOT NULL,
        engine TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        created_at BIGINT NOT NULL,
        started_at BIGINT,
        finished_at BIGINT,
        exit_code INTEGER,
        node_count INTEGER NOT NULL,
        lifecycle TEXT NOT NULL,
        notes TEXT NOT NULL,
        cancel_requested_at BIGINT,
        cancel_reason TEXT,
        suspend_requested_at BIGINT,
        suspend_reason TEXT,
        expires_at BIGINT,
        scale_requested TEXT NOT NULL DEFAULT '{}',
        display_name TEXT,
        created_by TEXT NOT NULL DEFAULT '',
        tags TEXT NOT NULL DEFAULT '{}',
        UNIQUE (project, name)
    ) WITH (fillfactor = 80)
    """,
    "CREATE INDEX runs_by_project ON runs (project, position)",
    "CREATE INDEX runs_by_state ON runs (project, state, position)",
    "CREATE INDEX runs_by_time ON runs (created_at)",
    "CREATE INDEX runs_by_job ON runs (job_name, position)",
    "CREATE INDEX runs_of_job ON runs (job_id, position)",
    """
    CREATE INDEX runs_alive ON runs (state)
        WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'DELETED')
    """,
    "CREATE INDEX runs_expiring ON runs (expires_at) WHERE expires_at IS NOT NULL",
    """
    CREATE INDEX runs_by_display_name ON runs (project, display_name)
        WHERE display_name IS NOT NULL
    """,
    # a whole row is rewritten with each step of its run, so large values have their own
    """
    CREATE TABLE run_specs (
        run_id TEXT COLLATE "C" PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
        spec TEXT NOT NULL,
        origins TEXT NOT NULL,
        overrides TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE plans (
        run_id TEXT COLLATE "C" PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
        plan TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE nodes (
        run_id TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        rank INTEGER NOT NULL,
        grp TEXT NOT NULL,
        replica INTEGER NOT NULL,
        idx INTEGER NOT NULL,
        node_id TEXT NOT NULL,
        fqdn TEXT NOT NULL,
        address TEXT NOT NULL,
        state TEXT NOT NULL,
        exit_code INTEGER,
        started_at BIGINT,
        finished_at BIGINT,
        signal INTEGER NOT NULL DEFAULT 0,
        incarnation INTEGER NOT NULL DEFAULT 0,
        intent TEXT NOT NULL DEFAULT '',
        metrics TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (run_id, rank)
    ) WITH (fillfactor = 80)
    """,
    """
    CREATE TABLE events (
        run_id TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        time BIGINT NOT NULL,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (run_id, seq)
    )
    """,
    """
    CREATE TABLE numbers (
        project TEXT NOT NULL,
        name TEXT NOT NULL,
        versions INTEGER NOT NULL DEFAULT 0,
        runs INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (project, name)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE leases (
        run_id TEXT COLLATE "C" PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
        owner TEXT NOT NULL,
        host TEXT NOT NULL,
        boot TEXT NOT NULL,
        token BIGINT NOT NULL,
        expires_at BIGINT
    ) WITH (fillfactor = 80)
    """,
    # the MUSTER_HOME with the files of these runs
    "CREATE TABLE home (one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one), id TEXT NOT NULL)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
