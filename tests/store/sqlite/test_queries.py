"""Queries: indexes, and rows that are corrupt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muster.errors import NotFound
from muster.store.records import CorruptRecord, RunFilter
from muster.store.sqlite.database import Database, Row
from muster.store.sqlite.search import by_prefix
from muster.store.sqlite.store import SqliteStore
from support.store_records import PROJECT, accept, job


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
    store.leases.expiring(5.0)
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
    assert len(searches) == 8
    for plan in searches:
        assert plan.startswith("SEARCH")
    db.close()


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
