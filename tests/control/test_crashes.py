"""Killed at every step: no accepted run is lost, no effect doubled, no process left.

The supervisor ends itself, as by `kill -9`, at the n-th point where its memory and the store could
differ; then somebody else looks at the run. This is done for every n there is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.lifecycle.fold import fold

#: Starts a run whose supervisor dies at point N: before and after each record, after each effect.
SUBMIT = """
import os, sys
from muster.client.client import Client
from muster.control.controller import Controller
from muster.control.launcher import Launcher
from muster.control.ledger import StoreLedger

point, left = int(sys.argv[1]), [int(sys.argv[1])]

def here():
    left[0] -= 1
    if left[0] == 0:
        os._exit(9)  # as SIGKILL, which a namespace's first process does not take from itself

def deadly(function):
    def call(*args):
        here()
        result = function(*args)
        here()
        return result
    return call

StoreLedger.record = deadly(StoreLedger.record)
Controller._act = deadly(Controller._act)
client = Client(launcher=Launcher.fork())
job, new = client.job(sys.argv[2])
print(client.start(client.draft(job, new_job=new)).id)
"""

PROGRAM = """
echo $NODE_RANK $MUSTER_RESTART >> $MUSTER_MOUNT_TOLD/lives
test $NODE_RANK-$MUSTER_RESTART != 1-0
"""


#: In the environment of the run's programs, and nowhere else.
MARK = f"of-a-crash-{os.urandom(8).hex()}"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "told").mkdir()
    (tmp_path / "program.sh").write_text(PROGRAM)
    path = tmp_path / "job.yaml"
    path.write_text(
        "artifact: program.sh\nnodes: 2\nmounts: [{source: told}]\n"
        "failure: {max_restarts: 9, backoff: {initial: 0}}\n"
        f"env: {{MARK: {MARK}}}\n"
    )
    return path


def submit(point: int, job: Path) -> str:
    argv = [sys.executable, "-c", SUBMIT, str(point), str(job)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def lives(job: Path) -> Iterator[tuple[int, int]]:
    """(rank, incarnation) of every program that ran."""
    for line in (job.parent / "told" / "lives").read_text().splitlines():
        rank, restart = line.split()
        yield int(rank), int(restart)


@pytest.mark.parametrize("strategy", ["in_place", pytest.param("recreate", marks=pytest.mark.slow)])
def test_killed_at_every_step(
    job: Path, client: Client, alive: Callable[[str], list[str]], strategy: str
) -> None:
    text = job.read_text().replace("max_restarts: 9", f"max_restarts: 9, strategy: {strategy}")
    job.write_text(text)
    killed = survived = 0
    for point in range(1, 1000):
        (job.parent / "told" / "lives").unlink(missing_ok=True)
        run = client.run(submit(point, job)).wait(60)
        assert run.state == "SUCCEEDED", (point, run.details)
        assert alive(MARK) == []
        ran = list(lives(job))
        assert len(set(ran)) == len(ran), f"point {point}: no life of a node is lived twice"
        last = max(restart for _, restart in ran)
        assert {rank for rank, restart in ran if restart == last} == {0, 1}
        _check_log(client, run.id)
        lost = sum(entry.kind == "supervisor_lost" for entry in run.events())
        assert lost <= 1
        killed += lost
        survived += not lost
        if survived == 3:  # how many steps a run takes varies with what is told at once
            break
    assert killed > 10, "there are that many steps in such a run"


def _check_log(client: Client, run_id: str) -> None:
    """The event log alone tells where the run stands."""
    run = client.run(run_id)
    entries = list(run.events())
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    told = fold((entry.kind, entry.data) for entry in entries)
    assert (told.state, told.details, told.attempt) == (run.state, run.details, run.attempt)
    assert [told.nodes[node.rank][0] for node in run.nodes] == [n.state for n in run.nodes]


@pytest.mark.parametrize(
    "where",
    [
        "muster.store.runs.insert",
        "muster.control.launcher.Launcher.start",
        "muster.control.watch.begin_life",
        "muster.control.bell.install",
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_submitter_is_killed(job: Path, client: Client, where: str, when: str) -> None:
    """A run is accepted, and then it is run, or it never was."""
    module, _, name = where.rpartition(".")
    code = (
        "import os, sys, importlib\n"
        "from muster.client.client import Client\n"
        "import muster.service as service\n"
        f"path, name, when = {module!r}, {name!r}, {when!r}\n"
        "try:\n"
        "    owner = importlib.import_module(path)\n"
        "except ModuleNotFoundError:\n"
        "    path, _, inner = path.rpartition('.')\n"
        "    owner = getattr(importlib.import_module(path), inner)\n"
        "real = getattr(owner, name)\n"
        "def deadly(*args, **more):\n"
        "    if when == 'after':\n"
        "        real(*args, **more)\n"
        "    os.kill(os.getpid(), 9)\n"
        "setattr(owner, name, deadly)\n"
        "if hasattr(service, name):\n"
        "    setattr(service, name, deadly)\n"
        "client = Client()\n"
        "job, new = client.job(sys.argv[1])\n"
        "client.start(client.draft(job, new_job=new))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(job)], check=False)
    assert done.returncode == -9
    found = client.runs()
    for run in found:
        assert run.wait(60).state == "SUCCEEDED"
        ran = list(lives(job))
        assert len(set(ran)) == len(ran)
    accepted = where.endswith("start") or (where.endswith("insert") and when == "after")
    assert len(found) == accepted
    assert os.listdir(client.service.home.runs) == [run.id for run in found] or not accepted
