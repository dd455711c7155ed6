"""A run is scaled by one of its own nodes, and its supervisor is killed at every step: the wish is
not lost, no life of a node is lived twice, no process is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.lifecycle.fold import fold
from muster.lifecycle.states import NodeState

#: As in test_crashes: a run whose supervisor dies at point N.
SUBMIT = """
import os, sys
from muster.client.client import Client
from muster.control.controller import Controller
from muster.control.launcher import Launcher
from muster.control.ledger import StoreLedger

left = [int(sys.argv[1])]

def here():
    left[0] -= 1
    if left[0] == 0:
        os._exit(9)

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

#: Its head says how many workers it wants, and has what it wants when so many are in the roster.
PROGRAM = """
echo $NODE_RANK $MUSTER_RESTART >> $MUSTER_MOUNT_TOLD/lives
test $NODE_GROUP_NAME = head || exec sleep 1000
python - <<END
import os
from muster.client.client import Client
Client().run(os.environ["MUSTER_RUN_ID"]).scale("workers", $WANTED, "the head wants it")
END
until test $(grep -c FQDN $CLUSTER_NODES_METADATA_FILE) = $((WANTED + 1)); do sleep 0.01; done
"""

#: In the environment of the run's programs, and nowhere else.
MARK = f"of-a-scaled-run-{os.urandom(8).hex()}"


def job(folder: Path, wanted: int, strategy: str) -> Path:
    (folder / "told").mkdir()
    (folder / "program.sh").write_text(PROGRAM)
    path = folder / "job.yaml"
    path.write_text(
        "artifact: program.sh\nmounts: [{source: told}]\n"
        "node_groups: [{name: head}, {name: workers, replicas: 2, max_replicas: 4}]\n"
        "success: {groups: [head]}\n"
        f"failure: {{max_restarts: 9, strategy: {strategy}}}\n"
        f"env: {{MARK: {MARK}, WANTED: '{wanted}'}}\n"
    )
    return path


@pytest.mark.parametrize(
    ("wanted", "strategy"),
    [
        (4, "in_place"),
        pytest.param(1, "in_place", marks=pytest.mark.slow),
        pytest.param(1, "recreate", marks=pytest.mark.slow),
    ],
)
def test_killed_at_every_step(
    tmp_path: Path, client: Client, alive: Callable[[str], list[str]], wanted: int, strategy: str
) -> None:
    path = job(tmp_path, wanted, strategy)
    killed = survived = 0
    for point in range(1, 1000):
        lives = tmp_path / "told" / "lives"
        lives.unlink(missing_ok=True)
        argv = [sys.executable, "-c", SUBMIT, str(point), str(path)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        run = client.run(done.stdout.strip()).wait(120)
        assert run.state == "SUCCEEDED", (point, run.details)
        assert alive(MARK) == []
        assert set(Counter(lives.read_text().splitlines()).values()) == {1}, point
        assert run.replicas == {"head": 1, "workers": wanted}
        assert [node.rank for node in run.nodes] == list(range(1 + wanted))
        _check_log(client, run)
        lost = any(entry.kind == "supervisor_lost" for entry in run.events())
        killed += lost
        survived += not lost
        if survived == 2:  # how many steps a run takes varies with what is told at once
            break
    assert killed > 10, "there are that many steps in such a run"


def _check_log(client: Client, run: JobRun) -> None:
    entries = [(entry.kind, entry.data) for entry in run.events()]
    scaled = [data for kind, data in entries if kind == "scaled"]
    wish = {"group": "workers", "from": 2, "why": "the head wants it"}
    assert scaled == [{**wish, "to": run.replicas["workers"]}], "heard once, whoever heard it"
    told = fold(entries).nodes
    states = {node.rank: NodeState(node.state) for node in client.service.nodes(run.id)}
    assert {rank: told[rank][0] for rank in states} == states
    parked = [rank for rank, state in states.items() if state is NodeState.PARKED]
    assert parked == list(range(1 + run.replicas["workers"], 5))
