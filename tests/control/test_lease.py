"""The lease of a run without a supervisor."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.client.client import Client
from muster.control import lease
from muster.errors import InvalidInput
from muster.identity import Owner
from support.embedded import embedded


@pytest.fixture
def run_id(client: Client) -> str:
    """A suspended run, which nobody drives."""
    job, new = client.job(None, command=["true"], suspend=True)
    return client.start(client.prepare_run(job, new_job=new)).id


def test_a_lease_is_released_after_use_and_after_an_error(client: Client, run_id: str) -> None:
    service = embedded(client)
    folder = service.home.run_dir(run_id)
    with lease.held(service.store, folder, run_id, "true-1") as own:
        assert service.store.leases.get(run_id) == own
    assert service.store.leases.get(run_id) is None
    with pytest.raises(ZeroDivisionError), lease.held(service.store, folder, run_id, "true-1"):
        raise ZeroDivisionError
    assert service.store.leases.get(run_id) is None


def test_a_run_of_another_host_is_named_at_once(client: Client, run_id: str) -> None:
    service = embedded(client)
    other = service.store.leases.take(run_id, Owner("another", "node17", "boot17"), 0.0)
    with (
        pytest.raises(InvalidInput, match="true-1 runs on the host node17, not on this one"),
        lease.held(service.store, service.home.run_dir(run_id), run_id, "true-1"),
    ):
        pytest.fail("it has a lease of another host")
    assert lease.other_host(service.store, run_id) == "node17"
    service.store.leases.release(other)


@pytest.mark.parametrize("damage", ["token = 9223372036854775807", "expires_at = 'soon'"])
def test_a_damaged_lease_is_nobodys(client: Client, run_id: str, damage: str) -> None:
    service = embedded(client)
    service.store.leases.take(run_id, Owner("another", "node17", "boot17"), 0.0)
    database = service.context.backend.store.database
    database.write(lambda connection: connection.execute(f"UPDATE leases SET {damage}"))
    assert service.store.leases.get(run_id) is None
    run = client.run(run_id)
    run.cancel()
    assert run.wait(60).state == "CANCELED"


def test_the_environment_is_deleted_when_a_suspended_run_is_canceled(
    client: Client, tmp_path: Path
) -> None:
    job, new = client.job(None, command=["sleep", "1000"])
    run = client.start(client.prepare_run(job, new_job=new))
    assert run.suspend().wait(60).state == "SUSPENDED"
    assert embedded(client).home.run_dir(run.id).environ.exists()
    run.cancel()
    assert not embedded(client).home.run_dir(run.id).environ.exists()
