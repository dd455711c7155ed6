"""Queries: indexes, and rows that are corrupt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muster.errors import NotFound
from muster.store.records import CorruptRecord, RunFilter, RunStep
from muster.store.sql.search import by_prefix
from muster.store.sqlite.connection import wal_of
from muster.store.sqlite.database import Database, Row
from muster.store.sqlite.store import SqliteStore
from support.store_records import PROJECT, accept, accept_and_drive, job


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore.open(tmp_path / "m.db")) as opened:
        yield opened


class Explained(Database):
    """Also records SQLite's plan for each query."""

    plans: list[str]

    def read(self, sql: str, parameters: object = ()) -> list[Row]:
        steps = super().read(f"EXPLAIN QUERY PLAN {sql}", parameters)  # type: ignore[arg-type]
        self.plans.append("; ".join(step["detail"] for step in steps))
        return super().read(sql, parameters)  # type: ignore[arg-type]


def test_frequent_queries_use_an_index(tmp_path: Path) -> None:
    """Reading each of 10,000 runs takes 15 ms."""
    db = Explained.open(tmp_path / "m.db")
    assert isinstance(db, Explained)
    db.plans = []
    store = SqliteStore(db)
    store.runs.live()
    store.runs.listing(PROJECT, RunFilter(limit=50))
    store.runs.listing(None, RunFilter(limit=50))
    store.runs.listing(PROJECT, RunFilter(since=1.0))
    by_prefix(db, "runs", PROJECT, "abcd")
    by_prefix(db, "jobs", PROJECT, "abcd")
    store.events.since("abc", 5)
    store.runs.nodes("abc")
    store.jobs.events("abc", 5)
    store.leases.get("abc")
    store.runs.expired(5.0)
    alive, newest, of_all, since, *searches = db.plans
    db.plans = []
    for text in ("last", "unknown"):
        with pytest.raises(NotFound):
            store.runs.find(PROJECT, text)
    assert len(db.plans) == 5
    for plan in db.plans:
        assert "SCAN" not in plan and "TEMP B-TREE" not in plan
    assert "USING INDEX runs_alive" in alive
    assert "USING INDEX runs_by_project" in newest
    assert of_all == "SCAN runs", "read in order from the end: nothing is sorted"
    assert "TEMP B-TREE" not in newest
    assert "USING INDEX runs_by_time" in since
    assert len(searches) == 7
    for plan in searches:
        assert plan.startswith("SEARCH")
    db.close()


class Measured(Database):
    """Also counts the characters that were read."""

    size: int

    def read(self, sql: str, parameters: object = ()) -> list[Row]:
        rows = super().read(sql, parameters)  # type: ignore[arg-type]
        self.size += sum(len(str(value)) for row in rows for value in row)
        return rows


@pytest.mark.parametrize("text", ["sweep", "sweep@2", "A sweep", "id-2", "id-2-of"])
def test_of_the_versions_of_a_job_only_one_is_read(tmp_path: Path, text: str) -> None:
    """Each may have another table of parameters."""
    db = Measured.open(tmp_path / "m.db")
    assert isinstance(db, Measured)
    db.size = 0
    with closing(SqliteStore(db)) as store:
        for number in range(1, 4):
            spec = {"text": "x" * 2**16}
            more = {"display_name": "A sweep", "content_hash": str(number)}
            store.jobs.insert(job("sweep", id=f"id-{number}-of-3", spec=spec, **more))
        found = store.jobs.find(PROJECT, text)
        assert (found.id, len(found.spec["text"])) == (f"id-{found.version}-of-3", 2**16)
        assert found.version == (2 if "2" in text else 3)
        assert db.size < 2**17


def test_a_step_neither_reads_nor_writes_the_settings_of_its_run(tmp_path: Path) -> None:
    """An array of 100,000 replicas may have 30 MB of parameters."""
    path = tmp_path / "m.db"
    with closing(SqliteStore.open(path)) as store:
        large = {"text": "x" * 2**20}
        made, lease = accept_and_drive(
            store, job(), spec=large, origins=large, overrides=large, plan=large
        )
        store.database.read("PRAGMA wal_checkpoint(TRUNCATE)")
        store.runs.request(made.id, "suspend", "enough", 2.0)
        store.runs.save(RunStep(lease, {"details": "changed", "lifecycle": {}}, [], [], 3.0))
        assert wal_of(path).stat().st_size < 2**17
        (row,) = store.database.read("SELECT * FROM runs")
        assert len(str([*row])) < 2**10
        assert store.runs.get(made.id).spec == large


def test_an_unreadable_event_is_named(store: SqliteStore) -> None:
    accept(store, job(id="jobid"))
    with store.database.transaction() as connection:
        connection.execute("UPDATE job_events SET data = '{'")
    with pytest.raises(CorruptRecord, match=r"event 1 of the job jobid in .* --after 1` shows"):
        store.jobs.events("jobid")


def test_corrupt_tags_hide_no_other_run(store: SqliteStore) -> None:
    tagged = accept(store, job(), tags={"team": "ml"})
    damaged = accept(store, job(), tags={"team": "ml"})
    with store.database.transaction() as connection:
        connection.execute("UPDATE runs SET tags = '{' WHERE id = ?", (damaged.id,))
    assert [run.id for run in store.runs.listing(PROJECT, RunFilter(tags={"team": "ml"}))] == [
        tagged.id
    ]
    first, second = store.runs.listing(PROJECT, RunFilter())
    assert (first.id, second.id) == (damaged.id, tagged.id)
    assert "corrupt: tags" in first.details
