"""Runs that wait for resources that other runs have."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.engines.reservations.table import Reservations
from muster.errors import InvalidInput
from muster.node.machine import count_cpus, count_memory
from support.command import MUSTER, json_of, muster
from support.embedded import embedded
from support.faults import kill, until
from support.runs import output, start_spec, supervisor_pid, until_ready, until_state

#: More than half of the memory: two such runs do not fit.
MOST = count_memory() * 3 // 4
SLEEP = "exec sleep 1000"


def start(client: Client, folder: Path, program: str = SLEEP, **spec: Any) -> JobRun:
    command = ["sh", "-c", program]
    spec = {"name": "job", "resources": {"memory": MOST}, **spec}
    return start_spec(client, {"command": command, **spec}, folder)


def states(*runs: JobRun) -> list[str]:
    return [run.refresh().state for run in runs]


def test_runs_wait_in_order_and_start_when_the_one_before_has_ended(
    client: Client, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    program = f"echo start $MUSTER_RUN_NAME >> {log}; sleep 0.1; echo end >> {log}"
    first = start(client, tmp_path)
    runs = [start(client, tmp_path, program) for _ in range(3)]
    assert states(*runs) == ["QUEUED"] * 3
    assert runs[2].details.startswith("waiting for memory: needs ")
    assert f"; held by {first.name} (" in runs[2].details
    assert runs[2].details.endswith("; 2 earlier runs get it first")
    assert runs[2].why()[0] == runs[2].details
    until_ready(first)
    first.cancel("enough")
    for run in runs:
        assert run.wait(60).state == "SUCCEEDED"
    lines = log.read_text().split("\n")
    assert lines[1::2] == ["end"] * 3, "one after the other"
    assert lines[0:6:2] == [f"start {run.name}" for run in runs], "in the order of submission"
    kinds = [entry.data["state"] for entry in runs[0].events() if entry.kind == "run"]
    assert kinds == ["QUEUED", "ACCEPTED", "IN_PROGRESS", "SUCCEEDED"]


def test_a_run_that_needs_nothing_that_is_taken_starts_at_once(
    client: Client, tmp_path: Path
) -> None:
    start(client, tmp_path)
    start(client, tmp_path)
    free = [{}, {"cpus": 0.5}]
    for resources in free:
        assert start(client, tmp_path, "true", resources=resources).wait(60).state == "SUCCEEDED"


def test_a_queued_run_is_canceled_at_once_and_the_next_one_moves_up(
    client: Client, tmp_path: Path
) -> None:
    first, second, third = (start(client, tmp_path) for _ in range(3))
    assert second.cancel("enough").wait(60).state == "CANCELED"
    assert second.started_at is None
    assert states(first, third)[1] == "QUEUED"
    assert "earlier run" not in third.details
    (row,) = [line.split() for line in muster("ps").stdout.splitlines() if third.name in line]
    assert row[2:6] == ["QUEUED", "1", "-", "-"], "neither STARTED nor TIME"
    first.cancel("enough")
    until_state(third, "IN_PROGRESS")


def test_a_killed_holder_and_a_killed_waiter_make_room(client: Client, tmp_path: Path) -> None:
    first, second, third = (start(client, tmp_path) for _ in range(3))
    until_ready(first)
    os.kill(supervisor_pid(client, second), signal.SIGKILL)
    os.kill(supervisor_pid(client, first), signal.SIGKILL)
    # no command recovers the killed runs meanwhile
    until(lambda: _state_in_table(client, third) is True, "the third run is admitted")
    until_state(third, "IN_PROGRESS")
    other = Client(embedded(client).home.root)  # recovers them
    assert other.run(first.id).wait(60).state == "FAILED"
    assert other.run(second.id).state == "QUEUED"
    embedded(other).close()
    third.cancel("enough")
    until_state(second, "IN_PROGRESS")


def _state_in_table(client: Client, run: JobRun) -> bool | None:
    table = {one.run_id: one.granted for one in Reservations(embedded(client).home).read()}
    return table.get(run.id)


def test_a_suspended_run_gives_up_what_it_has_and_queues_when_resumed(
    client: Client, tmp_path: Path
) -> None:
    first, second = (start(client, tmp_path) for _ in range(2))
    until_ready(first)
    first.suspend()
    until_state(second, "IN_PROGRESS")
    assert first.resume().state == "QUEUED"
    assert first.details.startswith("waiting for memory")
    assert [node.state for node in first.nodes] == ["PENDING"]
    second.cancel("enough")
    until(lambda: states(first) == ["IN_PROGRESS"])


def test_a_queued_run_can_be_suspended(client: Client, tmp_path: Path) -> None:
    first, second = (start(client, tmp_path) for _ in range(2))
    second.suspend()
    until_state(second, "SUSPENDED")
    second.resume()
    first.cancel("enough")
    until(lambda: states(second) == ["IN_PROGRESS"])


def test_a_run_that_is_not_to_wait_is_refused_with_the_numbers(
    client: Client, tmp_path: Path
) -> None:
    first = start(client, tmp_path)
    refused = muster("run", "--no-wait", "--set", f"resources.memory={MOST}", "--", "true", code=2)
    assert f"free; held by {first.name} (" in refused.stderr
    assert "error: resources.memory: needs " in refused.stderr
    assert [run.id for run in client.runs()] == [first.id], "nothing is recorded"
    with pytest.raises(InvalidInput, match="held by"):
        client.start(_prepared(client), queue=False)
    assert len(Reservations(embedded(client).home).read()) == 1


def _prepared(client: Client) -> Any:
    job, new = client.job(None, command=["true"], resources={"memory": MOST})
    return client.prepare_run(job, new_job=new)


def test_scaling_up_takes_more_only_if_it_is_free(client: Client, tmp_path: Path) -> None:
    half = {"resources": {"memory": count_memory() * 4 // 10}}
    group = [{"name": "g", "replicas": 1, "max_replicas": 2, "command": ["sleep", "1000"]}]
    first = start_spec(client, {"name": "a", "node_groups": group, **half}, tmp_path)
    second = start(client, tmp_path, **half)
    until_ready(first)
    with pytest.raises(InvalidInput, match=rf"held by {second.name} \("):
        first.scale("g", 2)
    second.cancel("enough").wait(60)
    first.scale("g", 2)
    third = start(client, tmp_path, **half)
    assert third.state == "QUEUED"
    assert f"held by {first.name} (" in third.details


@pytest.mark.parametrize("own", [True, False])
def test_scaling_down_a_queued_run_lets_it_or_those_behind_it_start(
    client: Client, tmp_path: Path, own: bool
) -> None:
    def tenths(count: int) -> dict[str, object]:
        return {"resources": {"memory": count_memory() * count // 10}}

    group = [{"name": "g", "replicas": 2, "max_replicas": 2, "command": ["sleep", "1000"]}]
    first = start(client, tmp_path, **tenths(4 if own else 5))
    queued = start_spec(
        client, {"name": "b", "node_groups": group, **tenths(5 if own else 3)}, tmp_path
    )
    behind = queued if own else start(client, tmp_path, **tenths(2))
    assert states(queued, behind) == ["QUEUED"] * 2
    until_ready(first)
    queued.scale("g", 1)
    until_state(queued, "IN_PROGRESS")
    if own:
        until_ready(queued)
        assert [node.state for node in queued.refresh().nodes] == ["READY"]
    else:
        until_state(behind, "IN_PROGRESS")


def test_a_detached_run_is_reported_as_queued(client: Client, tmp_path: Path) -> None:
    start(client, tmp_path)
    more = ("--set", f"resources.memory={MOST}", "--", "true")
    detached = muster("run", "-d", *more, code=0)
    assert " is QUEUED, waiting for memory: needs " in detached.stderr
    run = json_of("runs", "show", detached.stdout.strip(), "--json")
    assert run["state"] == "QUEUED"
    assert run["details"].startswith("waiting for memory: needs ")
    (listed,) = json_of("runs", "list", "--state", "queued", "--json")
    assert listed["details"] == run["details"]


def test_a_followed_run_is_reported_as_queued_and_then_followed(
    client: Client, tmp_path: Path
) -> None:
    first = start(client, tmp_path)
    words = [*MUSTER, "run", "--set", f"resources.memory={MOST}", "--", "echo", "done"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, cwd=tmp_path, **pipes) as process:  # type: ignore[call-overload]
        head = next(line for line in process.stderr if not line.startswith("note: "))
        assert head.startswith("echo-1 is QUEUED, waiting for memory: needs ")
        assert head.endswith(" (Ctrl-C detaches)\n")
        first.cancel("enough")
        out, errors = process.communicate(timeout=60)
    assert "done" in out
    assert "starts 1 node" not in errors


def test_a_waiting_supervisor_sleeps(client: Client, tmp_path: Path) -> None:
    start(client, tmp_path)
    second = start(client, tmp_path)
    stat = Path(f"/proc/{supervisor_pid(client, second)}/status")

    def is_not_woken() -> bool:
        before = _switches(stat)
        time.sleep(0.5)
        return _switches(stat) == before

    until(is_not_woken, "nothing wakes it", timeout=20)


@pytest.mark.slow
def test_runs_whose_supervisors_are_killed_at_random_block_nobody(
    client: Client, tmp_path: Path, rng: random.Random
) -> None:
    """Holders and waiters are killed. The CPUs that runs have never exceed those of the machine."""
    table, runs = Reservations(embedded(client).home), []
    for _ in range(40):
        cpus = rng.choice((0.5, 1, count_cpus()))
        program = f"sleep {rng.choice((0.01, 0.1, 0.3))}"
        runs.append(start(client, tmp_path, program, resources={"cpus": cpus}))
        victim = rng.choice(runs)
        if rng.random() < 0.5 and not victim.refresh().done:
            pid = supervisor_pid(client, victim)
            time.sleep(rng.random() / 50)
            kill(pid)
        given = sum(one.needs.cpus for one in table.read() if one.granted)
        assert given <= count_cpus()
    for run in runs:
        assert run.wait(60).state in ("SUCCEEDED", "FAILED"), run.details
    assert table.read() == []


def _switches(stat: Path) -> list[str]:
    return [line for line in stat.read_text().splitlines() if "ctxt_switches" in line]


def test_runs_of_a_version_without_reservations_are_counted(client: Client, tmp_path: Path) -> None:
    first = start(client, tmp_path)
    until_ready(first)
    (embedded(client).home.root / "reservations.json").unlink()
    second = start(client, tmp_path, "echo done")
    assert second.state == "QUEUED"
    assert f"held by {first.name} (" in second.details
    first.cancel("enough")
    assert second.wait(60).state == "SUCCEEDED"
    assert output(second) == ["done"]
