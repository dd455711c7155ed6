"""The tables of public keys, and of the resources of the OCI API; as in SQLite's schema 10."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"

_STATEMENTS = (
    """
    CREATE TABLE public_keys (
        fingerprint TEXT COLLATE "C" PRIMARY KEY,
        user_name TEXT COLLATE "C" NOT NULL REFERENCES users (name),
        name TEXT NOT NULL,
        pem TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX public_keys_by_user ON public_keys (user_name)",
    """
    CREATE TABLE resources (
        kind TEXT COLLATE "C" NOT NULL,
        id TEXT COLLATE "C" NOT NULL,
        project TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        state TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        data TEXT NOT NULL,
        parent TEXT COLLATE "C" NOT NULL,
        run_id TEXT COLLATE "C",
        version INTEGER NOT NULL,
        PRIMARY KEY (kind, id)
    )
    """,
    "CREATE INDEX resources_by_time ON resources (kind, project, created_at, id)",
    "CREATE INDEX resources_by_name ON resources (kind, project, name, id)",
    "CREATE INDEX resources_by_parent ON resources (parent, kind)",
    "CREATE INDEX resources_by_change ON resources (updated_at)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
