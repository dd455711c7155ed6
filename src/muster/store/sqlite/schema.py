"""The tables, as a list of migrations: version N of the schema is the result of the first N."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from muster.store import default_policy


def _to_micros(column: str) -> str:
    """An expression for a time in a column as microseconds: seconds are floats."""
    whole = f"CAST(round({column} * 1000000) AS INTEGER)"
    return f"CASE WHEN typeof({column}) = 'real' THEN {whole} ELSE {column} END"


def _keep_micros(table: str, key: str, *columns: str, update: bool) -> str:
    """A trigger that converts seconds which a process of an earlier version writes: runs in
    progress continue under the supervisor that started them. update: with UPDATE, not INSERT.

    Not for nodes: their times are only read, which `times.seconds` does for seconds too, and a
    trigger on each of thousands of nodes takes a tenth of a restart."""
    old = " OR ".join(f"typeof(new.{name}) = 'real'" for name in columns)
    sets = ", ".join(f"{name} = {_to_micros(name)}" for name in columns)
    row = " AND ".join(f"{name} = new.{name}" for name in key.split())
    name, event = (
        (f"{table}_seconds", f"UPDATE OF {', '.join(columns)}")
        if update
        else (f"{table}_first_seconds", "INSERT")
    )
    return (
        f"CREATE TRIGGER {name} AFTER {event} ON {table} WHEN {old} "
        f"BEGIN UPDATE {table} SET {sets} WHERE {row}; END;"
    )


def _count_number(table: str, kind: str, name: str, number: str) -> str:
    """A trigger that counts a number which a process of an earlier version gives: it does not know
    the table of numbers."""
    row = f"project = new.project AND name = new.{name}"
    counted = f"SELECT 1 FROM numbers WHERE {row} AND {kind} >= new.{number}"
    return f"""CREATE TRIGGER {table}_numbered AFTER INSERT ON {table}
    WHEN NOT EXISTS ({counted}) BEGIN
        INSERT INTO numbers (project, name, {kind}) VALUES (new.project, new.{name}, new.{number})
        ON CONFLICT (project, name) DO UPDATE SET {kind} = max({kind}, new.{number});
    END;"""


def _move_spec(event: str, into: str) -> str:
    """A trigger that moves what a process of an earlier version writes into the former columns.
    into: the statement that stores it."""
    name = f"runs_spec_{event.split(maxsplit=1)[0].lower()}"
    return f"""CREATE TRIGGER {name} AFTER {event} ON runs WHEN new.spec != '{{}}' BEGIN
        {into};
        UPDATE runs SET spec = '{{}}', origins = '{{}}', overrides = '{{}}' WHERE id = new.id;
    END;"""


def _count_change(table: str, event: str, when: str = "") -> str:
    """A trigger that counts changes of what the decisions of policies need."""
    name = f"{table}_{event.split(maxsplit=1)[0].lower()}_counted"
    condition = f"WHEN {when} " if when else ""
    return (
        f"CREATE TRIGGER {name} AFTER {event} ON {table} {condition}"
        "BEGIN UPDATE policy_generation SET value = value + 1; END;"
    )


def _count_changes(table: str, update: str = "UPDATE", when: str = "") -> str:
    """As `_count_change`, for all changes; or only for updates of some columns, to other values."""
    changes = (("INSERT", ""), (update, when), ("DELETE", ""))
    return "\n".join(_count_change(table, *change) for change in changes)


#: Times of a run that change.
_RUN_TIMES = (
    "started_at",
    "finished_at",
    "cancel_requested_at",
    "suspend_requested_at",
    "expires_at",
)

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
    # times are whole microseconds; projects; numbers that are given once; leases
    f"""
    CREATE TABLE new_jobs (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        project TEXT NOT NULL DEFAULT 'default',
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        content_hash TEXT NOT NULL,
        spec TEXT NOT NULL,
        artifact_sha256 TEXT,
        artifact_name TEXT,
        description TEXT NOT NULL,
        tags TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        display_name TEXT,
        created_by TEXT NOT NULL DEFAULT '',
        state TEXT NOT NULL DEFAULT 'ACTIVE',
        UNIQUE (project, name, version)
    );
    INSERT INTO new_jobs (
        position, id, name, version, content_hash, spec, artifact_sha256, artifact_name,
        description, tags, created_at, updated_at, display_name, created_by, state
    ) SELECT
        rowid,
        id,
        name,
        version,
        content_hash,
        spec,
        artifact_sha256,
        artifact_name,
        description,
        tags,
        {_to_micros("created_at")},
        {_to_micros("updated_at")},
        display_name,
        created_by,
        state
        FROM jobs;
    DROP TABLE jobs;
    ALTER TABLE new_jobs RENAME TO jobs;
    CREATE INDEX jobs_by_content ON jobs (content_hash);
    CREATE TABLE new_runs (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        project TEXT NOT NULL DEFAULT 'default',
        name TEXT NOT NULL,
        number INTEGER NOT NULL,
        job_id TEXT NOT NULL REFERENCES jobs (id),
        job_name TEXT NOT NULL,
        state TEXT NOT NULL,
        details TEXT NOT NULL,
        engine TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        started_at INTEGER,
        finished_at INTEGER,
        exit_code INTEGER,
        node_count INTEGER NOT NULL,
        spec TEXT NOT NULL,
        origins TEXT NOT NULL,
        overrides TEXT NOT NULL,
        lifecycle TEXT NOT NULL,
        notes TEXT NOT NULL,
        cancel_requested_at INTEGER,
        cancel_reason TEXT,
        suspend_requested_at INTEGER,
        suspend_reason TEXT,
        expires_at INTEGER,
        scale_requested TEXT NOT NULL DEFAULT '{{}}',
        display_name TEXT,
        created_by TEXT NOT NULL DEFAULT '',
        tags TEXT NOT NULL DEFAULT '{{}}',
        UNIQUE (project, name)
    );
    INSERT INTO new_runs (
        position, id, name, number, job_id, job_name, state, details, engine, attempt,
        created_at, started_at, finished_at, exit_code, node_count, spec, origins, overrides,
        lifecycle, notes, cancel_requested_at, cancel_reason, suspend_requested_at,
        suspend_reason, expires_at, scale_requested, display_name, created_by, tags
    ) SELECT
        rowid,
        id,
        name,
        number,
        job_id,
        job_name,
        state,
        details,
        engine,
        attempt,
        {_to_micros("created_at")},
        {_to_micros("started_at")},
        {_to_micros("finished_at")},
        exit_code,
        node_count,
        spec,
        origins,
        overrides,
        lifecycle,
        notes,
        {_to_micros("cancel_requested_at")},
        cancel_reason,
        {_to_micros("suspend_requested_at")},
        suspend_reason,
        {_to_micros("expires_at")},
        scale_requested,
        display_name,
        created_by,
        tags
        FROM runs;
    DROP TABLE runs;
    ALTER TABLE new_runs RENAME TO runs;
    CREATE INDEX runs_by_project ON runs (project, position);
    CREATE INDEX runs_by_state ON runs (project, state, position);
    CREATE INDEX runs_by_time ON runs (created_at);
    CREATE INDEX runs_by_job ON runs (job_name, number);
    CREATE INDEX runs_of_job ON runs (job_id);
    CREATE INDEX runs_alive ON runs (state)
        WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'DELETED');
    CREATE INDEX runs_expiring ON runs (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX runs_by_display_name ON runs (project, display_name)
        WHERE display_name IS NOT NULL;
    CREATE TABLE new_nodes (
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
        started_at INTEGER,
        finished_at INTEGER,
        signal INTEGER NOT NULL DEFAULT 0,
        incarnation INTEGER NOT NULL DEFAULT 0,
        intent TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (run_id, rank)
    ) WITHOUT ROWID;
    INSERT INTO new_nodes (
        run_id, rank, grp, replica, idx, node_id, fqdn, address, state, exit_code, started_at,
        finished_at, signal, incarnation, intent
    ) SELECT
        run_id,
        rank,
        grp,
        replica,
        idx,
        node_id,
        fqdn,
        address,
        state,
        exit_code,
        {_to_micros("started_at")},
        {_to_micros("finished_at")},
        signal,
        incarnation,
        intent
        FROM nodes;
    DROP TABLE nodes;
    ALTER TABLE new_nodes RENAME TO nodes;
    CREATE TABLE new_events (
        run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        time INTEGER NOT NULL,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (run_id, seq)
    ) WITHOUT ROWID;
    INSERT INTO new_events SELECT run_id, seq, {_to_micros("time")}, kind, data FROM events;
    DROP TABLE events;
    ALTER TABLE new_events RENAME TO events;
    CREATE TABLE new_job_events (
        job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        time INTEGER NOT NULL,
        kind TEXT NOT NULL,
        by TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (job_id, seq)
    ) WITHOUT ROWID;
    INSERT INTO new_job_events
        SELECT job_id, seq, {_to_micros("time")}, kind, by, data FROM job_events;
    DROP TABLE job_events;
    ALTER TABLE new_job_events RENAME TO job_events;
    CREATE TABLE numbers (
        project TEXT NOT NULL,
        name TEXT NOT NULL,
        versions INTEGER NOT NULL DEFAULT 0,
        runs INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (project, name)
    ) WITHOUT ROWID;
    INSERT INTO numbers (project, name, versions)
        SELECT project, name, max(version) FROM jobs GROUP BY project, name;
    INSERT INTO numbers (project, name, runs)
        SELECT project, job_name, max(number) FROM runs WHERE true GROUP BY project, job_name
        ON CONFLICT (project, name) DO UPDATE SET runs = excluded.runs;
    CREATE TABLE leases (
        run_id TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
        owner TEXT NOT NULL,
        host TEXT NOT NULL,
        boot TEXT NOT NULL,
        token INTEGER NOT NULL,
        expires_at INTEGER
    ) WITHOUT ROWID;
    CREATE INDEX leases_by_owner ON leases (owner);
    CREATE INDEX leases_expiring ON leases (expires_at) WHERE expires_at IS NOT NULL;
    {_count_number("jobs", "versions", "name", "version")}
    {_count_number("runs", "runs", "job_name", "number")}
    {_keep_micros("jobs", "id", "created_at", "updated_at", update=False)}
    {_keep_micros("jobs", "id", "updated_at", update=True)}
    {_keep_micros("job_events", "job_id seq", "time", update=False)}
    {_keep_micros("runs", "id", "created_at", *_RUN_TIMES, update=False)}
    {_keep_micros("runs", "id", *_RUN_TIMES, update=True)}
    {_keep_micros("events", "run_id seq", "time", update=False)}
    """,
    # results of programs
    """
    ALTER TABLE nodes ADD COLUMN metrics TEXT NOT NULL DEFAULT '';
    """,
    # specs beside their runs, for the same reason as plans: an array from a file has its rows there
    f"""
    CREATE TABLE run_specs (
        run_id TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
        spec TEXT NOT NULL,
        origins TEXT NOT NULL,
        overrides TEXT NOT NULL
    );
    INSERT INTO run_specs SELECT id, spec, origins, overrides FROM runs;
    ALTER TABLE runs DROP COLUMN spec;
    ALTER TABLE runs DROP COLUMN origins;
    ALTER TABLE runs DROP COLUMN overrides;
    -- empty: processes of an earlier version that have the file open read and write them
    ALTER TABLE runs ADD COLUMN spec TEXT NOT NULL DEFAULT '{{}}';
    ALTER TABLE runs ADD COLUMN origins TEXT NOT NULL DEFAULT '{{}}';
    ALTER TABLE runs ADD COLUMN overrides TEXT NOT NULL DEFAULT '{{}}';
    {
        _move_spec(
            "INSERT",
            "INSERT INTO run_specs VALUES (new.id, new.spec, new.origins, new.overrides)",
        )
    }
    {
        _move_spec(
            "UPDATE OF spec",
            "UPDATE run_specs SET spec = new.spec, origins = new.origins WHERE run_id = new.id",
        )
    }
    """,
    # users, projects, members, tokens; secrets; the audit log, whose entries only `Audit` deletes
    """
    CREATE TABLE users (
        name TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        display_name TEXT NOT NULL,
        issuer TEXT NOT NULL,
        subject TEXT NOT NULL,
        admin INTEGER NOT NULL,
        disabled INTEGER NOT NULL
    );
    CREATE UNIQUE INDEX users_by_name ON users (lower(name));
    CREATE UNIQUE INDEX users_by_subject ON users (issuer, subject) WHERE subject != '';
    CREATE TABLE projects (
        name TEXT PRIMARY KEY,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        description TEXT NOT NULL
    );
    CREATE UNIQUE INDEX projects_by_name ON projects (lower(name));
    INSERT INTO projects
        VALUES ('default', CAST(strftime('%s', 'now') AS INTEGER) * 1000000, '', '');
    CREATE TABLE members (
        project TEXT NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
        user_name TEXT NOT NULL REFERENCES users (name),
        role TEXT NOT NULL,
        from_groups INTEGER NOT NULL,
        PRIMARY KEY (project, user_name)
    );
    CREATE INDEX members_by_user ON members (user_name);
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        user_name TEXT NOT NULL REFERENCES users (name),
        project TEXT REFERENCES projects (name) ON DELETE CASCADE,
        scopes TEXT,
        digest TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        last_used_at INTEGER,
        revoked_at INTEGER
    );
    CREATE INDEX tokens_by_user ON tokens (user_name);
    CREATE TABLE secrets (
        project TEXT NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        value TEXT NOT NULL,
        set_by TEXT NOT NULL,
        set_at INTEGER NOT NULL,
        PRIMARY KEY (project, name)
    );
    CREATE TABLE audit (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        time INTEGER NOT NULL,
        user_name TEXT NOT NULL,
        action TEXT NOT NULL,
        object TEXT NOT NULL,
        project TEXT NOT NULL,
        allowed INTEGER NOT NULL,
        why TEXT NOT NULL,
        token_id TEXT NOT NULL,
        address TEXT NOT NULL,
        request_id TEXT NOT NULL
    );
    CREATE INDEX audit_by_time ON audit (time);
    CREATE INDEX audit_by_user ON audit (user_name, seq);
    CREATE INDEX audit_by_project ON audit (project, seq);
    CREATE INDEX audit_by_object ON audit (object, seq);
    -- one row: entries from before this time may be deleted
    CREATE TABLE audit_retention (before INTEGER NOT NULL);
    INSERT INTO audit_retention VALUES (0);
    CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit BEGIN
        SELECT raise(ABORT, 'entries of the audit log are never changed');
    END;
    CREATE TRIGGER audit_kept BEFORE DELETE ON audit
    WHEN old.time >= (SELECT before FROM audit_retention) BEGIN
        SELECT raise(ABORT, 'entries of the audit log are kept');
    END;
    """,
    # schedules, and what was done at their times; runs of them may have been deleted
    """
    CREATE TABLE schedules (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        project TEXT NOT NULL,
        job_id TEXT NOT NULL REFERENCES jobs (id),
        timing TEXT NOT NULL,
        overrides TEXT NOT NULL,
        environ TEXT NOT NULL,
        notes TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        next_at INTEGER,
        local INTEGER NOT NULL,
        version INTEGER NOT NULL,
        UNIQUE (project, name)
    );
    CREATE INDEX schedules_by_job ON schedules (job_id);
    CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;
    CREATE TABLE firings (
        schedule_id TEXT NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
        time INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        decided_at INTEGER NOT NULL,
        why TEXT NOT NULL,
        passed INTEGER NOT NULL,
        run_id TEXT,
        by TEXT NOT NULL,
        PRIMARY KEY (schedule_id, time)
    ) WITHOUT ROWID;
    CREATE INDEX firings_starting ON firings (decided_at) WHERE outcome = 'starting';
    """,
    # public keys, and the resources of the OCI API
    """
    CREATE TABLE public_keys (
        fingerprint TEXT PRIMARY KEY,
        user_name TEXT NOT NULL REFERENCES users (name),
        name TEXT NOT NULL,
        pem TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL
    );
    CREATE INDEX public_keys_by_user ON public_keys (user_name);
    CREATE TABLE resources (
        kind TEXT NOT NULL,
        id TEXT NOT NULL,
        project TEXT NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        data TEXT NOT NULL,
        parent TEXT NOT NULL,
        run_id TEXT,
        version INTEGER NOT NULL,
        PRIMARY KEY (kind, id)
    ) WITHOUT ROWID;
    CREATE INDEX resources_by_time ON resources (kind, project, created_at, id);
    CREATE INDEX resources_by_name ON resources (kind, project, name, id);
    CREATE INDEX resources_by_parent ON resources (parent, kind);
    CREATE INDEX resources_by_change ON resources (updated_at);
    """,
    # events for listeners, and notifications, which are listeners
    """
    CREATE TABLE listeners (
        project TEXT NOT NULL,
        type TEXT NOT NULL,
        id TEXT NOT NULL,
        kind TEXT NOT NULL,
        PRIMARY KEY (project, type, id)
    ) WITHOUT ROWID;
    CREATE INDEX listeners_by_id ON listeners (id);
    CREATE TABLE outbox (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        time INTEGER NOT NULL,
        project TEXT NOT NULL,
        type TEXT NOT NULL,
        subject TEXT NOT NULL,
        data TEXT NOT NULL
    );
    CREATE TABLE deliveries (
        listener TEXT NOT NULL,
        seq INTEGER NOT NULL REFERENCES outbox (seq),
        kind TEXT NOT NULL,
        subject TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending',
        due_at INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        claim TEXT NOT NULL DEFAULT '',
        claimed_until INTEGER NOT NULL DEFAULT 0,
        first_at INTEGER,
        answer TEXT NOT NULL DEFAULT '',
        settled_at INTEGER,
        PRIMARY KEY (listener, seq)
    ) WITHOUT ROWID;
    CREATE INDEX deliveries_by_entry ON deliveries (seq);
    CREATE INDEX deliveries_due ON deliveries (kind, due_at) WHERE state = 'pending';
    CREATE INDEX deliveries_in_order ON deliveries (listener, subject, seq)
        WHERE state = 'pending';
    CREATE TABLE notifications (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        project TEXT NOT NULL,
        kind TEXT NOT NULL,
        target TEXT NOT NULL,
        types TEXT NOT NULL,
        job TEXT NOT NULL,
        tags TEXT NOT NULL,
        format TEXT NOT NULL,
        oci_condition TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        local INTEGER NOT NULL,
        paused INTEGER NOT NULL,
        version INTEGER NOT NULL,
        sealed TEXT NOT NULL,
        UNIQUE (project, name)
    );
    """,
    # events that start the runs of schedules
    """
    ALTER TABLE schedules ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
    UPDATE schedules SET paused = 1 WHERE next_at IS NULL;
    ALTER TABLE schedules ADD COLUMN trigger TEXT NOT NULL DEFAULT 'null';
    ALTER TABLE schedules ADD COLUMN decided INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE firings ADD COLUMN event TEXT NOT NULL DEFAULT 'null';
    CREATE TABLE webhooks (
        schedule_id TEXT PRIMARY KEY REFERENCES schedules (id) ON DELETE CASCADE,
        secret TEXT NOT NULL,
        set_at INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE webhook_deliveries (
        schedule_id TEXT NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
        id TEXT NOT NULL,
        received_at INTEGER NOT NULL,
        run_id TEXT,
        PRIMARY KEY (schedule_id, id)
    ) WITHOUT ROWID;
    CREATE INDEX webhook_deliveries_by_time ON webhook_deliveries (received_at);
    """,
    # object storage
    """
    CREATE TABLE buckets (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        project TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        settings TEXT NOT NULL,
        version INTEGER NOT NULL
    );
    CREATE TABLE objects (
        bucket TEXT NOT NULL REFERENCES buckets (id),
        name TEXT NOT NULL,
        etag TEXT NOT NULL,
        content TEXT NOT NULL,
        size INTEGER NOT NULL,
        md5 TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        modified_at INTEGER NOT NULL,
        headers TEXT NOT NULL,
        metadata TEXT NOT NULL,
        PRIMARY KEY (bucket, name)
    ) WITHOUT ROWID;
    CREATE TABLE object_pieces (
        content TEXT NOT NULL,
        number INTEGER NOT NULL,
        file TEXT NOT NULL UNIQUE,
        size INTEGER NOT NULL,
        etag TEXT NOT NULL,
        md5 TEXT NOT NULL,
        PRIMARY KEY (content, number)
    ) WITHOUT ROWID;
    CREATE TABLE object_uploads (
        id TEXT PRIMARY KEY,
        bucket TEXT NOT NULL REFERENCES buckets (id),
        name TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        headers TEXT NOT NULL,
        metadata TEXT NOT NULL
    );
    CREATE TABLE access_links (
        id TEXT PRIMARY KEY,
        bucket TEXT NOT NULL REFERENCES buckets (id),
        name TEXT NOT NULL,
        digest TEXT NOT NULL UNIQUE,
        access TEXT NOT NULL,
        object_name TEXT,
        lists INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
    );
    CREATE INDEX buckets_by_project ON buckets (project, name);
    CREATE INDEX object_uploads_by_bucket ON object_uploads (bucket, id);
    CREATE INDEX access_links_by_bucket ON access_links (bucket, id);
    """,
    # policies, groups, the tree of projects; what allowed the entries of the audit log; the jobs of
    # the OCI API that Jobs are of
    f"""
    CREATE TABLE policies (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        compartment TEXT NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
        description TEXT NOT NULL,
        statements TEXT NOT NULL,
        version INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        updated_at INTEGER NOT NULL,
        updated_by TEXT NOT NULL
    );
    CREATE UNIQUE INDEX policies_by_name ON policies (compartment, lower(name));
    CREATE TABLE policy_revisions (
        policy_id TEXT NOT NULL REFERENCES policies (id) ON DELETE CASCADE,
        version INTEGER NOT NULL,
        description TEXT NOT NULL,
        statements TEXT NOT NULL,
        changed_at INTEGER NOT NULL,
        changed_by TEXT NOT NULL,
        PRIMARY KEY (policy_id, version)
    ) WITHOUT ROWID;
    INSERT INTO policies SELECT
        '{default_policy.ID}',
        '{default_policy.NAME}',
        'default',
        '{default_policy.DESCRIPTION}',
        {default_policy.STATEMENTS_SQL},
        1, created_at, '', created_at, ''
        FROM (SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000 AS created_at);
    INSERT INTO policy_revisions
        SELECT id, version, description, statements, updated_at, updated_by FROM policies;
    CREATE TABLE user_groups (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        description TEXT NOT NULL,
        version INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        updated_at INTEGER NOT NULL,
        updated_by TEXT NOT NULL
    );
    CREATE UNIQUE INDEX user_groups_by_name ON user_groups (lower(name));
    CREATE TABLE group_members (
        group_id TEXT NOT NULL REFERENCES user_groups (id),
        user_name TEXT NOT NULL REFERENCES users (name),
        added_at INTEGER NOT NULL,
        added_by TEXT NOT NULL,
        PRIMARY KEY (group_id, user_name)
    ) WITHOUT ROWID;
    CREATE INDEX group_members_by_user ON group_members (user_name);
    CREATE TABLE dynamic_groups (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        description TEXT NOT NULL,
        rule TEXT NOT NULL,
        version INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        updated_at INTEGER NOT NULL,
        updated_by TEXT NOT NULL
    );
    CREATE UNIQUE INDEX dynamic_groups_by_name ON dynamic_groups (lower(name));
    ALTER TABLE projects ADD COLUMN parent TEXT NOT NULL DEFAULT '';
    -- one row: see `Policies.generation`
    CREATE TABLE policy_generation (value INTEGER NOT NULL);
    INSERT INTO policy_generation VALUES (1);
    {_count_changes("policies")}
    {_count_changes("user_groups")}
    {_count_changes("group_members")}
    {_count_changes("dynamic_groups")}
    {_count_changes("projects", "UPDATE OF parent", "old.parent != new.parent")}
    {_count_changes("members", "UPDATE OF role", "old.role != new.role")}
    {
        _count_changes(
            "users",
            "UPDATE OF admin, disabled",
            "old.admin != new.admin OR old.disabled != new.disabled",
        )
    }
    ALTER TABLE audit ADD COLUMN permission TEXT NOT NULL DEFAULT '';
    ALTER TABLE audit ADD COLUMN statement TEXT NOT NULL DEFAULT '';
    ALTER TABLE audit ADD COLUMN attributes TEXT NOT NULL DEFAULT '{{}}';
    ALTER TABLE audit ADD COLUMN run TEXT NOT NULL DEFAULT '';
    ALTER TABLE jobs ADD COLUMN oci_job TEXT NOT NULL DEFAULT '';
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
