"""The model of Kueue: a JobSet waits for quota, is admitted, preempted, and limited in time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.jobset import jobset, replicated
from support.kube import Cluster
from support.kube.kueue import MAX_EXEC_TIME, PRIORITY, QUEUE
from support.kube.objects import Obj, condition, has_condition

PREEMPTS = {"preemption": {"withinClusterQueue": "LowerPriority"}}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, manual=True, kueue=True, node={"nvidia.com/gpu": "8"}) as made:
        made.kueue.priorities = {"high": 100}
        yield made


def queued(name: str, gpus: int = 1, **labels: str) -> Obj:
    """A JobSet of two pods with GPUs."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    made = jobset([replicated("w", 1, 2, container={"resources": limits})], name=name)
    made["metadata"]["labels"] = {QUEUE: "team", **labels}
    return made


def create(cluster: Cluster, made: Obj) -> None:
    cluster.create(made)
    cluster.manager.advance(5)


def workload(cluster: Cluster, name: str) -> Obj:
    (found,) = [
        one
        for one in cluster.storage.listed("workloads")
        if one["metadata"]["name"].startswith(f"jobset-{name}-")
    ]
    return found


def state(cluster: Cluster, name: str, kind: str) -> tuple[Any, ...]:
    found = condition(workload(cluster, name), kind)
    return found.get("status"), found.get("reason")


def running(cluster: Cluster, name: str) -> int:
    pods = [pod for pod in cluster.pods() if pod["metadata"]["name"].startswith(f"{name}-w")]
    return sum(has_condition(pod, "Ready") for pod in pods)


def test_it_runs_when_it_is_admitted(cluster: Cluster) -> None:
    cluster.add_queue("team", {"nvidia.com/gpu": "4"})
    cluster.kueue.node_labels = {"kubernetes.io/hostname": "node-1"}
    create(cluster, queued("demo"))
    assert cluster.get("jobsets", "demo")["spec"]["suspend"] is False
    assert running(cluster, "demo") == 2
    assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {"node-1"}
    found = workload(cluster, "demo")
    assert has_condition(found, "Admitted") and has_condition(found, "PodsReady")
    assert found["status"]["admission"]["podSetAssignments"][0]["count"] == 2
    for pod in cluster.pods():
        cluster.kubelet.end(pod)
    cluster.manager.advance(5)
    assert state(cluster, "demo", "Finished") == ("True", "Succeeded")
    cluster.storage.delete("jobsets", "default", "demo")
    cluster.manager.advance(5)
    assert cluster.left() == []


def test_why_it_waits(cluster: Cluster) -> None:
    create(cluster, queued("demo", 3))
    text = condition(workload(cluster, "demo"), "QuotaReserved")
    assert (text["reason"], text["message"]) == ("Inadmissible", "LocalQueue team doesn't exist")
    cluster.add_queue("team", {"nvidia.com/gpu": "4"})
    cluster.manager.advance(5)
    text = condition(workload(cluster, "demo"), "QuotaReserved")
    assert (text["reason"], text["message"]) == (
        "Pending",
        "couldn't assign flavors to pod set w: insufficient quota for nvidia.com/gpu in flavor "
        "default, request > maximum capacity (6 > 4)",
    )
    create(cluster, queued("small"))
    create(cluster, queued("next", 2))
    text = condition(workload(cluster, "next"), "QuotaReserved")
    assert text["message"].endswith(
        "insufficient unused quota for nvidia.com/gpu in flavor default, 2 more needed"
    )
    assert cluster.get("jobsets", "next")["spec"]["suspend"] is True
    # its Jobs exist, suspended
    assert running(cluster, "next") == 0
    assert cluster.get("jobs", "next-w-0")["spec"]["suspend"] is True


def test_a_more_important_one_preempts(cluster: Cluster) -> None:
    cluster.add_queue("team", {"nvidia.com/gpu": "4"}, **PREEMPTS)
    create(cluster, queued("low", 2))
    assert running(cluster, "low") == 2
    create(cluster, queued("high", 2, **{PRIORITY: "high"}))
    cluster.manager.advance(10)
    assert state(cluster, "low", "Evicted") == ("True", "Preempted")
    assert state(cluster, "low", "Preempted") == ("True", "InClusterQueue")
    assert state(cluster, "low", "QuotaReserved") == ("False", "Pending")
    assert (running(cluster, "low"), running(cluster, "high")) == (0, 2)
    # Kueue: what was preempted has lost no restart, and runs again
    assert cluster.get("jobsets", "low")["status"]["restarts"] == 0
    cluster.storage.delete("jobsets", "default", "high")
    cluster.manager.advance(20)
    assert running(cluster, "low") == 2
    assert state(cluster, "low", "Evicted") == ("False", "QuotaReserved")


def test_quota_is_kept_until_the_pods_have_ended(cluster: Cluster) -> None:
    cluster.add_queue("team", {"nvidia.com/gpu": "4"}, **PREEMPTS)
    create(cluster, queued("low", 2))
    cluster.manager.paused.add(cluster.jobs)  # its pods do not end
    create(cluster, queued("high", 2, **{PRIORITY: "high"}))
    assert state(cluster, "low", "Evicted") == ("True", "Preempted")
    assert state(cluster, "high", "QuotaReserved")[0] == "False"
    cluster.manager.resume(cluster.jobs)
    cluster.manager.advance(10)
    assert state(cluster, "high", "QuotaReserved")[0] == "True"


def test_without_preemption_it_waits(cluster: Cluster) -> None:
    cluster.add_queue("team", {"nvidia.com/gpu": "4"})
    create(cluster, queued("low", 2))
    create(cluster, queued("high", 2, **{PRIORITY: "high"}))
    assert (running(cluster, "low"), running(cluster, "high")) == (2, 0)


def test_a_limit_of_time(cluster: Cluster) -> None:
    cluster.add_queue("team", {"nvidia.com/gpu": "4"})
    create(cluster, queued("demo", **{MAX_EXEC_TIME: "60"}))
    cluster.manager.advance(40)
    assert running(cluster, "demo") == 2
    cluster.manager.advance(30)
    assert workload(cluster, "demo")["spec"]["active"] is False
    assert state(cluster, "demo", "Evicted") == ("True", "Deactivated")
    assert running(cluster, "demo") == 0


def test_a_jobset_without_a_queue_runs_at_once(cluster: Cluster) -> None:
    create(cluster, jobset([replicated("w", 1, 2)]))
    assert cluster.storage.listed("workloads") == []
    assert running(cluster, "demo") == 2
