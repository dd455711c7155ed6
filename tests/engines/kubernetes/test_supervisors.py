"""An API server that is away, and supervisors that are killed, in the double of a cluster. See also
engines/test_attached_runs.py, where supervisors are killed at every step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.kubernetes.conftest import StartJob
from muster.client.client import Client
from muster.client.run import JobRun
from muster.control import recover, run_lock
from muster.engines.kubernetes.connection import RETRY_FOR
from muster.engines.kubernetes.names import RUN
from muster.errors import NotRecovered
from muster.storage.home import Home
from support.command import output_of
from support.faults import until
from support.kube import Cluster
from support.kube.objects import Obj, timestamp
from support.kube_runs import (
    APPLIED,
    PATIENCE,
    names,
    pod_of,
    until_nothing_is_left,
    writes,
)

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow

#: No registry has it.
IMAGE = "docker.io/library/busybox:none"


# --- the API server


@pytest.mark.filterwarnings("ignore::muster.errors.NotRecovered")
def test_nobody_waits_for_the_cluster_of_a_lost_run(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    """Which is to be ended, as it has lost too many supervisors."""

    def list_runs() -> list[JobRun]:
        with Client() as command:  # one that has not just recovered runs
            return command.runs()

    job = start()
    job.until_up(1, 1)
    with cluster.away():
        for _ in range(recover.MAX_LOST_SUPERVISORS):
            job.kill_supervisor(own_home)
            list_runs()
        job.kill_supervisor(own_home)
        with pytest.warns(NotRecovered, match="has not confirmed within 2 seconds that its nodes"):
            (found,) = list_runs()
        assert found.state == "IN_PROGRESS"
    until(lambda: list_runs()[0].done, "it has ended", PATIENCE, pause=0.2)
    job.run.refresh()
    assert (job.run.state, job.run.details) == ("FAILED", recover.LOST_REPEATEDLY)
    until_nothing_is_left(cluster)


def test_the_api_server_is_away_for_a_while(cluster: Cluster, start: StartJob) -> None:
    job = start()
    job.until_up(1, 1)
    before = names(cluster, job)
    with cluster.away():
        job.until_said("the cluster does not answer")
    job.until_said("can be reached again")
    assert job.end() == "SUCCEEDED"
    assert (job.ups(0), job.ups(1)) == (1, 1)
    assert names(cluster, job) <= before
    assert writes(cluster)[: len(APPLIED)] == APPLIED


def test_programs_end_while_the_api_server_is_away(cluster: Cluster, start: StartJob) -> None:
    job = start()
    job.until_up(1, 1)
    with cluster.away():
        job.until_said("the cluster does not answer")
        job.flag.touch()
    assert job.end() == "SUCCEEDED"
    assert (job.ups(0), job.ups(1)) == (1, 1)
    until_nothing_is_left(cluster)


def test_the_api_server_is_away_before_pods_run(cluster: Cluster, start: StartJob) -> None:
    cluster.kubelet.missing_images[IMAGE] = "manifest unknown"
    job = start(image=IMAGE)
    job.until_it_waits_for("manifest unknown")
    with cluster.away():
        job.until_it_waits_for("the cluster does not answer")
    job.until_it_waits_for("manifest unknown")
    assert job.cancel() == "CANCELED"


def test_the_api_server_is_away_at_the_start(cluster: Cluster, start: StartJob) -> None:
    with cluster.away():
        job = start()
        job.until_it_waits_for("the cluster does not answer")
    job.until_up(1, 1)
    assert job.end() == "SUCCEEDED"
    assert cluster.storage.listed("jobsets", "default", {}) == []


def test_an_api_server_that_does_not_delete_at_once(cluster: Cluster, start: StartJob) -> None:
    job = start()
    job.until_up(1, 1)
    cluster.faults.add(verb="delete", resource="jobsets", status=503, times=2)
    cluster.faults.add(verb="delete", resource="jobsets", drop="after")
    assert job.end() == "SUCCEEDED"
    until_nothing_is_left(cluster)


@pytest.mark.parametrize("how", ["ended", "forgotten", "cut"])
def test_what_happens_while_nothing_is_watched(cluster: Cluster, start: StartJob, how: str) -> None:
    """Streams of changes end, and cannot be continued: the objects are listed again."""
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    lost = pod_of(cluster, job, 1)
    # the next streams are refused until the pod is gone
    for resource in ("pods", "jobsets"):
        cluster.faults.add(verb="watch", resource=resource, status=503, times=2)
    {
        "ended": cluster.server.end_streams,
        "forgotten": cluster.storage.compact,
        "cut": cluster.server.drop_connections,
    }[how]()
    cluster.storage.delete("pods", "default", lost["metadata"]["name"])
    job.until_up(2, 2)
    assert pod_of(cluster, job, 1)["metadata"]["uid"] != lost["metadata"]["uid"]
    assert job.end() == "SUCCEEDED"


def test_credentials_that_are_replaced(cluster: Cluster, start: StartJob) -> None:
    """The old ones are not accepted any more, and all connections were made with them."""
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    before = names(cluster, job)
    cluster.grant("newer-token", "admin")
    cluster.write_kubeconfig("newer-token")
    cluster.server.access.revoke("token-of-admin")
    cluster.server.drop_connections()
    job.until_said("can be reached again")
    cluster.kubelet.run_out_of_memory(pod_of(cluster, job, 1))
    job.until_up(2, 2)
    assert len(names(cluster, job) & before) >= 1
    assert job.end() == "SUCCEEDED"
    until_nothing_is_left(cluster)


@pytest.mark.parametrize("hours", [-2, 2])
def test_clocks_that_are_hours_off(
    cluster: Cluster,
    start: StartJob,
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    """Those of the cluster: nothing that it says is compared with the time here."""

    def skewed(seconds: float | None = None) -> str:
        import time

        return timestamp((time.time() if seconds is None else seconds) + hours * 3600)

    for module in ("objects", "storage", "kubelet", "job_controller"):
        monkeypatch.setattr(f"support.kube.{module}.timestamp", skewed)
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    cluster.kubelet.evict(pod_of(cluster, job, 1))
    job.until_up(2, 2)
    job.kill_supervisor(own_home)
    job.until_said("another one takes over")
    assert job.end() == "SUCCEEDED"
    assert (job.ups(0), job.ups(1)) == (2, 2)


# --- supervisors


@pytest.mark.parametrize("resource", ["jobsets", "configmaps"])
@pytest.mark.parametrize("drop", ["before", "after"])
def test_a_supervisor_that_is_killed_while_it_applies(
    cluster: Cluster, start: StartJob, own_home: Path, resource: str, drop: str
) -> None:
    cluster.faults.add(verb="patch", resource=resource, drop=drop, times=1e9)
    job = start()

    def is_tried() -> bool:
        return any(one.verb == "patch" and one.resource == resource for one in cluster.calls)

    until(is_tried, "it is applied", PATIENCE)
    job.kill_supervisor(own_home)
    cluster.faults.clear()
    job.until_up(1, 1)
    assert len(cluster.storage.listed("jobsets", "default", {})) == 1
    assert len(names(cluster, job)) == 2
    assert job.end() == "SUCCEEDED"


def test_a_supervisor_that_is_killed_during_the_run(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    job = start()
    job.until_up(1, 1)
    before = names(cluster, job)
    job.kill_supervisor(own_home)
    job.until_said("another one takes over")
    assert job.end() == "SUCCEEDED"
    assert (job.ups(0), job.ups(1)) == (1, 1)
    assert names(cluster, job) <= before


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (lambda c, pod: c.kubelet.evict(pod), "was evicted: The node was low on"),
        (lambda c, pod: c.kubelet.run_out_of_memory(pod), "on node-1 ran out of memory"),
        (
            lambda c, pod: c.storage.delete("pods", "default", pod["metadata"]["name"]),
            "was deleted while no supervisor was running",
        ),
    ],
    ids=["evicted", "out-of-memory", "deleted"],
)
def test_a_pod_that_is_lost_while_there_is_no_supervisor(
    cluster: Cluster,
    start: StartJob,
    own_home: Path,
    fault: Callable[[Cluster, Obj], object],
    sentence: str,
) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    job.until_ready()
    lost = pod_of(cluster, job, 1)
    job.kill_supervisor(own_home)
    fault(cluster, lost)

    def is_replaced() -> bool:
        pods = [one for one in cluster.pods(**{RUN: job.run.id}) if _runs(one)]
        return len(pods) == 2 and lost["metadata"]["name"] not in map(_name, pods)

    until(is_replaced, "another pod runs", PATIENCE)
    job.until_up(2, 2)
    job.until_said(sentence)
    assert job.end() == "SUCCEEDED"


def _name(pod: Obj) -> str:
    return str(pod["metadata"]["name"])


def _runs(pod: Obj) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def test_a_jobset_that_is_deleted_while_there_is_no_supervisor(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    job.until_ready()
    job.kill_supervisor(own_home)
    (jobset,) = cluster.storage.listed("jobsets", "default", {})
    cluster.storage.delete("jobsets", "default", jobset["metadata"]["name"])
    until_nothing_is_left(cluster)
    job.until_up(2, 2)
    assert "was deleted while no supervisor was running" in job.story()
    assert job.end() == "SUCCEEDED"


def test_a_run_that_waits_is_canceled_after_its_supervisor_was_killed(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    """Its pods never run: it does not wait for them."""
    cluster.kubelet.missing_images[IMAGE] = "manifest unknown"
    job = start(image=IMAGE)
    job.until_it_waits_for("manifest unknown")
    job.kill_supervisor(own_home)
    job.until_said("another one takes over")
    assert job.cancel() == "CANCELED"
    until_nothing_is_left(cluster)


def test_a_run_that_waits_continues_after_its_supervisor_was_killed(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    job = start(resources={"cpus": 16})
    job.until_it_waits_for("have too little free cpu")
    job.kill_supervisor(own_home)
    job.until_said("another one takes over")
    cluster.add_node("large", {"cpu": "64"})
    job.until_up(1, 1)
    assert job.end() == "SUCCEEDED"


def test_a_supervisor_that_is_terminated_leaves_its_pods(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    job = start()
    job.until_up(1, 1)
    before = names(cluster, job)
    lock = Home(own_home).run_dir(job.run.id).lock
    pid = run_lock.holder_pid(lock)
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    until(lambda: not run_lock.is_held(lock), "it has ended", PATIENCE)
    assert job.end() == "SUCCEEDED"
    assert (job.ups(0), job.ups(1)) == (1, 1)
    assert names(cluster, job) <= before


def test_a_run_that_starts_without_a_cluster_says_so_soon(
    cluster: Cluster, start: StartJob
) -> None:
    """Long before a call of the API server is given up."""
    with cluster.away():
        job = start()
        until(lambda: "does not answer" in job.waits_for(), "it is said", RETRY_FOR / 2, pause=0.2)
        assert "is starting the first nodes" not in output_of("status", "last")
    job.until_up(1, 1)
    assert job.end() == "SUCCEEDED"


def test_a_run_that_is_resumed_without_a_cluster_says_so_soon(
    cluster: Cluster, start: StartJob
) -> None:
    job = start(suspend=True)
    job.run.resume()
    job.until_up(1, 1)
    job.run.suspend()
    job.run.wait(PATIENCE)
    with cluster.away():
        job.run.resume()
        text = "cannot be reached: the cluster does not answer"
        until(lambda: text in job.story(), text, RETRY_FOR / 2, pause=0.2)
    job.until_up(2, 2)
    assert job.end() == "SUCCEEDED"
