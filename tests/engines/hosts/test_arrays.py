"""Arrays on several machines, with a real sshd on machines in network namespaces."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.faults import until
from support.lab import Lab, laboratory, needs_lab

pytestmark = needs_lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with laboratory(tmp_path, 2) as made:
        made.add_engine(slots=2)
        yield made


def start(lab: Lab, count: int, script: str, *words: str) -> str:
    """Start an array of so many replicas. Returns its name."""
    array = ["--array", f"n=1..{count}", *words, "--", "sh", "-c", script]
    code, _, err = lab.muster("run", "--engine", "hosts", "--detach", *array)
    assert code == 0, err
    return err.split()[0]


def rows(lab: Lab, name: str) -> list[dict[str, Any]]:
    code, out, err = lab.muster("runs", "table", name, "--json", "--all")
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)
    return found


def status(lab: Lab, name: str) -> dict[str, Any]:
    code, out, err = lab.muster("status", name, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def folder(lab: Lab, name: str) -> Path:
    return lab.home / "runs" / str(status(lab, name)["id"])


#: Prints its number, and leaves a file and a result.
WORK = (
    "echo replica $MUSTER_PARAM_N; echo $MUSTER_PARAM_N > $MUSTER_OUTPUTS/own; "
    'echo "{\\"square\\": $((MUSTER_PARAM_N * MUSTER_PARAM_N))}" > $MUSTER_OUTPUTS/metrics.json; '
)


def check_outputs(lab: Lab, name: str, count: int) -> None:
    """Each replica has run once, and everything of it is here."""
    code, out, err = lab.muster("logs", name)
    assert code == 0, err
    lines = sorted(int(line.split()[-1]) for line in out.splitlines() if " replica " in line)
    assert lines == list(range(1, count + 1))
    outputs = folder(lab, name) / "outputs"
    for rank in range(count):
        assert (outputs / f"rank-{rank}" / "own").read_text() == f"{rank + 1}\n"


def test_replicas_run_on_all_machines(lab: Lab) -> None:
    name = start(lab, 50, WORK)
    assert lab.muster("wait", name)[0] == 0
    found = {row["parameters"]["n"]: row["metrics"]["square"] for row in rows(lab, name)}
    assert found == {n: n * n for n in range(1, 51)}
    check_outputs(lab, name, 50)
    events = json.loads(lab.muster("events", name, "--json")[1])
    assert not [event for event in events if event["kind"] == "failure"]
    for machine in lab.machines:
        until(lambda one=machine: not any(one.nodes.iterdir()), "its files there are removed")


def test_a_supervisor_that_is_killed(lab: Lab) -> None:
    waits = [
        f"[ $MUSTER_PARAM_N -le {done} ] || until [ -e {lab.folder}/{done} ]; do sleep 0.05; done"
        for done in (8, 24)
    ]
    name = start(lab, 50, "; ".join([*waits, WORK]))
    for done in (8, 24):
        until(lambda done=done: len(ended(lab, name)) == done, "some have ended", pause=0.1)
        (supervisor,) = lab.supervisors()
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: not lab.supervisors(), "it has ended")
        (lab.folder / f"{done}").touch()
    assert lab.muster("wait", name)[0] == 0
    assert [row["state"] for row in rows(lab, name)] == ["SUCCEEDED"] * 50
    check_outputs(lab, name, 50)


def ended(lab: Lab, name: str) -> list[dict[str, Any]]:
    return [row for row in rows(lab, name) if row["state"] == "SUCCEEDED"]


def test_a_machine_that_disappears_holds_up_only_what_runs_there(lab: Lab) -> None:
    name = start(lab, 12, f"{WORK} sleep 0.5")
    until(lambda: len(ended(lab, name)) >= 4, "some have ended", pause=0.1)
    first, _ = lab.machines
    first.cut()
    until(lambda: len(ended(lab, name)) >= 10, "the others run on the other machine", pause=0.2)
    first.join()
    assert lab.muster("wait", name)[0] == 0
    check_outputs(lab, name, 12)


def test_a_machine_in_use_is_left_out_and_used_later(lab: Lab) -> None:
    flag = lab.folder / "flag"
    other = lab.start(f"until [ -e {flag} ]; do sleep 0.1; done", 2)
    until(lambda: status(lab, other)["state"] == "IN_PROGRESS", pause=0.2)
    release = lab.folder / "go-on"
    name = start(lab, 6, f"{WORK} until [ -e {release} ]; do sleep 0.1; done", "--parallelism", "4")

    def states() -> list[str]:
        return sorted(node["state"] for node in status(lab, name)["nodes"])

    until(lambda: states() == ["QUEUED", "QUEUED", "READY", "READY"], pause=0.2)
    flag.touch()
    until(lambda: states() == ["READY"] * 4, pause=0.2)
    release.touch()
    assert lab.muster("wait", name)[0] == 0
    check_outputs(lab, name, 6)
