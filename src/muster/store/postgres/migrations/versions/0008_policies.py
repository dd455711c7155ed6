"""The tables of policies and groups, the parents of projects, what allowed the entries of the audit
log, and the jobs of the OCI API that Jobs are of; as in SQLite's schema 14."""

from __future__ import annotations

from alembic import op

from muster.store import default_policy

revision = "0008"
down_revision = "0007"


def _count_changes(table: str, update: str = "UPDATE", when: str = "true") -> tuple[str, ...]:
    """Triggers that count changes of what the decisions of policies need; or only those updates of
    some columns, to other values."""
    counts = f"ON {table} FOR EACH ROW"
    count = "EXECUTE FUNCTION count_policy_change()"
    return (
        f"CREATE TRIGGER {table}_counted AFTER INSERT OR DELETE {counts} {count}",
        f"CREATE TRIGGER {table}_update_counted AFTER {update} {counts} WHEN ({when}) {count}",
    )


_STATEMENTS = (
    """
    CREATE TABLE policies (
        id TEXT COLLATE "C" PRIMARY KEY,
        name TEXT COLLATE "C" NOT NULL,
        compartment TEXT COLLATE "C" NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
        description TEXT NOT NULL,
        statements TEXT NOT NULL,
        version INTEGER NOT NULL,
        created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL,
        updated_at BIGINT NOT NULL,
        updated_by TEXT NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX policies_by_name ON policies (compartment, lower(name))",
    """
    CREATE TABLE policy_revisions (
        policy_id TEXT COLLATE "C" NOT NULL REFERENCES policies (id) ON DELETE CASCADE,
        version INTEGER NOT NULL,
        description TEXT NOT NULL,
        statements TEXT NOT NULL,
        changed_at BIGINT NOT NULL,
        changed_by TEXT NOT NULL,
        PRIMARY KEY (policy_id, version)
    )
    """,
    f"""
    INSERT INTO policies SELECT
        '{default_policy.ID}',
        '{default_policy.NAME}',
        'default',
        '{default_policy.DESCRIPTION}',
        {default_policy.STATEMENTS_SQL},
        1, created_at, '', created_at, ''
        FROM (SELECT CAST(extract(epoch FROM now()) AS BIGINT) * 1000000 AS created_at) AS moment
    """,
    """
    INSERT INTO policy_revisions
        SELECT id, version, description, statements, updated_at, updated_by FROM policies
    """,
    """
    CREATE TABLE user_groups (
        id TEXT COLLATE "C" PRIMARY KEY,
        name TEXT COLLATE "C" NOT NULL,
        description TEXT NOT NULL,
        version INTEGER NOT NULL,
        created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL,
        updated_at BIGINT NOT NULL,
        updated_by TEXT NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX user_groups_by_name ON user_groups (lower(name))",
    """
    CREATE TABLE group_members (
        group_id TEXT COLLATE "C" NOT NULL REFERENCES user_groups (id),
        user_name TEXT COLLATE "C" NOT NULL REFERENCES users (name),
        added_at BIGINT NOT NULL,
        added_by TEXT NOT NULL,
        PRIMARY KEY (group_id, user_name)
    )
    """,
    "CREATE INDEX group_members_by_user ON group_members (user_name)",
    """
    CREATE TABLE dynamic_groups (
        id TEXT COLLATE "C" PRIMARY KEY,
        name TEXT COLLATE "C" NOT NULL,
        description TEXT NOT NULL,
        rule TEXT NOT NULL,
        version INTEGER NOT NULL,
        created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL,
        updated_at BIGINT NOT NULL,
        updated_by TEXT NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX dynamic_groups_by_name ON dynamic_groups (lower(name))",
    """ALTER TABLE projects ADD COLUMN parent TEXT COLLATE "C" NOT NULL DEFAULT ''""",
    # one row: see `Policies.generation`
    "CREATE TABLE policy_generation (value BIGINT NOT NULL)",
    "INSERT INTO policy_generation VALUES (1)",
    """
    CREATE FUNCTION count_policy_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE policy_generation SET value = value + 1;
        RETURN NULL;
    END
    $$
    """,
    *_count_changes("policies"),
    *_count_changes("user_groups"),
    *_count_changes("group_members"),
    *_count_changes("dynamic_groups"),
    *_count_changes("projects", "UPDATE OF parent", "OLD.parent != NEW.parent"),
    *_count_changes("members", "UPDATE OF role", "OLD.role != NEW.role"),
    *_count_changes(
        "users",
        "UPDATE OF admin, disabled",
        "OLD.admin != NEW.admin OR OLD.disabled != NEW.disabled",
    ),
    "ALTER TABLE audit ADD COLUMN permission TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE audit ADD COLUMN statement TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE audit ADD COLUMN attributes TEXT NOT NULL DEFAULT '{}'",
    "ALTER TABLE audit ADD COLUMN run TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN oci_job TEXT NOT NULL DEFAULT ''",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
