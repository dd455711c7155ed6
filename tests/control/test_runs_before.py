"""Runs that wait until others have succeeded."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from support.faults import until

GATE = 'while [ ! -e "$GATE" ]; do sleep 0.05; done; echo data > "$MUSTER_RUN_OUTPUTS/x"; '
USE = 'cat "$MUSTER_AFTER_OUTPUTS/x"; echo "$MUSTER_AFTER_RUN"'


@pytest.fixture
def gate(client: Client, tmp_path: Path) -> Path:
    """A file that ends the first run when it is made."""
    return tmp_path / "gate"


def first(gate: Path, end: str = "") -> JobRun:
    command = ["sh", "-c", GATE + end]
    return muster.run(command=command, name="first", env={"GATE": str(gate)})


def second(*before: JobRun) -> JobRun:
    after = [run.name for run in before]
    return muster.run(command=["sh", "-c", USE], name="second", after=after)


def state(run: JobRun, expected: str) -> None:
    until(lambda: run.refresh().state == expected, f"{run.name} is {expected}", 60)


def test_a_run_starts_when_the_one_before_has_succeeded(gate: Path) -> None:
    before = first(gate)
    run = second(before)
    assert (run.state, run.details) == ("QUEUED", "waits until first-1 has succeeded")
    gate.touch()
    assert run.wait().state == "SUCCEEDED"
    assert [line.message for line in run.logs() if line.rank is not None] == ["data", "first-1"]
    finished = before.refresh().finished_at
    assert finished is not None and run.started_at is not None
    assert run.started_at >= finished


@pytest.mark.parametrize("end", ["exit 3", "cancel"])
def test_a_run_is_canceled_if_the_one_before_cannot_succeed(gate: Path, end: str) -> None:
    before = first(gate, "exit 3")
    run = second(before)
    if end == "cancel":
        before.cancel()
    else:
        gate.touch()
    assert run.wait().state == "CANCELED"
    word = "CANCELED" if end == "cancel" else "FAILED"
    assert f"first-1, which it waited for, is {word}" in run.details


def test_a_run_waits_for_several(gate: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    runs = [first(gate), first(other)]
    run = second(*runs)
    assert run.details == "waits until first-1 and first-2 have succeeded"
    gate.touch()
    runs[0].wait()
    until(lambda: run.refresh().details == "waits until first-2 has succeeded", "one is left", 60)
    run.cancel()
    assert run.wait().state == "CANCELED"
    other.touch()


def test_a_run_after_one_that_has_succeeded_starts_at_once(gate: Path) -> None:
    gate.touch()
    before = first(gate)
    before.wait()
    assert second(before).wait().state == "SUCCEEDED"


def test_what_cannot_succeed_is_refused_at_once(gate: Path) -> None:
    gate.touch()
    before = first(gate, "exit 3")
    before.wait()
    with pytest.raises(InvalidInput, match="first-1 is FAILED, so the run would never start"):
        second(before)
    with pytest.raises(InvalidInput, match="no run named 'nothing'"):
        muster.run(command=["true"], after=["nothing"])


@pytest.mark.embedded("it kills a supervisor of this machine")
def test_another_supervisor_waits_on(gate: Path) -> None:
    before = first(gate)
    run = second(before)
    home = Client().api.home  # type: ignore[attr-defined]
    from muster.control import run_lock

    pid = run_lock.last_holder(home.run_dir(run.id).lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not run_lock.is_supervisor(pid, home.run_dir(run.id)), "it is gone", 60)
    Client().runs()  # recovers
    assert (run.refresh().state, run.details) == ("QUEUED", "waits until first-1 has succeeded")
    gate.touch()
    assert run.wait().state == "SUCCEEDED"


def test_a_suspended_run_before_is_waited_for(gate: Path) -> None:
    before = first(gate)
    run = second(before)
    before.suspend()
    state(before, "SUSPENDED")
    assert run.refresh().state == "QUEUED"
    gate.touch()
    before.resume()
    assert run.wait().state == "SUCCEEDED"
