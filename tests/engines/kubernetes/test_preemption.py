"""Runs in a queue of Kueue: they wait, are preempted, and come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.kubernetes.conftest import StartJob
from engines.kubernetes.test_observed import WAIT, begin, jobset, story, until_state
from muster.engines.kubernetes.names import RUN
from support.faults import until
from support.kube import Cluster
from support.kube.kueue import PRIORITY, QUEUE
from support.kube.objects import Obj
from support.kube_engine import add_engine
from support.kube_runs import PATIENCE, names

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow

#: Of a run with two nodes.
CPUS = {"resources": {"cpus": 2}}


@pytest.fixture
def cluster_options() -> dict[str, Any]:
    return {"kueue": True}


@pytest.fixture(autouse=True)
def queue(cluster: Cluster, own_home: Path) -> None:
    cluster.kueue.priorities = {"high": 100}
    preempts = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    cluster.add_queue("team", {"cpu": "4"}, **preempts)
    add_engine(own_home, cluster, queue="team")


def test_a_run_waits_for_its_turn(start: StartJob) -> None:
    first = start(name="first", **CPUS)
    first.until_up(1, 1)
    second = start(name="second", **CPUS)
    second.until_it_waits_for("queue team of Kueue")
    second.until_it_waits_for("insufficient unused quota for cpu")
    assert first.end() == "SUCCEEDED"
    second.until_up(1, 1)
    assert second.end() == "SUCCEEDED"


def test_a_queue_that_does_not_exist(start: StartJob) -> None:
    job = start(kueue={"queue": "nothing"}, **CPUS)
    job.until_it_waits_for("the namespace has no LocalQueue nothing")
    assert job.cancel() == "CANCELED"


def test_kueue_changes_a_jobset_whose_answer_was_lost(cluster: Cluster, start: StartJob) -> None:
    """Kueue owns the tolerations that it has added to: to apply them again would be a conflict."""
    own, added = {"key": "team", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}
    cluster.kueue.tolerations = [added]
    cluster.kueue.node_labels = {"kubernetes.io/hostname": "node-1"}
    cluster.faults.add(verb="patch", resource="jobsets", drop="after")
    cluster.faults.add(verb="patch", resource="jobsets", status=503, times=3)  # it is admitted
    job = start(kubernetes={"tolerations": [own]}, **CPUS)
    job.until_up(1, 1)
    applied = [one for one in cluster.calls if (one.verb, one.resource) == ("patch", "jobsets")]
    assert len(applied) == 5
    for pod in cluster.pods(**{RUN: job.run.id}):
        assert pod["spec"]["tolerations"][:2] == [own, added]
        assert pod["spec"]["nodeName"] == "node-1"
    assert job.end() == "SUCCEEDED"


def test_a_run_that_is_preempted_comes_back(cluster: Cluster, start: StartJob) -> None:
    """It has no restarts: preemptions do not count."""
    low = start(name="low", **CPUS)
    low.until_up(1, 1)
    high = start(name="high", kueue={"queue": "team", "priority": "high"}, **CPUS)
    high.until_up(1, 1)
    low.until_said("reason preempted", "Kueue has preempted it")
    low.until_it_waits_for("Kueue")
    until(lambda: names(cluster, low) == set(), "its pods are gone", PATIENCE)
    assert high.end() == "SUCCEEDED"
    low.until_up(2, 2)
    assert low.end() == "SUCCEEDED"
    assert "reason node_lost" not in low.story()


def test_a_run_that_is_preempted_without_supervisor(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    low = start(name="low", **CPUS)
    low.until_up(1, 1)
    low.kill_supervisor(own_home)
    high = start(name="high", kueue={"queue": "team", "priority": "high"}, **CPUS)
    high.until_up(1, 1)
    low.until_said("reason preempted")
    assert high.end() == "SUCCEEDED"
    low.until_up(2, 2)
    assert low.end() == "SUCCEEDED"


def test_a_run_that_is_preempted_and_canceled(cluster: Cluster, start: StartJob) -> None:
    low = start(name="low", **CPUS)
    low.until_up(1, 1)
    high = start(name="high", kueue={"queue": "team", "priority": "high"}, **CPUS)
    high.until_up(1, 1)
    low.until_it_waits_for("Kueue")
    assert low.cancel() == "CANCELED"
    assert high.end() == "SUCCEEDED"
    assert high.ups(0) == 1 and names(cluster, low) == set()


def test_a_jobset_of_the_users_that_is_preempted_comes_back(
    tmp_path: Path, cluster: Cluster
) -> None:
    low_ends, high_ends = tmp_path / "low", tmp_path / "high"
    low = begin(tmp_path, in_queue(jobset(WAIT.format(flag=low_ends), name="low")))
    until_state(low, "RUNNING", "RUNNING")
    high = jobset(WAIT.format(flag=high_ends), name="high", ttlSecondsAfterFinished=0)
    cluster.create(in_queue(high, priority="high"))
    until(lambda: "Kueue has preempted it" in story(low), "it is preempted", PATIENCE)
    waits = "insufficient unused quota"
    until(lambda: all(waits in one.waits_for for one in low.refresh().nodes), waits, PATIENCE)
    high_ends.touch()
    until_state(low, "RUNNING", "RUNNING")
    low_ends.touch()
    assert str(low.wait(PATIENCE).state) == "SUCCEEDED", story(low)
    assert "reason node_lost" not in story(low)


def in_queue(manifest: Obj, priority: str = "") -> Obj:
    """A JobSet that waits in the queue, and needs half of it for each of two pods."""
    manifest["metadata"]["labels"] = {QUEUE: "team"}
    if priority:
        manifest["metadata"]["labels"][PRIORITY] = priority
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    return manifest
