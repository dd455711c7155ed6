"""What nodes in pods use comes from their node servers: the cluster needs no metrics server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import muster
from support.command import json_of
from support.faults import until
from support.kube_engine import add_engine, require_client, shared_cluster

pytestmark = pytest.mark.slow

PATIENCE = 60.0
MEMORY = 64 << 20


def test_top_shows_what_nodes_use(own_home: Path, tmp_path: Path) -> None:
    require_client()
    cluster = shared_cluster()
    add_engine(own_home, cluster)
    flag = tmp_path / "flag"
    program = (
        f"import os, time; held = b'x' * {MEMORY}; print('holds it', flush=True)\n"
        f"while not os.path.exists({str(flag)!r}): sum(range(10000)); time.sleep(0.01)"
    )
    command = [sys.executable, "-c", program]
    run = muster.run(command=command, engine="kubernetes", name="busy", nodes=2)
    until(
        lambda: sum(line.message == "holds it" for line in run.logs()) == 2,
        "both hold it",
        PATIENCE,
        pause=0.2,
    )
    before = len(cluster.calls)
    rows = json_of("top", run.name, "--json")
    assert [one["rank"] for one in rows] == [0, 1]
    for one in rows:
        assert one["memory"] > MEMORY
        assert one["cpus"] > 0
        assert one["processes"] >= 1
    resources = {one.resource for one in cluster.calls[before:]}
    assert resources <= {"pods", "jobsets", "workloads"}, "watches only"
    flag.touch()
    assert run.wait(PATIENCE).state == "SUCCEEDED"
