"""Faults of programs, pods and nodes, in the double of a cluster whose pods are processes with real
node servers. For those of the API server and of supervisors see test_supervisors.py, for refusals
test_refused_runs.py, for Kueue test_preemption.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import muster
from engines.kubernetes.conftest import StartJob
from engines.kubernetes.test_dial import DIAL
from muster.engines.kubernetes.names import POD_INDEX, RUN
from support.command import output_of
from support.faults import until
from support.kube import Cluster
from support.kube.objects import Obj
from support.kube_engine import add_engine
from support.kube_runs import (
    APPLIED,
    PATIENCE,
    Job,
    names,
    pod_of,
    until_nothing_is_left,
    writes,
)

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow


def test_a_run_applies_three_objects_and_deletes_one(cluster: Cluster, start: StartJob) -> None:
    job = start()
    job.until_up(1, 1)
    assert job.end() == "SUCCEEDED"
    until_nothing_is_left(cluster)
    assert writes(cluster) == [*APPLIED, ("delete", "jobsets")]


def test_a_program_that_fails_restarts_in_its_pod(cluster: Cluster, start: StartJob) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    before = names(cluster, job)
    Path(f"{job.failing}1").touch()
    job.until_up(2, 2)
    assert names(cluster, job) == before == {one.host_id for one in job.run.refresh().nodes}
    everything = output_of("status", job.run.name, "--all")
    assert "HOST ID" in everything and all(name in everything for name in before)
    assert "HOST ID" not in output_of("status", job.run.name)
    assert writes(cluster) == APPLIED
    assert job.end() == "SUCCEEDED"


# --- pods that are lost


def _delete(cluster: Cluster, pod: Obj) -> None:
    cluster.storage.delete("pods", "default", pod["metadata"]["name"])


def _remove_node(cluster: Cluster, pod: Obj) -> None:
    cluster.kubelet.remove_node(pod["spec"]["nodeName"])


@pytest.mark.parametrize(
    ("fault", "reason", "sentence"),
    [
        (_delete, "NODE_LOST", "was deleted"),
        (_remove_node, "NODE_LOST", "was deleted, as its node is gone"),
        (lambda c, pod: c.kubelet.evict(pod), "NODE_LOST", "was evicted: The node was low on"),
        (lambda c, pod: c.kubelet.drain(pod["spec"]["nodeName"]), "PREEMPTED", "was evicted, as"),
        (lambda c, pod: c.kubelet.run_out_of_memory(pod), "OUT_OF_MEMORY", "ran out of memory"),
    ],
    ids=["deleted", "node-removed", "evicted", "drained", "out-of-memory"],
)
def test_a_pod_that_is_lost_is_replaced_alone(
    cluster: Cluster,
    start: StartJob,
    fault: Callable[[Cluster, Obj], None],
    reason: str,
    sentence: str,
) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    kept, lost = pod_of(cluster, job, 0), pod_of(cluster, job, 1)
    fault(cluster, lost)
    job.until_up(2, 2)
    assert pod_of(cluster, job, 0)["metadata"]["uid"] == kept["metadata"]["uid"]
    assert pod_of(cluster, job, 1)["metadata"]["uid"] != lost["metadata"]["uid"]
    assert sentence in job.story() and reason.lower() in job.story().lower()
    assert job.end() == "SUCCEEDED"
    until_nothing_is_left(cluster)
    assert writes(cluster) == [*APPLIED, ("delete", "jobsets")]


#: Node 0 serves until its pod ends; the other one fails when the connection to it breaks.
PEERS = """
import os, pathlib, socket, sys, time
port = pathlib.Path(sys.argv[1])
if os.environ["MUSTER_RESTART"] != "0":
    print("again", flush=True)
    sys.exit()
if os.environ["NODE_RANK"] == "0":
    server = socket.create_server(("127.0.0.1", 0))
    port.with_suffix(".new").write_text(str(server.getsockname()[1]))
    port.with_suffix(".new").rename(port)
    peer = server.accept()
    time.sleep(1000)
while not port.exists():
    time.sleep(0.05)
peer = socket.create_connection(("127.0.0.1", int(port.read_text())))
print("connected", flush=True)
peer.recv(1)
raise ConnectionError("peer lost")
"""


def _evict(cluster: Cluster, pod: Obj) -> None:
    cluster.kubelet.drain(pod["spec"]["nodeName"])


@pytest.mark.parametrize(
    ("fault", "restarts", "sentence"),
    [(_evict, 0, "was evicted, as when its node is drained"), (_delete, 1, "was deleted")],
    ids=["evicted", "deleted"],
)
def test_a_pod_is_the_cause_of_what_its_peers_fail_for(
    cluster: Cluster,
    fault: Callable[[Cluster, Obj], None],
    restarts: int,
    sentence: str,
    tmp_path: Path,
) -> None:
    run = muster.run(
        command=[sys.executable, "-c", PEERS, str(tmp_path / "port")],
        engine="kubernetes",
        nodes=2,
        failure={"max_restarts": restarts},
    )

    def wrote(text: str) -> bool:
        return any(line.message == text for line in run.logs(attempt="all"))

    until(lambda: wrote("connected"), "they are connected", PATIENCE, pause=0.2)
    (pod,) = cluster.pods(**{RUN: run.id, POD_INDEX: "0"})
    fault(cluster, pod)
    assert run.wait(PATIENCE).state == "SUCCEEDED", run.refresh().details
    (restart,) = [entry for entry in run.events() if entry.kind == "restart"]
    assert sentence in restart.data["why"], "\n".join(map(str, run.events()))


def test_a_machine_that_does_not_answer(cluster: Cluster, start: StartJob) -> None:
    """The cluster wants to delete its pod, and nobody knows whether that has ended: it is replaced
    when the machine is back, or is no part of the cluster any more."""
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    lost = pod_of(cluster, job, 1)
    machine = lost["spec"]["nodeName"]
    cluster.kubelet.lose_node(machine)
    job.until_said(
        "it was deleted for a taint of its node",
        "it is replaced when the node answers, or is removed from the cluster",
    )
    assert (job.ups(0), job.ups(1)) == (1, 1)
    cluster.kubelet.find_node(machine)
    job.until_up(2, 2)
    assert job.end() == "SUCCEEDED"


def test_a_machine_that_answers_again_in_time(cluster: Cluster, start: StartJob) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    before = names(cluster, job)
    machine = pod_of(cluster, job, 1)["spec"]["nodeName"]
    cluster.kubelet.lose_node(machine, power=False)
    until(lambda: _is_ready(cluster, job, 1, "False"), "the cluster has noticed", PATIENCE)
    cluster.kubelet.find_node(machine)
    assert job.end() == "SUCCEEDED"
    assert (job.ups(0), job.ups(1)) == (1, 1)
    assert names(cluster, job) <= before


def _is_ready(cluster: Cluster, job: Job, index: int, status: str) -> bool:
    conditions = pod_of(cluster, job, index)["status"]["conditions"]
    return any(one["type"] == "Ready" and one["status"] == status for one in conditions)


def test_a_jobset_that_is_deleted_from_outside(cluster: Cluster, start: StartJob) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    (jobset,) = cluster.storage.listed("jobsets", "default", {})
    cluster.storage.delete("jobsets", "default", jobset["metadata"]["name"])
    job.until_up(2, 2)
    assert f"JobSet {jobset['metadata']['name']} was deleted" in job.story()
    assert job.end() == "SUCCEEDED"
    until_nothing_is_left(cluster)
    applied = [resource for verb, resource in writes(cluster) if verb == "patch"]
    assert applied.count("jobsets") == 2, "all slots share another one"


def test_a_jobset_that_is_suspended_from_outside(cluster: Cluster, start: StartJob) -> None:
    job = start()  # it needs no restart that counts
    job.until_up(1, 1)
    (jobset,) = cluster.storage.listed("jobsets", "default", {})
    name = jobset["metadata"]["name"]

    def suspend(value: bool) -> None:
        cluster.storage.update(
            "jobsets", "default", name, lambda obj: obj["spec"].update(suspend=value)
        )

    suspend(True)
    job.until_said(f"JobSet {name} was suspended in the cluster")
    until(lambda: names(cluster, job) == set(), "its pods are gone", PATIENCE)
    suspend(False)
    job.until_up(2, 2)
    assert job.end() == "SUCCEEDED"


def test_a_namespace_that_is_deleted(cluster: Cluster, start: StartJob, own_home: Path) -> None:
    cluster.add_namespace("research")
    config = cluster.write_kubeconfig(namespace="research", path=own_home / "kubeconfig")
    add_engine(own_home, cluster, kubeconfig=str(config))
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    cluster.storage.delete("namespaces", "", "research")
    job.run.wait(PATIENCE)
    assert job.run.state == "FAILED"
    assert "namespace research" in job.run.details
    assert cluster.left("research") == []


# --- pods that do not start


def test_an_image_that_cannot_be_pulled(cluster: Cluster, start: StartJob) -> None:
    image = "docker.io/library/busybox:none"
    cluster.kubelet.missing_images[image] = "manifest unknown"
    job = start(image=image)
    job.until_it_waits_for(f"image {image} cannot be pulled: manifest unknown")
    assert job.cancel() == "CANCELED"


def test_pods_that_no_node_can_take(cluster: Cluster, start: StartJob) -> None:
    job = start(resources={"cpus": 64})
    job.until_it_waits_for(
        "none of the cluster's 3 machines can run the pod: 3 have too little free cpu"
    )
    assert job.cancel() == "CANCELED"


def test_a_quota_that_is_used_up(cluster: Cluster, start: StartJob) -> None:
    quota = {"kind": "ResourceQuota", "metadata": {"name": "team"}}
    cluster.create({**quota, "spec": {"hard": {"pods": "1"}}})
    job = start()
    job.until_it_waits_for("quota team of namespace default does not allow it: pods=1 requested")
    cluster.storage.delete("resourcequotas", "default", "team")
    job.until_up(1, 1)
    assert job.end() == "SUCCEEDED"


@pytest.mark.parametrize(
    ("settings", "mounted"),
    [({}, ["configmaps"]), (DIAL, ["configmaps", "secrets"])],
    ids=["exec", "dial"],
)
def test_a_pod_whose_files_were_deleted(
    cluster: Cluster,
    start: StartJob,
    own_home: Path,
    settings: dict[str, str],
    mounted: Sequence[str],
) -> None:
    add_engine(own_home, cluster, **settings)
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    for plural in mounted:
        (found,) = cluster.storage.listed(plural, "default", {RUN: job.run.id})
        cluster.storage.delete(plural, "default", found["metadata"]["name"])
    _delete(cluster, pod_of(cluster, job, 1))
    job.until_up(2, 2)
    assert writes(cluster).count(("patch", "jobsets")) == 1
    assert job.end() == "SUCCEEDED"
    until_nothing_is_left(cluster)


def test_a_volume_that_cannot_be_mounted(cluster: Cluster, start: StartJob) -> None:
    volumes = [{"name": "data", "configMap": {"name": "none"}}]
    job = start(kubernetes={"pod": {"spec": {"volumes": volumes}}})
    job.until_it_waits_for("volume data of its pod cannot be mounted on node-")
    job.until_it_waits_for('configmap "none" not found')
    assert job.cancel() == "CANCELED"


# --- what is not heard, and what is not the run's


def test_a_pod_that_is_lost_while_the_watch_is_dead(cluster: Cluster, start: StartJob) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    cluster.server.stall_streams()
    cluster.kubelet.evict(pod_of(cluster, job, 1))
    # before the stream is given up for its silence
    until(lambda: job.ups(1) == 2, "the pod is replaced", 60, pause=0.2)
    assert job.end() == "SUCCEEDED"


def test_a_pod_with_the_labels_of_another(cluster: Cluster, start: StartJob) -> None:
    """Such as by `kubectl debug --copy-to --keep-labels`."""
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    real = pod_of(cluster, job, 1)
    about = {key: real["metadata"][key] for key in ("labels", "annotations")}
    copy = {**real, "metadata": {"name": "copy", **about}, "status": {}}
    copy["spec"] = {key: value for key, value in real["spec"].items() if key != "nodeName"}
    cluster.create(copy)
    cluster.until(lambda: cluster.get("pods", "copy")["status"].get("phase") == "Running")
    _delete(cluster, real)
    job.until_up(2, 2)
    assert "copy" not in {one.name for one in cluster.calls if one.subresource == "exec"}
    assert job.end() == "SUCCEEDED"
    cluster.storage.delete("pods", "default", "copy")


# --- ends


def test_a_run_that_is_canceled(cluster: Cluster, start: StartJob) -> None:
    job = start()
    job.until_up(1, 1)
    assert job.cancel() == "CANCELED"
    until_nothing_is_left(cluster)


def test_a_run_that_is_suspended_and_resumed(cluster: Cluster, start: StartJob) -> None:
    """It has no pods meanwhile. New ones get what its nodes had written to their outputs."""
    first = "cd $MUSTER_OUTPUTS; echo has $(ls); touch step-$MUSTER_RESTART"
    job = start(first=first)
    job.until_up(1, 1)
    assert job.run.suspend().wait(PATIENCE).state == "SUSPENDED"
    until_nothing_is_left(cluster)
    job.run.resume()
    job.until_up(2, 2)
    assert sorted(job.lines("has")) == ["has", "has", "has step-0", "has step-0"]
    assert job.end() == "SUCCEEDED"
    until_nothing_is_left(cluster)
