"""Waiting for a run whose supervisor was killed, while another process holds its lease."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.service.wait import recover_or_wait
from muster.storage.liveness import wait_for_process
from support.embedded import embedded
from support.faults import until

PROGRAM = "echo start $MUSTER_RESTART; [ $MUSTER_RESTART = 1 ] || exec sleep 1000"


@pytest.fixture
def run(client: Client) -> JobRun:
    """A run that succeeds once it is restarted."""
    job, new = client.job(command=["sh", "-c", PROGRAM], failure={"max_restarts": 1})
    run = client.start(client.prepare_run(job, new_job=new))
    until(lambda: list(run.logs(ranks=[0])), "the first output")
    return run


@pytest.fixture
def held(client: Client, run: JobRun) -> Iterator[int]:
    """The run's lease, held by this process after the run's supervisor was killed."""
    path = embedded(client).home.run_dir(run.id).lock
    pid = run_lock.holder_pid(path)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for_process(pid, 60)
    descriptor = run_lock.acquire(path)
    assert descriptor is not None
    yield descriptor


def test_a_timeout_ends_the_wait(run: JobRun, held: int) -> None:
    with pytest.raises(TimeoutError):
        run.wait(0.2)
    os.close(held)
    assert run.wait(60).state == "SUCCEEDED"


def test_the_wait_continues_when_the_lease_is_released(run: JobRun, held: int) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(run.wait, 60)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        os.close(held)
        assert waiting.result().state == "SUCCEEDED"


def test_a_follower_waits_for_another_process_to_recover_the_run(
    client: Client, run: JobRun, held: int
) -> None:
    with ThreadPoolExecutor() as pool:
        recovering = pool.submit(recover_or_wait, embedded(client).context, run.id)
        with pytest.raises(TimeoutError):
            recovering.result(0.2)
        os.close(held)
        recovering.result(60)
    assert run.wait(60).state == "SUCCEEDED"
