"""Queries use indexes."""

from __future__ import annotations

import pytest

from muster.errors import NotFound
from muster.store.postgres.database import Database
from muster.store.postgres.store import PostgresStore
from muster.store.records import RunFilter
from muster.store.sql.database import Row
from support.store_records import PROJECT, accept, job


class Explained(Database):
    """Also records PostgreSQL's plan for each query, for tables that are large."""

    plans: list[str]

    def read(self, sql: str, parameters: object = ()) -> list[Row]:
        with self.transaction() as connection:
            connection.execute("SET LOCAL enable_seqscan = off")
            connection.execute("SET LOCAL enable_sort = off")
            rows = connection.execute(f"EXPLAIN {sql}", parameters).fetchall()  # type: ignore[arg-type]
        self.plans.append("\n".join(row[0] for row in rows))
        return super().read(sql, parameters)  # type: ignore[arg-type]


def test_frequent_queries_use_an_index(url: str) -> None:
    db = Explained.open(url)
    assert isinstance(db, Explained)
    db.plans = []
    store = PostgresStore(db)
    made = accept(store, job())
    store.runs.live()
    store.runs.listing(PROJECT, RunFilter(limit=50))
    store.runs.listing(None, RunFilter(limit=50))
    store.runs.listing(PROJECT, RunFilter(since=1.0))
    store.events.since("abc", 5)
    store.runs.nodes("abc")
    store.jobs.events("abc", 5)
    store.jobs.artifact_in_use("abc")
    store.leases.get("abc")
    store.runs.expired(5.0)
    store.runs.find(PROJECT, made.name)
    store.runs.find(PROJECT, "last")
    with pytest.raises(NotFound):
        store.runs.find(PROJECT, "unknown")
    store.runs.with_requests([made.id])
    assert len(db.plans) > 12
    for plan in db.plans:
        assert "Seq Scan" not in plan, plan
    store.close()
