"""`muster runs adopt` of several runs, and runs of other hosts in other commands."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from muster.cli.run_choice import about
from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.errors import EngineError, InvalidInput, MusterError, Problem
from muster.identity import Owner
from support.command import json_of, muster, output_of
from support.embedded import embedded
from support.runs import until_ready

ELSEWHERE = Owner("other", "login-2", "another boot")


@pytest.fixture
def lost(client: Client) -> JobRun:
    """A run in progress whose host is gone."""
    job, new = client.job(command=["sleep", "1000"], name="lost")
    run = client.start(client.prepare_run(job, new_job=new))
    until_ready(run)
    service = embedded(client)
    pid = run_lock.holder_pid(service.home.run_dir(run.id).lock)
    assert pid is not None
    service.store.leases.take(run.id, ELSEWHERE, time.time(), force=True)
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.001)
    return run


def test_one_refusal_does_not_keep_others_from_being_adopted(client: Client, lost: JobRun) -> None:
    output_of("run", "--name", "done", "--", "true")
    output_of("run", "-d", "--name", "paused", "--suspend", "--", "true")
    output_of("run", "-d", "--name", "here", "--", "sleep", "1000")
    names = ("done-1", "nosuch", "paused-1", "here-1", lost.name, lost.name)
    done = muster("runs", "adopt", *names, code=2)
    killed = "a user adopted the run, because host login-2 is gone"
    assert done.stdout == (f"lost-1 is FAILED: node-0 (group workers, rank 0) was lost: {killed}\n")
    assert done.stderr.splitlines() == [
        "error: no run named 'nosuch' (`muster ps` lists them)",
        "error: done-1 has ended: it is SUCCEEDED (`muster run done` starts its job again)",
        "error: no host drives paused-1: it is SUSPENDED (`muster runs resume paused-1` continues "
        "it here)",
        "error: here-1 need not be adopted: it runs here (`muster status here-1` shows how far "
        "it is)",
    ]
    assert client.run(lost.name).state == "FAILED"


def test_adopted_runs_as_json(lost: JobRun) -> None:
    assert [run["name"] for run in json_of("runs", "adopt", lost.name, "--json")] == [lost.name]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            InvalidInput(Problem("engine", "no engine named 'slurm' is installed", "install it")),
            "lost-1: engine: no engine named 'slurm' is installed (install it)",
        ),
        (InvalidInput("is locked"), "lost-1: is locked"),
        (InvalidInput("lost-1 is locked"), "lost-1 is locked"),
        (EngineError("no space"), "lost-1: no space"),
        (EngineError("lost-1 has no space"), "lost-1 has no space"),
    ],
)
def test_an_error_names_the_run(error: MusterError, text: str) -> None:
    with pytest.raises(type(error)) as caught, about("lost-1"):
        raise error
    assert str(caught.value) == text


def test_top_names_a_run_of_another_host(lost: JobRun) -> None:
    done = muster("top", "--json", code=0)
    assert done.stdout.strip() == "[]"
    text = "lost-1 is not shown: lost-1 runs on the host login-2, not on this one\n"
    assert done.stderr == text
    muster("runs", "adopt", lost.name, code=0)
