"""The tables of users, projects, members and tokens, of secrets, and of the audit log, whose
entries only `Audit.delete_before` deletes; as in SQLite's schema 8."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

_STATEMENTS = (
    """
    CREATE TABLE users (
        name TEXT COLLATE "C" PRIMARY KEY,
        kind TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL,
        display_name TEXT NOT NULL,
        issuer TEXT NOT NULL,
        subject TEXT NOT NULL,
        admin INTEGER NOT NULL,
        disabled INTEGER NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX users_by_name ON users (lower(name))",
    "CREATE UNIQUE INDEX users_by_subject ON users (issuer, subject) WHERE subject != ''",
    """
    CREATE TABLE projects (
        name TEXT COLLATE "C" PRIMARY KEY,
        created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL,
        description TEXT NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX projects_by_name ON projects (lower(name))",
    """
    INSERT INTO projects
        VALUES ('default', CAST(extract(epoch FROM now()) AS BIGINT) * 1000000, '', '')
    """,
    """
    CREATE TABLE members (
        project TEXT COLLATE "C" NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
        user_name TEXT COLLATE "C" NOT NULL REFERENCES users (name),
        role TEXT NOT NULL,
        from_groups INTEGER NOT NULL,
        PRIMARY KEY (project, user_name)
    )
    """,
    "CREATE INDEX members_by_user ON members (user_name)",
    """
    CREATE TABLE tokens (
        id TEXT COLLATE "C" PRIMARY KEY,
        name TEXT NOT NULL,
        user_name TEXT COLLATE "C" NOT NULL REFERENCES users (name),
        project TEXT COLLATE "C" REFERENCES projects (name) ON DELETE CASCADE,
        scopes TEXT,
        digest TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT,
        last_used_at BIGINT,
        revoked_at BIGINT
    )
    """,
    "CREATE INDEX tokens_by_user ON tokens (user_name)",
    """
    CREATE TABLE secrets (
        project TEXT COLLATE "C" NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
        name TEXT COLLATE "C" NOT NULL,
        version INTEGER NOT NULL,
        value TEXT NOT NULL,
        set_by TEXT NOT NULL,
        set_at BIGINT NOT NULL,
        PRIMARY KEY (project, name)
    )
    """,
    """
    CREATE TABLE audit (
        seq BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        time BIGINT NOT NULL,
        user_name TEXT NOT NULL,
        action TEXT NOT NULL,
        object TEXT NOT NULL,
        project TEXT NOT NULL,
        allowed INTEGER NOT NULL,
        why TEXT NOT NULL,
        token_id TEXT NOT NULL,
        address TEXT NOT NULL,
        request_id TEXT NOT NULL
    )
    """,
    "CREATE INDEX audit_by_time ON audit (time)",
    "CREATE INDEX audit_by_user ON audit (user_name, seq)",
    "CREATE INDEX audit_by_project ON audit (project, seq)",
    "CREATE INDEX audit_by_object ON audit (object, seq)",
    # one row: entries from before this time may be deleted
    "CREATE TABLE audit_retention (before BIGINT NOT NULL)",
    "INSERT INTO audit_retention VALUES (0)",
    """
    CREATE FUNCTION audit_unchanged() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'entries of the audit log are never changed';
    END
    $$
    """,
    """
    CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit
        FOR EACH ROW EXECUTE FUNCTION audit_unchanged()
    """,
    """
    CREATE FUNCTION audit_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' AND OLD.time < (SELECT before FROM audit_retention) THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'entries of the audit log are kept';
    END
    $$
    """,
    """
    CREATE TRIGGER audit_kept BEFORE DELETE ON audit
        FOR EACH ROW EXECUTE FUNCTION audit_kept()
    """,
    """
    CREATE TRIGGER audit_kept_whole BEFORE TRUNCATE ON audit
        FOR EACH STATEMENT EXECUTE FUNCTION audit_kept()
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
