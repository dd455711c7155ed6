"""A run has one owner: a supervisor whose lease was taken stops, and records nothing more."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.control import run_lock
from muster.control.recover import recover
from muster.identity import Owner
from muster.storage import wakeup
from muster.storage.liveness import wait_for_process
from muster.store.records import LeaseLost, RunStep
from support.embedded import embedded
from support.runs import until_ready

ELSEWHERE = Owner("other", "login-2", "another boot")


def start(client: Client, mark: str, **fields: object) -> str:
    job, new = client.job(command=["sleep", "1000"], env={"MARK": mark}, **fields)
    run = client.start(client.prepare_run(job, new_job=new))
    until_ready(run)
    return run.id


def supervisor_of(client: Client, run_id: str) -> int:
    pid = run_lock.holder_pid(embedded(client).home.run_dir(run_id).lock)
    assert pid is not None
    return pid


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_supervisor_that_wakes_up_after_its_lease_was_taken(
    client: Client, alive: Callable[[str], list[str]], restarts: int
) -> None:
    """It ends its nodes, which nobody drives any more, and says why in its log."""
    mark = f"of-a-lost-lease-{os.urandom(8).hex()}"
    run_id = start(client, mark, failure={"max_restarts": restarts})
    service, pid = embedded(client), supervisor_of(client, run_id)
    store, folder = service.store, service.home.run_dir(run_id)
    own = store.leases.get(run_id)
    assert own is not None
    os.kill(pid, signal.SIGSTOP)
    taken = store.leases.take(run_id, ELSEWHERE, time.time(), force=True)
    assert taken.token == own.token + 1
    store.runs.request(run_id, "cancel", "for the new owner", time.time())
    before = [entry.seq for entry in service.events(run_id)]
    wakeup.notify(folder.wakeup)
    os.kill(pid, signal.SIGCONT)
    wait_for_process(pid, 60)
    assert alive(mark) == []
    assert [entry.seq for entry in service.events(run_id)] == before, "it has recorded nothing"
    assert store.runs.get(run_id).state == "IN_PROGRESS"
    text = f"a process on login-2 drives run {run_id} now: this one records nothing more of it"
    assert text in folder.supervisor_log.read_text()
    with pytest.raises(LeaseLost):
        store.runs.save(RunStep(own, {"details": "by a loser"}, [], [], time.time()))
    store.runs.save(RunStep(taken, {"details": "by the owner"}, [], [], time.time()))
    # the fixture cancels it: here its owner is gone
    store.leases.release(taken)


def test_a_run_of_another_host_is_left_alone(client: Client) -> None:
    run_id = start(client, "x")
    service, pid = embedded(client), supervisor_of(client, run_id)
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.001)
    service.store.leases.take(run_id, ELSEWHERE, time.time(), force=True)
    before = [entry.seq for entry in service.events(run_id)]
    for folder in ("there", "moved away"):
        path = service.home.run_dir(run_id).path
        if folder == "moved away":
            path.rename(path.with_name("moved"))
        backend = service.context.backend
        assert recover(service.store, service.home, backend.start_supervisor) == []
        assert service.store.runs.get(run_id).state == "IN_PROGRESS"
        assert [entry.seq for entry in service.events(run_id)] == before
    path.with_name("moved").rename(path)
    service.store.leases.take(run_id, Owner("gone", "x", "y"), time.time(), force=True)
    held = service.store.leases.get(run_id)
    assert held is not None
    service.store.leases.release(held)
    assert client.run(run_id).wait(60).state == "FAILED", "nobody has it: it is recovered here"
