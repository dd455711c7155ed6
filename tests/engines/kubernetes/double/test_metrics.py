"""The metrics API of the double: as metrics-server has it, and as kubectl reads it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.engines.kubernetes.cluster import CannotCall
from muster.engines.kubernetes.cluster import Cluster as Caller
from muster.engines.kubernetes.profile import read_settings
from support.kube import Cluster
from support.kube_engine import require_client

USED = {"node": ("250m", "1536Ki"), "side": ("12345n", "3Mi")}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, nodes=1) as made:
        yield made


def start(cluster: Cluster, name: str, *containers: str) -> None:
    """A pod, and wait until it runs."""
    made = [{"name": one, "image": "i", "command": ["sleep", "600"]} for one in containers]
    about = {"name": name, "labels": {"app": name[0]}}
    cluster.create({"kind": "Pod", "metadata": about, "spec": {"containers": made}})
    cluster.until(lambda: cluster.get("pods", name)["status"].get("phase") == "Running")


def names(caller: Caller, selector: str = "") -> list[str]:
    return [one["metadata"]["name"] for one in caller.list("PodMetrics", selector).items]


def test_it_has_pods_that_run_and_all_of_whose_containers_were_measured(cluster: Cluster) -> None:
    require_client()
    caller = Caller(read_settings({"kubeconfig": str(cluster.kubeconfig)}), retry_for=0.0)
    for name, containers in {"a-1": ["node"], "a-2": ["node", "side"], "b-1": ["node"]}.items():
        start(cluster, name, *containers)
    with pytest.raises(CannotCall) as unknown:
        names(caller)
    assert unknown.value.is_unknown
    metrics = cluster.install_metrics()
    assert names(caller) == []
    for name in ("a-1", "a-2", "b-1", "c-1"):
        metrics.measure(name, {"node": USED["node"]}, at=1_700_000_000.0)
    assert names(caller) == ["a-1", "b-1"]
    metrics.measure("a-2", USED)
    assert names(caller, "app=a") == ["a-1", "a-2"]
    (found,) = caller.list("PodMetrics", "app=b").items
    assert found["timestamp"] == "2023-11-14T22:13:20Z"
    assert found["containers"] == [{"name": "node", "usage": {"cpu": "250m", "memory": "1536Ki"}}]
    metrics.is_up = False
    with pytest.raises(CannotCall, match="currently unable to handle the request") as down:
        names(caller)
    assert (down.value.status, down.value.refused) == (503, False)
    caller.close()


def kubectl(cluster: Cluster, *words: str) -> Any:
    argv = ["kubectl", "--kubeconfig", str(cluster.kubeconfig)]
    cache = ["--cache-dir", str(cluster.folder / "cache")]
    return subprocess.run(
        [*argv, *cache, *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_reads_it(cluster: Cluster) -> None:
    start(cluster, "a-1", "node", "side")
    start(cluster, "b-1", "node")
    assert kubectl(cluster, "top", "pods").stderr == "error: Metrics API not available\n"
    cluster.install_metrics().measure("a-1", USED)
    shutil.rmtree(cluster.folder / "cache")  # kubectl does not look again for some minutes
    shown = kubectl(cluster, "top", "pods", "-l", "app=a", "--no-headers")
    assert shown.stdout.split() == ["a-1", "251m", "4Mi"], shown.stderr  # rounded up
    each = kubectl(cluster, "top", "pod", "a-1", "--containers", "--no-headers").stdout
    assert [line.split() for line in each.splitlines()] == [
        ["a-1", "node", "250m", "1Mi"],
        ["a-1", "side", "1m", "3Mi"],
    ]
    missing = kubectl(cluster, "top", "pod", "b-1")
    assert 'podmetrics.metrics.k8s.io "default/b-1" not found' in missing.stderr
