"""Start runs from files, wait for them, and read what they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from muster.control import run_lock
from support.embedded import embedded

#: Streams of programs, without Muster's own messages.
PROGRAM_OUTPUT = ["stdout", "stderr"]


def start(client: Client, target: Path, **overrides: object) -> JobRun:
    """Start a run of a program or job file, with overrides."""
    job, new = client.job(target)
    return client.start(client.prepare_run(job, overrides_from(overrides), new_job=new))


def start_spec(client: Client, spec: dict[str, Any], folder: Path) -> JobRun:
    """Write a spec file into the folder and start it."""
    path = folder / "job.json"
    path.write_text(json.dumps(spec))
    return start(client, path)


def output(run: JobRun) -> list[str]:
    """Lines of stdout and stderr of the last attempt, of all nodes."""
    return [record.message for record in run.logs(streams=PROGRAM_OUTPUT)]


def output_of_success(run: JobRun, timeout: float = 240) -> list[str]:
    """Wait for a run that must succeed; its output."""
    assert run.wait(timeout).state == "SUCCEEDED", run.details
    return output(run)


def until_ready(run: JobRun) -> None:
    """Wait until all nodes are ready. The supervisor has nothing left to record then, so that
    stopping it does not interrupt a transaction."""
    for _ in run.events(follow=True):
        if all(node.state == "READY" for node in run.nodes):
            return
    raise AssertionError(run.refresh().why())


def until_any_ready(run: JobRun) -> None:
    """Wait until one of the nodes is ready."""
    for _ in run.events(follow=True):
        if any(node.state == "READY" for node in run.nodes):
            return
    raise AssertionError(run.refresh().why())


def until_state(run: JobRun, state: str) -> None:
    """Wait until the event log has this state of the run."""
    for entry in run.events(follow=True):
        if entry.kind == "run" and entry.data["state"] == state:
            return
    raise AssertionError(run.refresh().why())


def supervisor_pid(client: Client, run: JobRun) -> int:
    pid = run_lock.last_holder(embedded(client).home.run_dir(run.id).lock)
    assert pid is not None
    return pid
