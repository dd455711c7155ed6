"""Listing runs takes the same number of queries for any number of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.store.sqlite.database import Database, Row
from support.embedded import embedded


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries sent to any database from now on."""
    sent: list[str] = []
    read = Database.read

    def counted(self: Database, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        sent.append(sql)
        return read(self, sql, parameters)

    monkeypatch.setattr(Database, "read", counted)
    return sent


def submit_suspended(client: Client, path: Path) -> None:
    job, new = client.job(str(path))
    client.start(client.prepare_run(job, new_job=new))


def test_the_number_of_queries_does_not_depend_on_the_number_of_runs(
    client: Client, own_home: Path, tmp_path: Path, queries: list[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: ['true']\nsuspend: true\n")

    def count_queries() -> tuple[int, int, int, int]:
        """(runs, queries for their records, runs, queries for their summaries)."""
        counts: list[int] = []
        for listing in ("runs", "summaries"):
            fresh = Client(own_home)
            queries.clear()
            found = getattr(fresh, listing)()
            assert {run.state for run in found} == {"SUSPENDED"}
            counts += [len(found), len(queries)]
            embedded(fresh).close()
        return counts[0], counts[1], counts[2], counts[3]

    submit_suspended(client, path)
    one, records, _, summaries = count_queries()
    for _ in range(4):
        submit_suspended(client, path)
    assert one == 1
    assert count_queries() == (5, records, 5, summaries)
