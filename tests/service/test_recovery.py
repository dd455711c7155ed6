"""Recovery is a step of each use case; opening the database does not include it."""

from __future__ import annotations

from pathlib import Path

import pytest

import muster
from muster.client.client import Client, overrides_from
from muster.service.embedded import EmbeddedAPI
from muster.store.records import RunFilter
from support.embedded import embedded


@pytest.fixture
def expired(client: Client) -> str:
    """The id of a run whose time to live is over, and which no command has deleted yet."""
    job, new = client.job(command=["true"])
    overrides = overrides_from({"ttl_after_finished": 0})
    return client.start(client.prepare_run(job, overrides, new_job=new)).wait(60).id


def test_opening_the_database_deletes_nothing(client: Client, expired: str) -> None:
    service = EmbeddedAPI(embedded(client).home)
    assert service.store.runs.get(expired).state == "SUCCEEDED"
    service.recover()
    with pytest.raises(muster.NotFound):
        service.store.runs.get(expired)
    service.close()


@pytest.mark.parametrize("operation", ["run", "runs", "run_records", "find_run", "jobs", "cancel"])
def test_operations_recover_first(client: Client, expired: str, operation: str) -> None:
    service = EmbeddedAPI(embedded(client).home)
    if operation in ("runs", "run_records"):
        assert getattr(service, operation)(RunFilter()) == []
    elif operation == "jobs":
        assert [job.name for job in service.jobs()] == ["true"]
    else:
        with pytest.raises(muster.NotFound):
            getattr(service, operation)(expired)
    assert not service.home.run_dir(expired).path.exists()
    service.close()


def test_recovery_happens_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []
    monkeypatch.setattr(
        "muster.service.recovery.recover", lambda _store, home, *_: calls.append(home.root)
    )
    service = EmbeddedAPI(embedded(client).home)
    service.runs(RunFilter())
    service.jobs()
    service.recover()
    assert calls == [service.home.root]
    service.close()
