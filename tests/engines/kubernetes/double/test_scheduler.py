"""The scheduler of the double: nodes that pods get, and its reasons with their counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.kube import Cluster
from support.kube.objects import Obj, condition

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def pod(name: str, cpus: str = "1", gpus: str = "0", **spec: Any) -> Obj:
    limits = {"cpu": cpus, "nvidia.com/gpu": gpus}
    container = {"name": "node", "image": "i", "resources": {"limits": limits}}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def cluster_of(folder: Path) -> Cluster:
    """Two nodes with 2 CPUs, one with 4 GPUs as well, and one that is tainted."""
    cluster = Cluster(folder, nodes=2, node={"cpu": "2"}, manual=True)
    cluster.add_node("gpus", {"cpu": "2", "nvidia.com/gpu": "4"}, labels={"pool": "gpu"})
    cluster.add_node("tainted", {"cpu": "64", "nvidia.com/gpu": "8"}, taints=[TAINT])
    return cluster


IN_POOL = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gpu"]}]}
            ]
        }
    }
}


@pytest.mark.parametrize(
    ("fields", "node"),
    [
        ({}, "gpus"),  # the first by name
        ({"gpus": "4"}, "gpus"),
        ({"nodeSelector": {"kubernetes.io/hostname": "node-1"}}, "node-1"),
        ({"affinity": IN_POOL}, "gpus"),
        ({"cpus": "32", "tolerations": [{"key": "team", "operator": "Exists"}]}, "tainted"),
        ({"cpus": "32", "tolerations": [{"key": "team", "value": "a"}]}, "tainted"),
    ],
)
def test_where_a_pod_runs(tmp_path: Path, fields: dict[str, Any], node: str) -> None:
    with cluster_of(tmp_path) as cluster:
        cluster.create(pod("p", **fields))
        cluster.manager.advance(1)
        made = cluster.get("pods", "p")
        assert made["spec"].get("nodeName") == node
        assert condition(made, "PodScheduled")["status"] == "True"


NOT_HELPFUL = " preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        (
            {"gpus": "5"},
            "1 node(s) had untolerated taint {team: a}, 3 Insufficient nvidia.com/gpu.",
        ),
        (
            {"cpus": "3", "gpus": "1"},
            "1 node(s) had untolerated taint {team: a}, 2 Insufficient nvidia.com/gpu, "
            "3 Insufficient cpu.",
        ),
        (
            {"nodeSelector": {"pool": "none"}},
            "1 node(s) had untolerated taint {team: a}, "
            "3 node(s) didn't match Pod's node affinity/selector.",
        ),
        (
            {"tolerations": [{"key": "team", "value": "b"}], "cpus": "16"},
            "1 node(s) had untolerated taint {team: a}, 3 Insufficient cpu.",
        ),
    ],
)
def test_why_a_pod_waits(tmp_path: Path, fields: dict[str, Any], counts: str) -> None:
    with cluster_of(tmp_path) as cluster:
        cluster.create(pod("p", **fields))
        cluster.manager.advance(1)
        found = condition(cluster.get("pods", "p"), "PodScheduled")
        assert (found["status"], found["reason"]) == ("False", "Unschedulable")
        assert found["message"] == f"0/4 nodes are available: {counts}{NOT_HELPFUL}"


def test_a_pod_that_waits_gets_what_another_leaves(tmp_path: Path) -> None:
    with Cluster(tmp_path, nodes=1, node={"cpu": "2"}, manual=True) as cluster:
        for name in ("a", "b"):
            cluster.create(pod(name, "2"))
            cluster.manager.advance(1)
        assert "nodeName" not in cluster.get("pods", "b")["spec"]
        cluster.kubelet.end(cluster.get("pods", "a"))
        cluster.manager.advance(1)
        # restartPolicy Always: it has not ended
        assert "nodeName" not in cluster.get("pods", "b")["spec"]
        cluster.storage.delete("pods", "default", "a")
        cluster.manager.advance(1)
        assert cluster.get("pods", "b")["spec"]["nodeName"] == "node-0"


def test_scheduling_gates(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        cluster.create(pod("p", schedulingGates=[{"name": "kueue.x-k8s.io/topology"}]))
        cluster.manager.advance(1)
        found = condition(cluster.get("pods", "p"), "PodScheduled")
        assert found["reason"] == "SchedulingGated"
