"""Runs in the double of a cluster whose credential plug-in hangs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.kubernetes.conftest import StartJob
from muster.engines.kubernetes import plugins
from support.faults import until
from support.kube import Cluster
from support.kube_runs import PATIENCE

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow

VERSION = "client.authentication.k8s.io/v1"


@pytest.fixture
def hangs(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The plug-in of the cluster's user hangs while this file exists."""
    hangs, plugin = tmp_path / "hangs", tmp_path / "plug-in"
    status = {"token": "token-of-admin"}
    found = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
    waits = f"while [ -e {hangs} ]; do echo $$ > {tmp_path / 'pid'}; sleep 0.1; done"
    plugin.write_text(f"#!/bin/sh\n{waits}\ncat <<'END'\n{json.dumps(found)}\nEND\n")
    plugin.chmod(0o755)
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"exec": {"apiVersion": VERSION, "command": str(plugin)}}
    cluster.kubeconfig.write_text(json.dumps(config))
    yield hangs
    hangs.unlink(missing_ok=True)


def test_a_run_that_waits_for_it_is_canceled_at_once(
    cluster: Cluster, start: StartJob, hangs: Path, tmp_path: Path
) -> None:
    hangs.touch()
    job = start()
    pid = tmp_path / "pid"
    until(lambda: pid.exists() and pid.read_text(), "the plug-in runs", PATIENCE)
    began = time.monotonic()
    assert job.cancel() == "CANCELED"
    assert time.monotonic() - began < plugins._TIMEOUT / 2
    assert cluster.calls == []


def test_a_run_without_supervisor_is_canceled_when_it_works_again(
    start: StartJob, hangs: Path, own_home: Path
) -> None:
    job = start()
    job.until_up(1, 1)
    hangs.touch()
    job.kill_supervisor(own_home)
    job.run.cancel("enough")
    job.until_said("the run is being canceled", "cannot be reached")
    hangs.unlink()
    assert str(job.run.wait(PATIENCE).state) == "CANCELED"
