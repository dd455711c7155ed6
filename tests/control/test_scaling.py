"""A run is scaled by one of its nodes, and its supervisor is killed at every step: the request
is not lost, no incarnation runs twice, no process is left."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.lifecycle.replay import replay
from muster.lifecycle.states import NodeState
from support.crashes import submit
from support.embedded import embedded

#: Its head requests a number of workers, and ends when the roster has that number.
PROGRAM = """
echo $NODE_RANK $MUSTER_RESTART >> $MUSTER_MOUNT_RECORDS/starts
test $NODE_GROUP_NAME = head || exec sleep 1000
python - <<END
import os
from muster.client.client import Client
Client().run(os.environ["MUSTER_RUN_ID"]).scale("workers", $REPLICAS, "requested by the head")
END
until test $(grep -c FQDN $CLUSTER_NODES_METADATA_FILE) = $((REPLICAS + 1)); do sleep 0.01; done
"""

#: Only in the environment of the run's programs.
MARK = f"of-a-scaled-run-{os.urandom(8).hex()}"


def job(folder: Path, replicas: int, strategy: str) -> Path:
    (folder / "records").mkdir()
    (folder / "program.sh").write_text(PROGRAM)
    path = folder / "job.yaml"
    path.write_text(
        "artifact: program.sh\nmounts: [{source: records}]\n"
        "node_groups: [{name: head}, {name: workers, replicas: 2, max_replicas: 4}]\n"
        "success: {groups: [head]}\n"
        f"failure: {{max_restarts: 9, strategy: {strategy}}}\n"
        f"env: {{MARK: {MARK}, REPLICAS: '{replicas}'}}\n"
    )
    return path


@pytest.mark.parametrize(
    ("replicas", "strategy"),
    [
        (4, "in_place"),
        pytest.param(1, "in_place", marks=pytest.mark.slow),
        pytest.param(1, "recreate", marks=pytest.mark.slow),
    ],
)
def test_a_scaled_run_survives_a_supervisor_killed_at_every_step(
    tmp_path: Path, client: Client, alive: Callable[[str], list[str]], replicas: int, strategy: str
) -> None:
    path = job(tmp_path, replicas, strategy)
    killed = survived = 0
    for point in range(1, 1000):
        starts = tmp_path / "records" / "starts"
        starts.unlink(missing_ok=True)
        run = client.run(submit(point, path)).wait(120)
        assert run.state == "SUCCEEDED", (point, run.details)
        assert alive(MARK) == []
        assert set(Counter(starts.read_text().splitlines()).values()) == {1}, point
        assert run.replicas == {"head": 1, "workers": replicas}
        assert [node.rank for node in run.nodes] == list(range(1 + replicas))
        _check_log(client, run)
        lost = any(entry.kind == "supervisor_lost" for entry in run.events())
        killed += lost
        survived += not lost
        if survived == 2:  # the number of steps varies with the events that arrive together
            break
    assert killed > 10, "the run has more steps"


def _check_log(client: Client, run: JobRun) -> None:
    entries = [(entry.kind, entry.data) for entry in run.events()]
    scaled = [data for kind, data in entries if kind == "scaled"]
    scaling = {"group": "workers", "from": 2, "why": "requested by the head"}
    assert scaled == [{**scaling, "to": run.replicas["workers"]}], "the request is carried out once"
    replayed = replay(entries).nodes
    states = {node.rank: NodeState(node.state) for node in embedded(client).nodes(run.id)}
    assert {rank: replayed[rank][0] for rank in states} == states
    scaled_down = [rank for rank, state in states.items() if state is NodeState.SCALED_DOWN]
    assert scaled_down == list(range(1 + run.replicas["workers"], 5))
