"""Databases of earlier versions, of newer ones and of other programs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from muster.errors import StoreError
from muster.lifecycle.schedule import Timing
from muster.lifecycle.trigger import Webhook
from muster.store import default_policy
from muster.store.account_records import AuditFilter
from muster.store.postgres import schema
from muster.store.postgres.migration import known_revisions
from muster.store.postgres.store import PostgresStore
from muster.store.records import RunFilter, RunStep
from support.postgres import shared_server
from support.store_records import OWNER, PROJECT, accept, job

#: Rows as a released version wrote them, a file for each revision of the schema.
RELEASED = Path(__file__).with_name("released")
COLUMNS = """
    SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default
    FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2
"""
INDEXES = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"


@pytest.fixture
def name() -> Iterator[str]:
    """An empty database."""
    made = shared_server().create()
    yield made
    shared_server().drop(made)


def migrate(name: str, to: str) -> None:
    url = shared_server().url(name, driver="")
    with closing(psycopg.connect(url, autocommit=True)) as raw:
        schema.migrate(raw, "the database", to=to)


def shape(name: str) -> tuple[list[Any], set[Any]]:
    """The columns and indexes of a database."""
    server = shared_server()
    return server.execute(name, COLUMNS), {*server.execute(name, INDEXES)}


def test_the_newest_revision_is_known() -> None:
    assert known_revisions()[0] == schema.HEAD


def test_each_revision_has_rows_of_its_version() -> None:
    assert sorted(file.stem for file in RELEASED.iterdir()) == sorted(known_revisions())


@pytest.mark.parametrize("revision", known_revisions())
def test_a_released_database_is_migrated(name: str, revision: str) -> None:
    server = shared_server()
    migrate(name, revision)
    server.execute(name, (RELEASED / f"{revision}.sql").read_text())
    with closing(PostgresStore.open(server.url(name))) as store:
        (found,) = store.jobs.listing(PROJECT)
        assert (found.handle, found.spec, found.tags) == (
            "train@1",
            {"command": ["x"]},
            {"team": "ml"},
        )
        second, first = store.runs.listing(PROJECT, RunFilter())
        assert (first.name, first.state, second.name, second.state) == (
            *("train-1", "SUCCEEDED"),
            *("train-2", "IN_PROGRESS"),
        )
        assert [entry.kind for entry in store.events.since(first.id)] == ["run", "run"]
        assert store.runs.get(second.id).plan == {"nodes": [1, 2]}
        assert [node.state for node in store.runs.nodes(second.id)] == ["RUNNING", "PENDING"]
        lease = store.leases.get(second.id)
        assert lease is not None and (lease.owner, lease.token) == (OWNER.id, 3)
        store.runs.save(RunStep(lease, {"state": "FAILED"}, [], [("x", {})], 9.0))
        assert accept(store, job()).name == "train-3"
        if revision >= "0002":
            check_accounts(store)
        if revision >= "0003":
            check_schedules(store)
        if revision >= "0004":
            check_oci(store)
        if revision >= "0005":
            check_notifications(store)
        if revision >= "0007":
            check_objects(store)
        check_policies(store, revision)
    fresh = server.create()
    try:
        PostgresStore.open(server.url(fresh)).close()
        assert shape(name) == shape(fresh)
    finally:
        server.drop(fresh)


def check_accounts(store: PostgresStore) -> None:
    (user,) = store.accounts.users()
    assert (user.name, user.admin, user.disabled) == ("ana", True, False)
    (member,) = store.accounts.members(project="vision")
    assert (member.user, member.role) == ("ana", "admin")
    assert [token.name for token in store.accounts.tokens(user="ana")] == ["laptop"]
    assert [secret.version for secret in store.secrets.listing("vision")] == [2]
    assert [one.action for one in store.audit.listing(AuditFilter())] == ["runs.cancel"]


def check_schedules(store: PostgresStore) -> None:
    *hooks, schedule = store.schedules.listing(PROJECT)
    for hook in hooks:  # since 0006
        assert (hook.name, hook.trigger, hook.paused, hook.next_at) == (
            *("hook", Webhook(), False),
            None,
        )
        assert store.schedules.delivered(hook.id, "msg_1") == (True, None)
        webhook = store.schedules.webhook(hook.id)
        assert webhook is not None and webhook.set_at == 1.0
    assert (schedule.name, schedule.job, schedule.next_at) == ("nightly", "train@1", 90.0)
    assert schedule.timing == Timing(cron="0 3 * * *", time_zone="Europe/Rome", since=1.0)
    skipped, started = store.schedules.firings(schedule.id)
    assert (skipped.outcome, started.outcome, started.run_name) == ("skipped", "started", "train-2")


def check_oci(store: PostgresStore) -> None:
    assert [key.fingerprint for key in store.keys.listing("ana")] == ["20:3b:97"]
    run = store.resources.get("datasciencejobrun", "run1run1ru")
    assert (run.name, run.state, run.data, run.parent) == (
        *("first", "SUCCEEDED", {"jobId": "x"}),
        "job1job1jo",
    )


def check_notifications(store: PostgresStore) -> None:
    (notification,) = store.notifications.listing(PROJECT)
    assert (notification.name, notification.on, notification.tags) == (
        *("failures", ("run.failed",), {"team": None}),
    )
    latest, failed = store.notifications.deliveries(PROJECT)
    assert latest.state == "pending"  # the step above has reported it
    assert (failed.state, failed.attempts, failed.answer) == ("failed", 15, "HTTP 500")
    assert store.notifications.retry(PROJECT, 9.0) == 1
    claimed = store.notifications.claim(10.0, 70.0, limit=10)
    assert [one.entry.subject for one in claimed] == ["runs/run1run1ru", "runs/run2run2ru"]


def check_objects(store: PostgresStore) -> None:
    bucket = store.buckets.get("models")
    record = store.objects.get(bucket.id, "a/b")
    assert (record.headers, record.metadata) == ({"content-type": "text/plain"}, {"epoch": "7"})
    assert [piece.file for piece in store.objects.pieces(record.content)] == ["f1f1f1f1f1"]
    (upload,) = store.objects.uploads(bucket.id)
    assert [piece.size for piece in store.objects.pieces(upload.id)] == [5]
    assert store.buckets.link_by_digest("00").name == "for ben"


def check_policies(store: PostgresStore, revision: str) -> None:
    job_runs, *others = store.policies.policies()
    assert (job_runs.id, job_runs.statements) == (default_policy.ID, default_policy.STATEMENTS)
    assert [one.version for one in store.policies.revisions(job_runs.id)] == [1]
    for policy in others:  # since 0008
        assert (policy.name, policy.compartment, policy.version) == ("trainers", "vision", 2)
        assert [one.version for one in store.policies.revisions(policy.id)] == [2, 1]
        assert [one.name for one in store.policies.groups_of("ana")] == ["trainers"]
        (robots,) = store.policies.dynamic_groups()
        assert robots.rule == "resource.type = 'datasciencejobrun'"
        assert store.accounts.project("cameras").parent == "vision"
        (entry,) = store.audit.listing(AuditFilter(permission="DATA_SCIENCE_JOB_RUN_UPDATE"))
        assert (entry.statement, entry.attributes) == (
            "trainers#2",
            {"target.job-run.id": "run1run1ru"},
        )
    assert len(others) == (revision >= "0008")
    assert store.policies.load().generation >= 1


def test_a_newer_database_is_refused(name: str) -> None:
    server = shared_server()
    PostgresStore.open(server.url(name)).close()
    server.execute(name, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"newer Muster \(schema 9999, this one knows \d+\); up"):
        PostgresStore.open(server.url(name))


def test_a_database_of_another_program_is_refused(name: str) -> None:
    server = shared_server()
    server.execute(name, "CREATE TABLE jobs (id TEXT)")
    with pytest.raises(StoreError, match="used by another program"):
        PostgresStore.open(server.url(name))
    assert server.execute(name, "SELECT to_regclass('runs')") == [(None,)]


def test_a_migration_that_fails_changes_nothing(name: str) -> None:
    server = shared_server()
    server.execute(name, "CREATE TABLE leases (id TEXT)")  # in the way of a later statement
    with pytest.raises(psycopg.errors.DuplicateTable):
        PostgresStore.open(server.url(name))
    assert server.execute(name, "SELECT to_regclass('runs')") == [(None,)]


def test_one_of_many_processes_migrates(name: str, rng: random.Random) -> None:
    from concurrent.futures import ThreadPoolExecutor

    url = shared_server().url(name)

    def use(_: int) -> None:
        with closing(PostgresStore.open(url)) as store:
            accept(store, job(f"job-{rng.random()}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    with closing(PostgresStore.open(url)) as store:
        assert len(store.runs.live()) == 8
