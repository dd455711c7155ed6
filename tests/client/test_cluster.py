"""Persistent clusters, with a real Dask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from muster.cli.cluster import print_cluster
from muster.cli.output import print_json
from muster.client import cluster as clusters
from muster.client.client import Client
from muster.client.cluster import Cluster
from muster.client.run import JobRun
from muster.errors import EngineError, InvalidInput, NotFound
from muster.lifecycle.states import NodeState
from muster.spec.override_flags import changes_from_flags
from muster.spec.overrides import overrides_from_mapping
from support.embedded import embedded
from support.faults import lose_node, until

pytestmark = pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed")

OPTIONS = {"threads": 1, "worker_args": ["--no-nanny"]}


def workers_of(dask: object) -> list[str]:
    reported = dask.scheduler_info(n_workers=-1)["workers"]  # type: ignore[attr-defined]
    return sorted(worker["name"] for worker in reported.values())


def test_a_cluster_from_start_to_end(client: Client) -> None:
    """Start a cluster, find it by name, use it, scale it and end it."""
    lab, _ = clusters.up(client, "dask", 1, name="lab", ttl=3600, options=OPTIONS)
    assert lab.wait().state == "UP"
    assert lab.dashboard is not None and lab.dashboard.endswith("/status")
    with pytest.raises(InvalidInput, match=r"lab is up already, as lab-1"):
        clusters.up(client, "dask", 1, name="lab")

    found = clusters.find(client, "lab")
    assert (found.framework, found.workers, found.run.id) == ("dask", 1, lab.run.id)
    assert found.until is not None
    assert timedelta() < found.until - datetime.now(UTC) <= timedelta(hours=1)
    assert "UP" in found._repr_html_() and str(lab.address) in found._repr_html_()
    with found.dask_client() as dask:
        assert workers_of(dask) == ["node-1"]
        assert dask.submit(pow, 2, 10).result(timeout=60) == 1024
        assert found.scale(2).workers == 2
        dask.wait_for_workers(2, timeout=60)
        found.scale(1)
        while workers_of(dask) != ["node-1"]:
            assert not found.run.refresh().done
            time.sleep(0.05)
        assert dask.submit(pow, 2, 11).result(timeout=60) == 2048
    with pytest.raises(InvalidInput, match=r"the maximum of lab is 16 .*--max-workers 1000"):
        found.scale(1000)
    with pytest.raises(InvalidInput, match=r"lab is a dask cluster \(connect with its dask_client"):
        found.ray_init()

    assert found.down().state == "CANCELED"
    assert clusters.clusters(client) == []
    with pytest.raises(NotFound, match="no cluster named"):
        clusters.find(client, "lab")


def test_a_cluster_on_an_isolated_network_refuses_clients(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only its nodes can reach it; connecting from elsewhere fails at once."""
    job, new = client.job(None, command=["true"], framework="dask", network="isolated", name="lab")
    overrides = overrides_from_mapping({"suspend": True})
    closed = Cluster(client.start(client.prepare_run(job, overrides, new_job=new)))
    with pytest.raises(InvalidInput, match="only programs on the nodes of lab") as reported:
        closed.dask_client()
    assert "`muster exec lab-1 --rank 0`" in reported.value.problems[0].hint
    print_cluster(closed, as_json=False)
    shown = capsys.readouterr().out
    assert "muster shell lab-1 --rank 0" in shown
    assert "dask_client" not in shown


def test_the_path_of_the_token_of_a_cluster_is_shown_as_data(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job, new = client.job(None, command=["true"])
    spec = {"framework": "ray", "node_groups": [{"command": [], "args": []}]}
    monkeypatch.setattr(JobRun, "endpoints", {"token": "/x/token"})
    monkeypatch.setattr(JobRun, "replicas", {"workers": 1})
    monkeypatch.setattr(JobRun, "spec", spec)
    lab = Cluster(client.start(client.prepare_run(job, new_job=new)).wait(60))
    print_json(lab.to_dict())
    assert json.loads(capsys.readouterr().out)["token_file"] == "/x/token"


def test_a_suspended_cluster_is_listed(client: Client) -> None:
    lab, _ = clusters.up(client, "dask", 1, options=OPTIONS)
    lab.wait().run.suspend().wait(60)
    assert [one.state for one in clusters.clusters(client)] == ["SUSPENDED"]
    with pytest.raises(InvalidInput, match="dask is SUSPENDED already"):
        clusters.up(client, "dask", 1)
    assert clusters.find(client, "dask").down().state == "CANCELED"


def test_of_two_clusters_started_at_once_with_one_name_one_remains(client: Client) -> None:
    """The second command lists the clusters before the first one has started."""
    first, _ = clusters.up(client, "dask", 1, options=OPTIONS)
    seen, real = [], clusters.clusters

    def empty_at_first(of: Client) -> list[Cluster]:
        seen.append(of)
        return [] if len(seen) == 1 else real(of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "clusters", empty_at_first)
        with pytest.raises(InvalidInput, match=r"dask is up already, as dask-1"):
            clusters.up(client, "dask", 1, options=OPTIONS)
    assert [one.run.name for one in clusters.clusters(client)] == ["dask-1"]
    first.down()


def test_the_time_to_live_ends_a_cluster(client: Client) -> None:
    lab, _ = clusters.up(client, "dask", 1, ttl=0.0, options=OPTIONS)
    run = lab.run.wait(120)
    assert (run.state, run.details) == ("SUCCEEDED", "")
    assert [record.message for record in run.logs(streams=["stdout"], ranks=[0])] == [
        "its time to live is over"
    ]


ADS = """\
kind: distributed
spec:
  cluster:
    kind: dask
    spec:
      name: lab
      ephemeral: false
      config:
        env:
        - {name: OCI__TTL, value: 1h}
        - {name: nthread, value: 1}
      worker: {replicas: 1, config: {startOptions: [--no-nanny]}}
  runtime: {kind: python, spec: {}}
"""


def test_the_time_to_live_ends_a_cluster_of_ads_yaml(client: Client, tmp_path: Path) -> None:
    """The lifetime counts from the first start, also if the main node restarts."""
    (tmp_path / "lab.yaml").write_text(ADS)
    client.start(client.prepare(tmp_path / "lab.yaml", changes_from_flags()))
    lab = clusters.find(client, "lab").wait()
    started = lab.run.refresh().started_at
    assert started is not None and lab.until == started + timedelta(hours=1)
    assert lab.run.spec["max_runtime"] == 4500
    lose_node(lab.run.id, 0)
    for event in lab.run.events(follow=True):
        if event.kind == "restart":
            break
    until(lambda: lab.state == "UP")
    assert lab.until == started + timedelta(hours=1)
    lab.down()


def test_running_ads_yaml_prints_the_address_of_the_cluster(client: Client, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(ADS)
    command = [sys.executable, "-m", "muster", "run", str(tmp_path / "lab.yaml")]
    env = {**os.environ, "MUSTER_HOME": str(embedded(client).home.root)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as following:
        assert following.stdout is not None
        output = [line for line in iter(following.stdout.readline, "\n") if line]
        lab = clusters.find(client, "lab")
        assert output[0] == "lab is UP: dask, 1 worker\n"
        given = dict(line.split(maxsplit=1) for line in output[1:])
        assert given["address"].strip() == lab.address
        assert "ends" in given and "muster cluster down lab" in "".join(output)
        lab.down()
        following.stdout.read()
    assert following.returncode == 3


def test_an_idle_cluster_ends(client: Client) -> None:
    lab, _ = clusters.up(client, "dask", 1, idle=0.2, options=OPTIONS)
    run = lab.run.wait(120)
    assert run.state == "SUCCEEDED", run.details
    assert [record.message for record in run.logs(streams=["stdout"], ranks=[0])] == [
        "unused for 0.2 s"
    ]


def test_a_lost_worker_of_a_cluster_is_replaced(client: Client) -> None:
    lab, _ = clusters.up(client, "dask", 1, options=OPTIONS)
    lab.wait()
    with lab.dask_client() as dask:
        dask.submit(lambda: os._exit(7), workers=["node-1"], pure=False)
        for event in lab.run.events(follow=True):
            if event.kind == "restart":
                break
        assert dask.submit(pow, 2, 3, workers=["node-1"]).result(timeout=60) == 8
    assert lab.state == "UP"
    assert lab.run.nodes[0].state == NodeState.READY


@pytest.mark.slow
def test_a_scaled_down_cluster_survives_the_loss_of_its_main_node(client: Client) -> None:
    """The cluster restarts, and does not wait for the scaled-down worker."""
    lab, _ = clusters.up(client, "dask", 2, options=OPTIONS)
    lab.wait()
    lab.scale(1)
    until(lambda: len(lab.run.refresh().nodes) == 2, "the end of the worker")
    lose_node(lab.run.id, 0)
    for event in lab.run.events(follow=True):
        if event.kind == "restart":
            break
    assert lab.wait().state == "UP"
    with lab.dask_client() as dask:
        assert workers_of(dask) == ["node-1"]


def test_a_cluster_that_cannot_start_reports_why(client: Client) -> None:
    broken = {**OPTIONS, "worker_args": ["--no-such-thing"]}
    lab, _ = clusters.up(client, "dask", 1, options=broken)
    with pytest.raises(EngineError, match=r"(?s)did not come up: node-. failed: .*no-such-thing"):
        Cluster(lab.run).wait()
    assert lab.run.refresh().state == "CANCELED"


@pytest.mark.parametrize(
    ("framework", "more", "message"),
    [
        ("pytorch", {}, "cannot run as a persistent cluster"),
        ("dsk", {}, 'did you mean "dask"'),
        ("dask", {"options": {"thread": 1}}, "framework_options.thread: unknown field"),
        ("dask", {"max_workers": 0}, "--max-workers: is less than the 1 it starts with"),
        ("mpi", {"idle": 60}, "cannot run as a persistent cluster"),
    ],
)
def test_invalid_clusters_are_refused(
    client: Client, framework: str, more: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        clusters.up(client, framework, 1, **more)  # type: ignore[arg-type]
    assert client.runs() == []
