"""Killed at every step: no accepted run is lost, no effect is repeated, no process is left.

The supervisor ends itself, as by `kill -9`, at the n-th point where its memory and the store could
differ; then another command recovers the run. This is done for every n.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.client.client import Client
from support import forked_programs
from support.crashes import check_log, submit
from support.embedded import embedded

PROGRAM = """
echo $NODE_RANK $MUSTER_RESTART >> $MUSTER_MOUNT_RECORDS/starts
test $NODE_RANK-$MUSTER_RESTART != 1-0
"""


#: Only in the environment of the run's programs.
MARK = f"of-a-crash-{os.urandom(8).hex()}"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "records").mkdir()
    (tmp_path / "program.sh").write_text(PROGRAM)
    path = tmp_path / "job.yaml"
    path.write_text(
        "artifact: program.sh\nnodes: 2\nmounts: [{source: records}]\n"
        "failure: {max_restarts: 9, backoff: {initial: 0}}\n"
        f"env: {{MARK: {MARK}}}\n"
    )
    return path


def started_incarnations(job: Path) -> Iterator[tuple[int, int]]:
    """(rank, incarnation) of every program that ran."""
    for line in (job.parent / "records" / "starts").read_text().splitlines():
        rank, restart = line.split()
        yield int(rank), int(restart)


@pytest.mark.parametrize("strategy", ["in_place", pytest.param("recreate", marks=pytest.mark.slow)])
def test_a_run_survives_a_supervisor_killed_at_every_step(
    job: Path, client: Client, alive: Callable[[str], list[str]], strategy: str
) -> None:
    text = job.read_text().replace("max_restarts: 9", f"max_restarts: 9, strategy: {strategy}")
    job.write_text(text)
    killed = survived = 0
    for point in range(1, 1000):
        (job.parent / "records" / "starts").unlink(missing_ok=True)
        run = client.run(submit(point, job)).wait(60)
        assert run.state == "SUCCEEDED", (point, run.details)
        assert alive(MARK) == []
        ran = list(started_incarnations(job))
        assert len(set(ran)) == len(ran), f"point {point}: no incarnation runs twice"
        last = max(restart for _, restart in ran)
        assert {rank for rank, restart in ran if restart == last} == {0, 1}
        check_log(client, run.id)
        lost = sum(entry.kind == "supervisor_lost" for entry in run.events())
        assert lost <= 1
        killed += lost
        survived += not lost
        if survived == 3:  # the number of steps varies with the events that arrive together
            break
    assert killed > 10, "the run has more steps"


@pytest.mark.parametrize(
    "where",
    [
        "muster.store.sql.runs.SqlRuns.insert",
        "muster.control.launcher.Launcher.start",
        "muster.storage.liveness.open_liveness_pipe",
        "muster.storage.wakeup.create",
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_submitter_leaves_a_whole_run_or_none(
    job: Path, client: Client, where: str, when: str
) -> None:
    """A run that was accepted is run; otherwise it does not exist."""
    module, _, name = where.rpartition(".")
    code = (
        "import os, sys, importlib\n"
        "from muster.client.client import Client\n"
        "import muster.service.start as starting\n"
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
        "if getattr(starting, name, None) is real:\n"
        "    setattr(starting, name, deadly)\n"
        "client = Client()\n"
        "job, new = client.job(sys.argv[1])\n"
        "client.start(client.prepare_run(job, new_job=new))\n"
    )
    done = forked_programs.run(["-c", code, str(job)])
    assert done.returncode == -9
    found = client.runs()
    for run in found:
        assert run.wait(60).state == "SUCCEEDED"
        ran = list(started_incarnations(job))
        assert len(set(ran)) == len(ran)
    accepted = where.endswith("start") or (where.endswith("insert") and when == "after")
    assert len(found) == accepted
    assert os.listdir(embedded(client).home.runs) == [run.id for run in found] or not accepted
