"""Arrays beside other groups, on this machine: the program of each gets its own cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from support.runs import PROGRAM_OUTPUT

ARRAY = {"name": "a", "command": ["echo", "${param.x}"], "array": {"x": "0..4"}, "parallelism": 2}
PLAIN = {"name": "p", "command": ["echo", "a"], "replicas": 5, "parallelism": 2}
#: Ports are those of the cluster: of the group's nodes, and not of an array's.
OTHER = {
    "name": "b",
    "nodes": 2,
    "command": ["sh", "-c", "echo $NODE_RANK of $NODE_COUNT at $MUSTER_MAIN_PORT"],
}


def after(group: dict[str, Any], name: str, status: str) -> dict[str, Any]:
    return {**group, "depends_on": [{"group": name, "status": status}]}


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([OTHER, ARRAY], id="group-first"),
        pytest.param([ARRAY, OTHER], id="array-first"),
        pytest.param([PLAIN, OTHER], id="without-parameters"),
        pytest.param([OTHER, after(ARRAY, "b", "complete")], id="array-after"),
        pytest.param([ARRAY, after(OTHER, "a", "complete")], id="group-after"),
        pytest.param([ARRAY, {**PLAIN, "name": "c"}, OTHER], id="two-arrays"),
    ],
)
def test_an_array_beside_another_group(
    client: Client, tmp_path: Path, groups: list[dict[str, Any]]
) -> None:
    (tmp_path / "mixed.yaml").write_text(json.dumps({"name": "mixed", "node_groups": groups}))
    job, new = client.job(tmp_path / "mixed.yaml")
    run = client.start(client.prepare_run(job, new_job=new)).wait(60)
    assert run.state == "SUCCEEDED", run.why()
    said: dict[str, list[str]] = {}
    for record in run.logs(streams=PROGRAM_OUTPUT):
        said.setdefault(str(record.group), []).append(record.message)
    lines = sorted(said.pop("b"))
    port = lines[0].rpartition(" ")[2]
    assert lines == [f"0 of 2 at {port}", f"1 of 2 at {port}"]
    assert port.isdigit()
    for lines in said.values():
        assert len(lines) == 5
