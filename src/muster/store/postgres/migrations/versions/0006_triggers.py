"""Events that start the runs of schedules; as in SQLite's schema 12."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"

_STATEMENTS = (
    "ALTER TABLE schedules ADD COLUMN paused INTEGER NOT NULL DEFAULT 0",
    "UPDATE schedules SET paused = 1 WHERE next_at IS NULL",
    "ALTER TABLE schedules ADD COLUMN trigger TEXT NOT NULL DEFAULT 'null'",
    "ALTER TABLE schedules ADD COLUMN decided INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE firings ADD COLUMN event TEXT NOT NULL DEFAULT 'null'",
    """
    CREATE TABLE webhooks (
        schedule_id TEXT COLLATE "C" PRIMARY KEY REFERENCES schedules (id) ON DELETE CASCADE,
        secret TEXT NOT NULL,
        set_at BIGINT NOT NULL
    )
    """,
    """
    CREATE TABLE webhook_deliveries (
        schedule_id TEXT COLLATE "C" NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
        id TEXT COLLATE "C" NOT NULL,
        received_at BIGINT NOT NULL,
        run_id TEXT COLLATE "C",
        PRIMARY KEY (schedule_id, id)
    )
    """,
    "CREATE INDEX webhook_deliveries_by_time ON webhook_deliveries (received_at)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
