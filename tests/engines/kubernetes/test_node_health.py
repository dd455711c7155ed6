"""Machines that do not pass the preflight checks, in the double of a cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import run_lock
from muster.engines.kubernetes.names import JOBSET_NAME, RUN
from muster.storage.home import Home
from support.faults import until
from support.kube import Cluster
from support.kube_engine import add_engine, require_client

pytestmark = pytest.mark.slow
#: Seconds for what takes a moment on a machine that is not busy.
PATIENCE = 60.0
#: The name of the machine, in a variable of the node's container.
MACHINE = {"name": "MACHINE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
#: One pod for each machine.
CPUS = 6


@pytest.fixture
def cluster(tmp_path: Path, own_home: Path, client: Client) -> Iterator[Cluster]:
    """Three machines, on each of which there is space for one node."""
    require_client()
    folder = tmp_path / "kube"
    folder.mkdir()
    with Cluster(folder, nodes=3) as made:
        add_engine(own_home, made)
        yield made
        for run in client.runs():
            if not run.done:
                run.cancel("the test is over").wait(PATIENCE)
        until(lambda: made.left() == [], "nothing is left in the cluster", PATIENCE)


def start(folder: Path, **more: Any) -> JobRun:
    """A run of two nodes. A machine is unfit if a file has its name."""
    command = f"until [ -e {folder}/flag ]; do sleep 0.1; done"
    checks = f'if [ -e {folder}/$MACHINE ]; then echo "no NVLink" >&2; exit 1; fi'
    node = {"name": "node", "env": [MACHINE]}
    return muster.run(
        command=["sh", "-c", f"echo up $NODE_RANK on $MACHINE; {command}"],
        engine="kubernetes",
        name="demo",
        nodes=2,
        resources={"cpus": CPUS},
        kubernetes={"pod": {"spec": {"containers": [node]}}},
        preflight={"command": ["sh", "-c", checks]},
        failure={"max_restarts": 3},
        **more,
    )


def machines(cluster: Cluster, run: JobRun) -> dict[str, str]:
    """JobSet -> the machines of its pods that have not ended."""
    return {
        f"{one['metadata']['labels'][JOBSET_NAME]}/{one['metadata']['name']}": one["spec"].get(
            "nodeName", ""
        )
        for one in cluster.pods(**{RUN: run.id})
        if one["status"].get("phase") in ("Pending", "Running")
    }


def story(run: JobRun) -> str:
    return "\n".join(str(entry) for entry in run.events())


def ups(run: JobRun) -> list[str]:
    """What programs have written."""
    lines = [line.message for line in run.logs(attempt="all")]
    return [line for line in lines if line.startswith("up ")]


def test_a_machine_that_does_not_pass_is_named_and_avoided(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "node-1").touch()
    run = start(tmp_path)
    until(lambda: "up 1 on node-2" in ups(run), "it runs elsewhere", PATIENCE, pause=0.2)
    until(lambda: set(machines(cluster, run).values()) == {"node-0", "node-2"}, "pods", PATIENCE)
    assert not [line for line in ups(run) if line.endswith("on node-1")]
    assert "failed, reason preflight: on node-1: no NVLink\n" in story(run)
    assert "cannot be reached" not in story(run)
    made = cluster.storage.listed("jobsets", "default", {})
    assert len(made) == 2, "one for all nodes, and one for the node that was moved"
    (tmp_path / "flag").touch()
    assert str(run.wait(PATIENCE).state) == "SUCCEEDED"
    until(lambda: cluster.left() == [], "nothing is left", PATIENCE)


def test_it_is_avoided_by_the_supervisor_that_takes_over(
    cluster: Cluster, tmp_path: Path, own_home: Path
) -> None:
    (tmp_path / "node-1").touch()
    run = start(tmp_path)
    until(lambda: "no NVLink" in story(run), "it is named", PATIENCE, pause=0.05)
    pid = run_lock.holder_pid(Home(own_home).run_dir(run.id).lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: "another one takes over" in story(run), "the next one", PATIENCE, pause=0.2)
    until(lambda: set(machines(cluster, run).values()) == {"node-0", "node-2"}, "pods", PATIENCE)
    (tmp_path / "flag").touch()
    assert str(run.wait(PATIENCE).state) == "SUCCEEDED"
    assert not [line for line in ups(run) if line.endswith("on node-1")]


def test_it_waits_if_no_machine_is_left(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "node-0").touch()
    (tmp_path / "node-1").touch()
    run = start(tmp_path)
    # two are avoided, and the third one has a pod that waits for the other one's address
    why = (
        "none of the cluster's 3 machines can run the pod: 1 has too little free cpu, 2 do not "
        "match the pod's"
    )
    until(lambda: why in story(run), "it says why it waits", PATIENCE, pause=0.2)
    assert str(run.cancel("enough").wait(PATIENCE).state) == "CANCELED"
