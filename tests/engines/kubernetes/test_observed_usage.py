"""`muster top` of JobSets that run as they are: by the metrics API of the double of a cluster."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from support import command
from support.command import json_of, output_of
from support.faults import until
from support.kube import Cluster
from support.kube.access import Rule
from support.kube.metrics import GROUP, MetricsServer
from support.observed_runs import PATIENCE, forbid, jobset, until_state, write

pytestmark = pytest.mark.slow

KUBECTL = "kubectl top pods -n default -l jobset.sigs.k8s.io/jobset-name=train"
POD_LIST = "list", "pods"
#: Of a node that runs, and was not measured.
NOTHING = (None, None)


@pytest.fixture
def run(client: Client, cluster: Cluster) -> JobRun:
    """A JobSet with two pods, which is adopted."""
    cluster.create(jobset("sleep 600", retries=6))
    made = client.adopt("train")
    until_state(made, "RUNNING", "RUNNING")
    return made


def pod(cluster: Cluster, index: int) -> str:
    return str(cluster.pod(f"train-w-0-{index}-")["metadata"]["name"])


def measure(metrics: MetricsServer, name: str, cpu: str, memory: str, **more: Any) -> None:
    metrics.measure(name, {"main": (cpu, memory)}, **more)


def used(run: JobRun) -> dict[int, tuple[float | None, int | None]]:
    """The CPUs and the memory of each node."""
    rows = json_of("top", run.name, "--json")
    return {row["rank"]: (row["cpus"], row["memory"]) for row in rows}


def refusal(run: JobRun) -> str:
    """What `muster top` says of a run that it cannot show."""
    done = command.muster("top", run.name)
    assert (done.returncode, done.stdout) == (4, "")
    return " ".join(done.stderr.split())


def test_cpu_and_memory_are_those_of_the_metrics_api(cluster: Cluster, run: JobRun) -> None:
    metrics = cluster.install_metrics()
    measure(metrics, pod(cluster, 0), "1500000000n", "1536Ki")
    measure(metrics, pod(cluster, 1), "250m", "3Mi")
    before = len(cluster.calls)
    first, second = json_of("top", run.name, "--json")
    lists = [one for one in cluster.calls[before:] if (one.verb, one.resource) == POD_LIST]
    assert [one.group for one in lists] == [GROUP, GROUP], "one for each of two samples"
    labels = "jobset.sigs.k8s.io/jobset-name=train"
    assert {one.query["labelSelector"] for one in lists} == {labels}
    assert first == {
        "rank": 0,
        "group": "w",
        "processes": None,
        "cpus": 1.5,
        "memory": 1536 << 10,
        "disk_read": None,
        "disk_written": None,
        "received": None,
        "sent": None,
        "gpus": None,
        "gpu_memory": None,
    }
    assert (second["rank"], second["cpus"], second["memory"]) == (1, 0.25, 3 << 20)
    shown = output_of("top", run.name, "--once", "--sort", "memory").splitlines()[1:]
    assert [line.split() for line in shown] == [
        ["1", "w", "-", "0.25", "3MiB", "-", "-", "-", "-"],
        ["0", "w", "-", "1.50", "1.5MiB", "-", "-", "-", "-"],
    ]
    (total,) = json_of("top", "--json")
    assert (total["run"], total["nodes"]) == (run.name, 2)
    assert (total["cpus"], total["memory"]) == (1.75, (1536 << 10) + (3 << 20))
    assert total["processes"] is None


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_shows_the_same(cluster: Cluster, run: JobRun) -> None:
    metrics = cluster.install_metrics()
    measure(metrics, pod(cluster, 0), "1500000000n", "4096Ki")
    measure(metrics, pod(cluster, 1), "250m", "7Mi")
    words = [*KUBECTL.split(), "--no-headers", "--kubeconfig", str(cluster.kubeconfig)]
    words += ["--cache-dir", str(cluster.folder / "cache")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    shown = {name: (cpu, memory) for name, cpu, memory in map(str.split, done.stdout.splitlines())}
    ours = {
        pod(cluster, rank): (f"{1000 * (cpus or 0):.0f}m", f"{(memory or 0) >> 20}Mi")
        for rank, (cpus, memory) in used(run).items()
    }
    assert ours == shown == {pod(cluster, 0): ("1500m", "4Mi"), pod(cluster, 1): ("250m", "7Mi")}


def test_nodes_that_were_not_measured_have_no_values(cluster: Cluster, run: JobRun) -> None:
    metrics = cluster.install_metrics()
    assert used(run) == {0: NOTHING, 1: NOTHING}
    measure(metrics, pod(cluster, 1), "2", "1Gi")
    assert used(run) == {0: NOTHING, 1: (2.0, 1 << 30)}
    first, second = output_of("top", run.name, "--once").splitlines()[1:]
    assert first.split() == ["0", "w", "-", "-", "-", "-", "-", "-", "-"]
    assert second.split()[3:5] == ["2.00", "1GiB"]
    measure(metrics, pod(cluster, 0), "fast", "1Gi")  # what cannot be read hides no others
    assert used(run) == {0: NOTHING, 1: (2.0, 1 << 30)}


def test_the_values_of_a_pod_are_not_those_of_the_one_before(cluster: Cluster, run: JobRun) -> None:
    metrics = cluster.install_metrics()
    old = pod(cluster, 0)
    for index in range(2):
        measure(metrics, pod(cluster, index), "1", "1Mi")
    cluster.storage.delete("pods", "default", old, grace=0)

    def other() -> str:
        found = [str(one["metadata"]["name"]) for one in cluster.pods()]
        return next((one for one in found if one.startswith("train-w-0-0-") and one != old), "")

    until(other, "its Job makes another pod", PATIENCE)
    until_state(run, "RUNNING", "RUNNING")
    new = other()
    assert used(run) == {0: NOTHING, 1: (1.0, 1 << 20)}
    measure(metrics, new, "3", "3Mi", at=time.time() - 3600)  # of another pod of this name
    assert used(run) == {0: NOTHING, 1: (1.0, 1 << 20)}
    measure(metrics, new, "2", "2Mi", at=time.time() + 1)
    assert used(run) == {0: (2.0, 2 << 20), 1: (1.0, 1 << 20)}


def test_a_node_that_has_ended_is_not_shown(
    tmp_path: Path, client: Client, cluster: Cluster
) -> None:
    flag = tmp_path / "flag"
    script = f"[ $N = 1 ] && exec sleep 600; until [ -e {flag} ]; do sleep 0.1; done"
    cluster.create(jobset(script))
    run = client.adopt("train")
    until_state(run, "RUNNING", "RUNNING")
    metrics = cluster.install_metrics()
    measure(metrics, pod(cluster, 1), "1", "1Mi")
    assert [*used(run)] == [0, 1]
    flag.touch()
    until_state(run, "SUCCEEDED", "RUNNING")
    assert used(run) == {1: (1.0, 1 << 20)}


def test_a_cluster_without_the_metrics_api_is_named(cluster: Cluster, run: JobRun) -> None:
    assert (
        "what the nodes of JobSet train use cannot be read: it was adopted, and its pods have no "
        "node program of Muster, and the cluster has no metrics API (metrics.k8s.io/v1beta1): "
        f"install metrics-server; then this command works, as does `{KUBECTL}`"
    ) in refusal(run)
    done = command.muster("top", code=0)
    assert f"{run.name} is not shown: what the nodes of JobSet train use cannot" in done.stderr
    cluster.install_metrics()
    assert used(run) == {0: NOTHING, 1: NOTHING}


def test_a_verb_that_is_missing_is_named(cluster: Cluster, run: JobRun) -> None:
    measure(cluster.install_metrics(), pod(cluster, 0), "1", "1Mi")
    forbid(cluster, "", "")  # what runs need is allowed
    assert (
        "you may not read its metrics API: admin may not list pods in namespace default: its Role "
        "there lacks {apiGroups: [metrics.k8s.io], resources: [pods], verbs: [list]}; who may "
        f"can run `{KUBECTL}`"
    ) in refusal(run)
    cluster.grant("token-of-admin", "admin", (Rule(("list",), ("pods",), (GROUP,), "default"),))
    assert used(run) == {0: (1.0, 1 << 20), 1: NOTHING}
    cluster.grant("token-of-admin", "admin")


def test_a_metrics_api_that_does_not_answer_is_named(cluster: Cluster, run: JobRun) -> None:
    metrics = cluster.install_metrics()
    metrics.is_up = False
    found = refusal(run)
    assert "its metrics API shows nothing: the server is currently unable to handle" in found
    assert f"(503); `{KUBECTL}` makes the same request" in found


def test_clusters_that_were_not_called_lately_are_forgotten(
    cluster: Cluster, run: JobRun, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(cluster.install_metrics(), pod(cluster, 0), "1", "1Mi")
    closed: list[str] = []

    class Other:
        def close(self) -> None:
            closed.append("other")

    kept: dict[object, object] = {"other": Other()}
    monkeypatch.setattr("muster.engines.kubernetes.observed_usage._clusters", kept)
    monkeypatch.setattr("muster.engines.kubernetes.observed_usage._MOST_CLUSTERS", 1)
    for _ in range(2):
        assert client.api.counters(run.id)[0].cpus == 1.0
        assert (len(kept), closed) == (1, ["other"])


def test_pods_are_known_without_their_logs(tmp_path: Path, cluster: Cluster) -> None:
    run = muster.run(
        write(tmp_path, jobset("sleep 600", pods=1)),
        engine="kubernetes",
        logging={"enabled": False},
    )
    until_state(run, "RUNNING")
    measure(cluster.install_metrics(), pod(cluster, 0), "1", "1Mi")
    assert used(run) == {0: (1.0, 1 << 20)}
