"""Recovery is a step of each use case; opening the database does not include it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import muster
from muster.client.client import Client, overrides_from
from muster.service.embedded import EmbeddedAPI
from muster.store.records import RunFilter
from support.embedded import embedded
from support.faults import until
from support.runs import supervisor_pid


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


def test_recovery_happens_at_times(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []
    monkeypatch.setattr(
        "muster.service.recovery.recover", lambda _store, home, *_: calls.append(home.root)
    )
    now = 100.0
    monkeypatch.setattr("muster.service.recovery.time.monotonic", lambda: now)
    service = EmbeddedAPI(embedded(client).home)
    service.runs(RunFilter())
    service.jobs()
    service.recover()
    assert calls == [service.home.root]
    now += 10
    service.jobs()
    assert calls == [service.home.root] * 2
    service.close()


@pytest.mark.usefixtures("own_launcher")
def test_a_process_that_only_looks_recovers_a_run(client: Client) -> None:
    """A notebook that polls a run whose supervisor was killed."""
    job, new = client.job(command=["sh", "-c", "exec sleep $((1000 - 1000 * MUSTER_ATTEMPT))"])
    overrides = overrides_from({"max_restarts": 1})
    run = client.start(client.prepare_run(job, overrides, new_job=new))
    until(lambda: run.refresh().state == "IN_PROGRESS")
    os.kill(supervisor_pid(client, run), signal.SIGKILL)
    until(lambda: run.refresh().state == "SUCCEEDED")
