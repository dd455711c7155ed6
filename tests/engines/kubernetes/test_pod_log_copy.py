"""What programs write is in the logs of their pods, in the double of a cluster whose pods are
processes with real node servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.kubernetes.conftest import StartJob
from muster.engines.kubernetes.cluster import CannotCall
from muster.engines.kubernetes.cluster import Cluster as Client
from muster.engines.kubernetes.pods import NODE
from muster.engines.kubernetes.profile import KubernetesProfile
from support.faults import until
from support.kube import Cluster
from support.kube.objects import Obj
from support.kube_runs import PATIENCE, pod_of

pytestmark = pytest.mark.slow


def log_of(cluster: Cluster, pod: Obj) -> list[str]:
    """What `kubectl logs` shows."""
    client = Client(KubernetesProfile(kubeconfig=str(cluster.kubeconfig)))
    try:
        return client.log(pod["metadata"]["name"], NODE).decode().splitlines()
    except CannotCall:
        return []


def until_in_log(cluster: Cluster, pod: Obj, *lines: str) -> None:
    until(
        lambda: sorted(line for line in log_of(cluster, pod) if line in lines) == sorted(lines),
        f"the log has {lines}, once each",
        PATIENCE,
        pause=0.2,
    )


def test_the_log_of_a_pod_has_what_its_program_writes(cluster: Cluster, start: StartJob) -> None:
    job = start(first="echo warn $NODE_RANK >&2", failure={"max_restarts": 3})
    job.until_up(1, 1)
    for rank in range(2):
        until_in_log(cluster, pod_of(cluster, job, rank), f"warn {rank}", f"up {rank}")
    Path(f"{job.failing}1").touch()
    job.until_up(2, 2)
    pod = pod_of(cluster, job, 1)
    until(lambda: log_of(cluster, pod).count("up 1") == 2, "it has both attempts", PATIENCE)
    assert job.end() == "SUCCEEDED"
    # what muster shows is as before
    assert sorted(job.lines("up")) == ["up 0", "up 0", "up 1", "up 1"]


def test_it_does_while_nobody_drives_the_run(
    cluster: Cluster, start: StartJob, own_home: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "go"
    job = start(1, first=f"echo begun; until [ -e {flag} ]; do sleep 0.1; done; echo alone")
    until(lambda: job.lines("begun"), "its program runs", PATIENCE, pause=0.2)
    pod = pod_of(cluster, job, 0)
    job.kill_supervisor(own_home)
    flag.touch()
    until_in_log(cluster, pod, "alone", "up 0")
    assert job.end() == "SUCCEEDED"


def test_processes_of_a_node_have_their_ranks_there(cluster: Cluster, start: StartJob) -> None:
    job = start(2, processes_per_node=2)
    job.until_up(2, 2)
    for rank in range(2):
        lines = [f"[rank {2 * rank + local}] up {rank}" for local in range(2)]
        until_in_log(cluster, pod_of(cluster, job, rank), *lines)
    assert job.end() == "SUCCEEDED"


def test_it_does_not_if_the_job_says_so(cluster: Cluster, start: StartJob) -> None:
    job = start(1, kubernetes={"pod_log": False})
    job.until_up(1)
    pod = pod_of(cluster, job, 0)
    Path(f"{job.failing}0").touch()
    job.run.wait(PATIENCE)
    assert "up 0" not in log_of(cluster, pod)


def test_the_last_lines_of_what_ran_out_of_memory_are_in_the_cause(
    cluster: Cluster, start: StartJob
) -> None:
    job = start(1, first="echo reading 9 TB", failure={"max_restarts": 0})
    job.until_up(1)
    pod = pod_of(cluster, job, 0)
    until_in_log(cluster, pod, "reading 9 TB", "up 0")
    cluster.kubelet.run_out_of_memory(pod)
    assert job.run.wait(PATIENCE).state == "FAILED"
    assert job.run.details is not None
    assert "ran out of memory" in job.run.details
    assert "last lines of its log:\nreading 9 TB\nup 0" in job.run.details


def test_what_was_written_without_contact_is_in_the_cause(
    cluster: Cluster, start: StartJob, tmp_path: Path
) -> None:
    """The pod has ended before anybody could fetch it."""
    flag = tmp_path / "go"
    first = f"echo begun; until [ -e {flag} ]; do sleep 0.1; done; echo alone"
    job = start(1, first=first, failure={"max_restarts": 0})
    until(lambda: job.lines("begun"), "its program runs", PATIENCE, pause=0.2)
    pod = pod_of(cluster, job, 0)
    written = cluster.kubelet.container(pod, NODE).log
    with cluster.away():
        job.until_said("the cluster does not answer")
        flag.touch()
        until(lambda: "up 0" in written.tail(), "it goes on", PATIENCE)
        cluster.kubelet.run_out_of_memory(pod)
    assert job.run.wait(PATIENCE).state == "FAILED"
    assert "last lines of its log:\nbegun\nalone\nup 0" in (job.run.details or "")
    assert job.lines("alone") == []
