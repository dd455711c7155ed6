"""Pods whose node program never answers: what their containers have written is in the cause."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import muster
from muster.client.run import JobRun
from muster.engines.kubernetes.names import RUN
from support.faults import until
from support.kube import Cluster
from support.kube_engine import add_engine, require_client, shared_cluster

pytestmark = pytest.mark.slow

PATIENCE = 60.0


@pytest.fixture
def cluster() -> Cluster:
    require_client()
    return shared_cluster()


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def failed(run: JobRun) -> str:
    """The cause of the failure of a run, of which nothing is left in the cluster."""
    until(lambda: run.refresh().done, "it has ended", PATIENCE, pause=0.2)
    assert run.state == "FAILED"
    assert run.details is not None
    return run.details


@pytest.mark.parametrize("contact", ["exec", "dial"])
def test_what_an_interpreter_writes_last_is_the_cause(
    cluster: Cluster, own_home: Path, tmp_path: Path, contact: str
) -> None:
    python = program(
        tmp_path / "python3",
        'echo starting; echo "ImportError: libssl.so.3: cannot open shared object" >&2; exit 3',
    )
    more = {"address": "127.0.0.1"} if contact == "dial" else {}
    add_engine(own_home, cluster, python=python, contact=contact, **more)
    details = failed(muster.run(command=["true"], engine="kubernetes", name="broken"))
    assert "has exited with code 3:\n" in details
    assert "ImportError: libssl.so.3: cannot open shared object" in details


def test_an_image_without_the_interpreter_is_named(cluster: Cluster, own_home: Path) -> None:
    add_engine(own_home, cluster, python="/opt/none/python3")
    details = failed(muster.run(command=["true"], engine="kubernetes", name="bare"))
    assert "could not be started" in details
    assert "/opt/none/python3" in details


def test_what_an_init_container_writes_last_is_the_cause(
    cluster: Cluster, own_home: Path, tmp_path: Path
) -> None:
    add_engine(own_home, cluster)
    load = {
        "name": "load",
        "role": "init",
        "image": "loader:1",
        "command": ["sh", "-c", "echo no such bucket: datasets >&2; exit 4"],
    }
    group = {"name": "w", "image": "app:1", "command": ["true"], "extra_containers": [load]}
    spec = tmp_path / "job.yaml"
    spec.write_text(json.dumps({"name": "loads", "node_groups": [group]}))
    details = failed(muster.run(spec, engine="kubernetes"))
    assert "container load of pod " in details
    assert "no such bucket: datasets" in details


def test_a_log_that_may_not_be_read_is_done_without(
    cluster: Cluster, own_home: Path, tmp_path: Path
) -> None:
    from support.kube.access import Rule

    everything = ("jobsets", "pods", "configmaps", "pods/exec")
    cluster.grant("token-of-bo", "bo", (Rule(("*",), everything),))
    file = cluster.write_kubeconfig("token-of-bo", "default", tmp_path / "kubeconfig")
    python = program(tmp_path / "python3", "echo the last line >&2; exit 3")
    add_engine(own_home, cluster, kubeconfig=str(file), python=python)
    details = failed(muster.run(command=["true"], engine="kubernetes", name="unread"))
    assert "has exited with code 3: the last line" in details


def test_logs_are_read_of_pods_that_have_failed_only(cluster: Cluster, own_home: Path) -> None:
    add_engine(own_home, cluster)
    cluster.calls.clear()
    run = muster.run(command=[sys.executable, "-c", "exit(3)"], engine="kubernetes", name="fails")
    assert "exit code 3" in failed(run)
    until(lambda: not cluster.pods(**{RUN: run.id}), "no pod is left", PATIENCE)
    read = [one.name for one in cluster.calls if one.subresource == "log"]
    assert not [name for name in read if name.startswith("fails-")]
