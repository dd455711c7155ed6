"""Splitting scripts into statements, and migrations."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from muster.store.records import RunFilter
from muster.store.sqlite.database import Database
from muster.store.sqlite.schema import MIGRATIONS, statements
from muster.store.sqlite.store import SqliteStore
from support.store_records import PROJECT

TRIGGER = "CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE a SET x = 1; DELETE FROM b; END"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", []),
        (" ;\n; ", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';'; SELECT 2", ["SELECT ';'", "SELECT 2"]),
        (f"{TRIGGER};SELECT 2", [TRIGGER, "SELECT 2"]),
        ("-- a; comment\nSELECT 1; SELECT 2", ["-- a; comment\nSELECT 1", "SELECT 2"]),
    ],
)
def test_scripts_are_split_into_statements(script: str, expected: list[str]) -> None:
    assert [statement.strip() for statement in statements(script)] == expected


V1 = "CREATE TABLE parents (id TEXT PRIMARY KEY); CREATE TABLE children (of REFERENCES parents)"
# as SQLite requires for a changed column: a new, filled table replaces the old one
V2 = """
    CREATE TABLE rebuilt (id TEXT PRIMARY KEY, born INTEGER NOT NULL);
    INSERT INTO rebuilt SELECT id, 2000 FROM parents;
    DROP TABLE parents;
    ALTER TABLE rebuilt RENAME TO parents;
"""


def create_first_version(path: Path) -> None:
    db = Database.open(path, migrations=[V1])
    with db.transaction() as connection:
        connection.execute("INSERT INTO parents VALUES ('ann')")
        connection.execute("INSERT INTO children VALUES ('ann')")
    db.close()


def test_a_referenced_table_is_rebuilt_with_its_data(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    create_first_version(path)
    db = Database.open(path, migrations=[V1, V2])
    assert [tuple(row) for row in db.read("SELECT * FROM parents")] == [("ann", 2000)]
    assert [tuple(row) for row in db.read("SELECT * FROM children")] == [("ann",)]
    with pytest.raises(sqlite3.IntegrityError), db.transaction() as connection:
        connection.execute("INSERT INTO children VALUES ('missing')")
    db.close()


def test_a_failed_migration_leaves_the_earlier_version(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    create_first_version(path)
    broken = "ALTER TABLE parents ADD nice; UPDATE parents SET nice = 1; SELECT nonsense"
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        Database.open(path, migrations=[V1, V2, broken])
    db = Database.open(path, migrations=[V1])
    assert [tuple(row) for row in db.read("SELECT * FROM parents")] == [("ann",)]
    db.close()


def test_released_migrations_create_the_tables(tmp_path: Path) -> None:
    db = Database.open(tmp_path / "m.db")
    names = {row["name"] for row in db.read("SELECT name FROM sqlite_master WHERE type = 'table'")}
    of_jobs, of_runs = {"jobs", "job_events"}, {"runs", "run_specs", "plans", "nodes", "events"}
    of_accounts = {"users", "projects", "members", "tokens", "secrets", "audit", "audit_retention"}
    of_oci = {"public_keys", "resources"}
    of_objects = {"buckets", "objects", "object_pieces", "object_uploads", "access_links"}
    of_hooks = {"webhooks", "webhook_deliveries"}
    of_events = {"listeners", "outbox", "deliveries", "notifications", *of_hooks}
    of_policies = {"policies", "policy_revisions", "policy_generation"}
    of_groups = {"user_groups", "group_members", "dynamic_groups"}
    others = {"schedules", "firings", "numbers", "leases", "sqlite_sequence"}
    assert names == (of_jobs | of_runs | of_accounts | of_oci | of_objects | of_events | others) | (
        of_policies | of_groups
    )
    assert db.read("PRAGMA user_version")[0][0] == len(MIGRATIONS)
    db.close()


def test_runs_of_the_first_version_are_kept(tmp_path: Path) -> None:
    """With their plan and their spec, which have their own tables since."""
    path = tmp_path / "m.db"
    old = Database.open(path, migrations=MIGRATIONS[:1])
    with old.transaction() as connection:
        connection.execute(
            "INSERT INTO jobs VALUES ('j', 'job', 1, '', '{}', NULL, NULL, '', '{}', 0, 0)"
        )
        connection.execute(
            "INSERT INTO runs VALUES ('r', 'job-1', 1, 'j', 'job', 'FAILED', 'boom', 'local', "
            """0, 1, 2, 3, 7, 1, '{"nodes": 1}', '{"nodes": "job"}', '{"tags": {}}', """
            """'{"run_id": "r"}', '{}', '[]', NULL, NULL)"""
        )
        connection.execute(
            "INSERT INTO nodes VALUES ('r', 0, 'g', 0, 0, 'r-0', 'node-0', '1', 'FAILED', 7, 2, 3)"
        )
    old.close()
    store = SqliteStore.open(path)
    run = store.runs.get("r")
    assert (run.plan, run.details, run.exit_code) == ({"run_id": "r"}, "boom", 7)
    found = (run.spec, run.origins, run.overrides)
    assert found == ({"nodes": 1}, {"nodes": "job"}, {"tags": {}})
    assert (run.suspend_reason, run.expires_at) == (None, None)
    (node,) = store.runs.nodes("r")
    assert (node.exit_code, node.signal, node.incarnation, node.intent) == (7, 0, 0, "")
    store.runs.delete("r")
    read = store.database.read
    for table in ("runs", "run_specs", "plans", "nodes"):
        assert read(f"SELECT * FROM {table}") == []
    store.close()


def test_jobs_and_runs_of_the_third_version_are_kept(tmp_path: Path) -> None:
    """Runs keep the labels of their Jobs, and the event log of Jobs starts with what is known."""
    path = tmp_path / "m.db"
    old = Database.open(path, migrations=MIGRATIONS[:3])
    with old.transaction() as connection:
        connection.execute(
            "INSERT INTO jobs VALUES ('j', 'job', 1, 'h', '{}', NULL, NULL, '', '{}', 5, 6)"
        )
        columns = "id, name, number, job_id, job_name, state, details, engine, attempt, created_at"
        rest = "node_count, spec, origins, overrides, lifecycle, notes"
        for number, spec in enumerate(('{"tags": {"a": "b"}}', "{}", "broken")):
            connection.execute(
                f"INSERT INTO runs ({columns}, {rest}) VALUES (?, ?, ?, 'j', 'job', 'FAILED', '', "
                "'local', 0, 7, 1, ?, '{}', '{}', '{}', '[]')",
                (f"r{number}", f"job-{number}", number, spec),
            )
    old.close()
    store = SqliteStore.open(path)
    job = store.jobs.find(PROJECT, "job")
    assert (job.display_name, job.created_by, job.state) == (None, "", "ACTIVE")
    (event,) = store.jobs.events("j")
    assert (event.seq, event.time, event.kind, event.by, event.data) == (1, 5, "created", "", {})
    listed = store.runs.listing(PROJECT, RunFilter())
    assert [run.tags for run in listed] == [{}, {}, {"a": "b"}]
    assert {(run.display_name, run.created_by) for run in listed} == {(None, "")}
    store.close()
