"""The tables of events for listeners, and of notifications; as in SQLite's schema 11."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"

_STATEMENTS = (
    """
    CREATE TABLE listeners (
        project TEXT COLLATE "C" NOT NULL,
        type TEXT COLLATE "C" NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        kind TEXT NOT NULL,
        PRIMARY KEY (project, type, id)
    )
    """,
    "CREATE INDEX listeners_by_id ON listeners (id)",
    """
    CREATE TABLE outbox (
        seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id TEXT COLLATE "C" NOT NULL,
        time BIGINT NOT NULL,
        project TEXT COLLATE "C" NOT NULL,
        type TEXT COLLATE "C" NOT NULL,
        subject TEXT COLLATE "C" NOT NULL,
        data TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE deliveries (
        listener TEXT COLLATE "C" NOT NULL,
        seq BIGINT NOT NULL REFERENCES outbox (seq),
        kind TEXT NOT NULL,
        subject TEXT COLLATE "C" NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending',
        due_at BIGINT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        claim TEXT NOT NULL DEFAULT '',
        claimed_until BIGINT NOT NULL DEFAULT 0,
        first_at BIGINT,
        answer TEXT NOT NULL DEFAULT '',
        settled_at BIGINT,
        PRIMARY KEY (listener, seq)
    )
    """,
    "CREATE INDEX deliveries_by_entry ON deliveries (seq)",
    "CREATE INDEX deliveries_due ON deliveries (kind, due_at) WHERE state = 'pending'",
    """
    CREATE INDEX deliveries_in_order ON deliveries (listener, subject, seq)
        WHERE state = 'pending'
    """,
    """
    CREATE TABLE notifications (
        id TEXT COLLATE "C" PRIMARY KEY,
        name TEXT COLLATE "C" NOT NULL,
        project TEXT COLLATE "C" NOT NULL,
        kind TEXT NOT NULL,
        target TEXT NOT NULL,
        types TEXT NOT NULL,
        job TEXT NOT NULL,
        tags TEXT NOT NULL,
        format TEXT NOT NULL,
        oci_condition TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        local INTEGER NOT NULL,
        paused INTEGER NOT NULL,
        version INTEGER NOT NULL,
        sealed TEXT NOT NULL,
        UNIQUE (project, name)
    )
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
