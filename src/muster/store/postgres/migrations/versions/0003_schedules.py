"""The tables of schedules, and of what was done at their times; as in SQLite's schema 9."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"

_STATEMENTS = (
    """
    CREATE TABLE schedules (
        id TEXT COLLATE "C" PRIMARY KEY,
        name TEXT COLLATE "C" NOT NULL,
        project TEXT COLLATE "C" NOT NULL,
        job_id TEXT COLLATE "C" NOT NULL REFERENCES jobs (id),
        timing TEXT NOT NULL,
        overrides TEXT NOT NULL,
        environ TEXT NOT NULL,
        notes TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        next_at BIGINT,
        local INTEGER NOT NULL,
        version INTEGER NOT NULL,
        UNIQUE (project, name)
    )
    """,
    "CREATE INDEX schedules_by_job ON schedules (job_id)",
    "CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL",
    """
    CREATE TABLE firings (
        schedule_id TEXT COLLATE "C" NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
        time BIGINT NOT NULL,
        outcome TEXT NOT NULL,
        decided_at BIGINT NOT NULL,
        why TEXT NOT NULL,
        passed INTEGER NOT NULL,
        run_id TEXT COLLATE "C",
        by TEXT NOT NULL,
        PRIMARY KEY (schedule_id, time)
    )
    """,
    "CREATE INDEX firings_starting ON firings (decided_at) WHERE outcome = 'starting'",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
