"""Settle and forget what is left of resources."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.errors import NotFound
from muster.server.oci.cleaning import forget_deleted, settle_cut_off
from muster.server.oci.job_runs import lifecycle_details
from muster.server.oci.jobs import RUN_KIND
from muster.storage.home import Home
from muster.storage.request_keys import held
from muster.store.resource_records import ResourceRecord
from muster.store.sqlite.store import SqliteStore

DAY = 86400.0
RUN = ResourceRecord(RUN_KIND, "r1", "p", "n", "ACCEPTED", "ana", 0.0, 0.0, {}, run_id="r1")


def test_a_run_that_was_never_started_has_failed(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "m.db")
    store.resources.insert(RUN)
    store.resources.insert(replace(RUN, id="r2", run_id="r2", created_at=7100.0))
    settle_cut_off(Home(tmp_path), store, 7200.0)
    failed, waiting = (store.resources.get(RUN_KIND, name) for name in ("r1", "r2"))
    assert (failed.state, waiting.state) == ("FAILED", "ACCEPTED")
    assert lifecycle_details(failed) == "the server was ended while it started the run"
    assert failed.data["finishedAt"] == 7200.0
    store.close()


def test_a_run_that_a_server_starts_is_left_to_it(tmp_path: Path) -> None:
    store, home = SqliteStore.open(tmp_path / "m.db"), Home(tmp_path)
    store.resources.insert(RUN)
    with held(home, RUN.id, RUN_KIND):
        settle_cut_off(home, store, 7200.0)
        assert store.resources.get(RUN_KIND, "r1").state == "ACCEPTED"
    settle_cut_off(home, store, 7200.0)
    assert store.resources.get(RUN_KIND, "r1").state == "FAILED"
    store.close()


def test_a_run_that_another_server_settles_keeps_no_others_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore.open(tmp_path / "m.db")
    for name in ("r1", "r2", "r3"):
        store.resources.insert(replace(RUN, id=name, run_id=name))
    before = store.resources.in_state(RUN_KIND, "ACCEPTED", 0.0)
    store.resources.update(before[0], replace(before[0], name="changed"))
    store.resources.delete(RUN_KIND, "r2")
    monkeypatch.setattr(type(store.resources), "in_state", lambda *_: before)
    settle_cut_off(Home(tmp_path), store, 7200.0)
    states = [store.resources.get(RUN_KIND, name).state for name in ("r1", "r3")]
    assert states == ["ACCEPTED", "FAILED"]
    store.close()


def test_what_was_deleted_is_listed_for_30_days(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "m.db")
    store.resources.insert(replace(RUN, state="DELETED"))
    forget_deleted(store, 29 * DAY)
    assert store.resources.get(RUN_KIND, "r1").state == "DELETED"
    forget_deleted(store, 31 * DAY)
    with pytest.raises(NotFound):
        store.resources.get(RUN_KIND, "r1")
    store.close()
