"""The tables of object storage; as in SQLite's schema 13."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"

_STATEMENTS = (
    """
    CREATE TABLE buckets (
        id TEXT COLLATE "C" PRIMARY KEY,
        name TEXT COLLATE "C" NOT NULL UNIQUE,
        project TEXT COLLATE "C" NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        settings TEXT NOT NULL,
        version INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE objects (
        bucket TEXT COLLATE "C" NOT NULL REFERENCES buckets (id),
        name TEXT COLLATE "C" NOT NULL,
        etag TEXT COLLATE "C" NOT NULL,
        content TEXT COLLATE "C" NOT NULL,
        size BIGINT NOT NULL,
        md5 TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        modified_at BIGINT NOT NULL,
        headers TEXT NOT NULL,
        metadata TEXT NOT NULL,
        PRIMARY KEY (bucket, name)
    )
    """,
    """
    CREATE TABLE object_pieces (
        content TEXT COLLATE "C" NOT NULL,
        number INTEGER NOT NULL,
        file TEXT COLLATE "C" NOT NULL UNIQUE,
        size BIGINT NOT NULL,
        etag TEXT NOT NULL,
        md5 TEXT NOT NULL,
        PRIMARY KEY (content, number)
    )
    """,
    """
    CREATE TABLE object_uploads (
        id TEXT COLLATE "C" PRIMARY KEY,
        bucket TEXT COLLATE "C" NOT NULL REFERENCES buckets (id),
        name TEXT COLLATE "C" NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        headers TEXT NOT NULL,
        metadata TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE access_links (
        id TEXT COLLATE "C" PRIMARY KEY,
        bucket TEXT COLLATE "C" NOT NULL REFERENCES buckets (id),
        name TEXT NOT NULL,
        digest TEXT COLLATE "C" NOT NULL UNIQUE,
        access TEXT NOT NULL,
        object_name TEXT,
        lists INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX buckets_by_project ON buckets (project, name)",
    "CREATE INDEX object_uploads_by_bucket ON object_uploads (bucket, id)",
    "CREATE INDEX access_links_by_bucket ON access_links (bucket, id)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
