"""Settle and forget what is left of resources."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.errors import NotFound
from muster.server.oci.cleaning import clean_up
from muster.server.oci.job_runs import lifecycle_details
from muster.server.oci.jobs import RUN_KIND
from muster.store.resource_records import ResourceRecord
from muster.store.sqlite.store import SqliteStore

DAY = 86400.0
RUN = ResourceRecord(RUN_KIND, "r1", "p", "n", "ACCEPTED", "ana", 0.0, 0.0, {}, run_id="r1")


def test_a_run_that_was_never_started_has_failed(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "m.db")
    store.resources.insert(RUN)
    store.resources.insert(replace(RUN, id="r2", run_id="r2", created_at=7000.0))
    clean_up(store, 7200.0)
    failed, waiting = (store.resources.get(RUN_KIND, name) for name in ("r1", "r2"))
    assert (failed.state, waiting.state) == ("FAILED", "ACCEPTED")
    assert lifecycle_details(failed) == "the server was ended while it started the run"
    assert failed.data["finishedAt"] == 7200.0
    store.close()


def test_what_was_deleted_is_listed_for_30_days(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "m.db")
    store.resources.insert(replace(RUN, state="DELETED"))
    clean_up(store, 29 * DAY)
    assert store.resources.get(RUN_KIND, "r1").state == "DELETED"
    clean_up(store, 31 * DAY)
    with pytest.raises(NotFound):
        store.resources.get(RUN_KIND, "r1")
    store.close()
