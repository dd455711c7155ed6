"""Restarts of a whole run by JobSet, while no Muster process drives the run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engines.conftest import PlanOf
from engines.kubernetes.conftest import StartJob
from engines.kubernetes.test_pod_facts import POD
from muster.engines.kubernetes.manifest import manifest
from muster.engines.kubernetes.names import RESTARTS, RUN
from muster.engines.kubernetes.native_restarts import NativeRestarts, restarts_left
from muster.engines.kubernetes.pod_facts import PodFacts, pod_facts
from muster.engines.kubernetes.profile import KubernetesProfile, read_settings
from muster.engines.kubernetes.record import Allocation
from muster.engines.kubernetes.versions import OLDEST_JOBSET, Versions
from muster.errors import InvalidInput
from support.faults import until
from support.kube import Cluster
from support.kube.objects import Obj, key_of, set_condition
from support.kube_engine import add_engine
from support.kube_runs import PATIENCE, Job, names, pod_of

PROFILE = KubernetesProfile(decision_window=600.0)


# --- what JobSet may do


@pytest.mark.parametrize(
    ("spec", "most"),
    [
        ({}, 0),
        ({"failure": {"max_restarts": 3}}, 3),
        ({"failure": {"max_restarts": 3, "rules": [{"exit_codes": [3], "action": "fail"}]}}, 0),
        ({"failure": {"max_restarts": 3}, "array": {"a": [1, 2]}}, 0),
    ],
    ids=["none", "some", "rules", "array"],
)
def test_how_often_jobset_restarts_a_run(plan_of: PlanOf, spec: dict[str, Any], most: int) -> None:
    plan = plan_of(**spec)
    assert restarts_left(plan, PROFILE) == most
    made = manifest(plan, PROFILE, Versions())[0]["spec"]
    if most:
        policy = {"maxRestarts": most, "restartStrategy": "BlockingRecreate"}
        assert made["failurePolicy"] == policy
    else:
        assert "failurePolicy" not in made


def test_restarts_of_earlier_jobsets_count(plan_of: PlanOf) -> None:
    plan = plan_of(failure={"max_restarts": 3})
    assert [restarts_left(plan, PROFILE, before) for before in (1, 3, 4)] == [2, 0, 0]


def test_an_old_jobset_has_no_restart_strategy(plan_of: PlanOf) -> None:
    (made,) = manifest(
        plan_of(failure={"max_restarts": 3}), PROFILE, Versions(jobset=OLDEST_JOBSET)
    )
    assert made["spec"]["failurePolicy"] == {"maxRestarts": 3}


def test_without_a_decision_window_jobset_restarts_nothing(plan_of: PlanOf) -> None:
    profile = read_settings({"decision_window": "never"})
    assert restarts_left(plan_of(failure={"max_restarts": 3}), profile) == 0


@pytest.mark.parametrize("window", [0, "0s", 5, "soon", True])
def test_a_decision_window_is_a_duration(window: object) -> None:
    with pytest.raises(InvalidInput, match="decision_window"):
        read_settings({"decision_window": window})


def test_the_decision_window_is_in_seconds() -> None:
    assert read_settings({"decision_window": "1h"}).decision_window == 3600.0
    assert read_settings({}).decision_window is None


# --- what is known of restarts

ONE = Allocation(0, (0, 1), (0, 1), "u", max_restarts=5, restarts=2)


def pod(restarts: int, jobset: str = "demo") -> PodFacts:
    return replace(pod_facts(POD), restarts=restarts, jobset=jobset)


def test_a_restart_is_pending_until_it_is_taken() -> None:
    known = NativeRestarts(2)
    known.learn(ONE, 0)
    assert known.pending is None
    known.learn(ONE, 1)
    known.learn(ONE, 1)
    assert known.pending == (ONE, 3)
    known.learn(ONE, 2)
    assert known.take() == known.reported == 4
    known.learn(ONE, 2)
    assert known.pending is None, "it was reported"


def test_older_pods_are_those_of_the_same_jobset() -> None:
    known = NativeRestarts(2)
    assert not known.has_older([pod(0)], "demo")
    known.learn(ONE, 1)
    assert known.has_older([pod(1), pod(0)], "demo")
    assert not known.has_older([pod(1), pod(0, "another")], "demo")
    known.take()
    assert (known.is_former(ONE, pod(0)), known.is_former(ONE, pod(1))) == (True, False)


# --- with the double of a cluster


@pytest.fixture
def cluster(cluster: Cluster, own_home: Path) -> Cluster:
    """Its JobSets restart runs that nobody drives for a second."""
    add_engine(own_home, cluster, decision_window="1s")
    return cluster


def jobset_of(cluster: Cluster) -> Obj:
    (found,) = cluster.storage.listed("jobsets", "default", {})
    return found


def restarted_pods(cluster: Cluster, job: Job, restarts: int) -> list[Obj]:
    """Pods that JobSet has made with a restart, and that run."""
    found = cluster.pods(**{RUN: job.run.id, RESTARTS: str(restarts)})
    return [one for one in found if one["status"].get("phase") == "Running"]


def fail_job(cluster: Cluster) -> None:
    """Have the Job of all nodes fail: its pods end first, as the Job controller has them."""
    (one,) = cluster.storage.listed("jobs", "default", {})

    def fail(obj: Obj) -> None:
        set_condition(obj, "FailureTarget", True, "PodFailurePolicy", "a pod cannot start")

    cluster.storage.update("jobs", *key_of(one), fail, subresource="*")


@pytest.mark.slow
@pytest.mark.parametrize("contact", ["exec", "dial"])
def test_a_run_continues_in_the_pods_that_jobset_has_made(
    cluster: Cluster, start: StartJob, own_home: Path, contact: str
) -> None:
    if contact == "dial":
        more = {"contact": "dial", "address": "127.0.0.1"}
        add_engine(own_home, cluster, decision_window="1s", **more)
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    before = names(cluster, job)
    job.kill_supervisor(own_home)
    Path(f"{job.failing}1").touch()
    until(lambda: len(restarted_pods(cluster, job, 1)) == 2, "JobSet makes other pods", PATIENCE)
    assert jobset_of(cluster)["status"]["restarts"] == 1
    job.until_up(2, 2)
    assert not before & names(cluster, job)
    assert "by the engine" in job.story()
    assert jobset_of(cluster)["status"]["restarts"] == 1, "pods that wait use up no restart"
    assert job.end() == "SUCCEEDED"
    assert job.run.to_dict()["restarts"] == 1


@pytest.mark.slow
def test_a_program_whose_exit_code_is_that_of_a_signal_is_restarted_too(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    """As that of a shell whose child was killed. A pod that exits with it is replaced alone."""
    job = start(failure={"max_restarts": 3}, code=137)
    job.until_up(1, 1)
    job.kill_supervisor(own_home)
    Path(f"{job.failing}1").touch()
    until(lambda: len(restarted_pods(cluster, job, 1)) == 2, "JobSet makes other pods", PATIENCE)
    job.until_up(2, 2)
    assert job.end() == "SUCCEEDED"


@pytest.mark.slow
@pytest.mark.parametrize("code", [1, 128, 139, 255])
def test_a_pod_that_fails_to_start_is_replaced_alone(
    tmp_path: Path, cluster: Cluster, start: StartJob, own_home: Path, code: int
) -> None:
    """128: containerd could not start it. 139: its interpreter has crashed. 255: containerd was
    restarted."""
    python = tmp_path / "python3"
    python.write_text(
        f'#!/bin/sh\nif [ "$JOB_COMPLETION_INDEX" = 1 ] && mkdir {tmp_path}/failed; then\n'
        f"until [ -e {tmp_path}/now ]; do sleep 0.1; done; exit {code}; fi\n"
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    add_engine(own_home, cluster, decision_window="1s", python=str(python))
    job = start(failure={"max_restarts": 3})
    until(lambda: len(names(cluster, job)) == 2, "both pods are made", PATIENCE)
    before, jobset = pod_of(cluster, job, 0), jobset_of(cluster)["metadata"]["uid"]
    job.until_said("node-0")
    (tmp_path / "now").touch()
    job.until_up(1, 1)
    assert pod_of(cluster, job, 0)["metadata"]["uid"] == before["metadata"]["uid"]
    found = jobset_of(cluster)
    assert (found["metadata"]["uid"], found["status"]["restarts"]) == (jobset, 0)
    assert "node-0 (group workers, rank 0) could not" not in job.story()
    assert job.end() == "SUCCEEDED"


@pytest.mark.slow
def test_a_failure_is_decided_by_the_next_supervisor_if_it_comes_in_time(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    add_engine(own_home, cluster, decision_window="10m")
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    before = names(cluster, job)
    job.kill_supervisor(own_home)
    Path(f"{job.failing}1").touch()
    job.until_up(2, 2)
    assert names(cluster, job) == before
    assert jobset_of(cluster)["status"]["restarts"] == 0
    assert job.end() == "SUCCEEDED"


@pytest.mark.slow
def test_a_restart_by_jobset_while_the_run_is_driven(cluster: Cluster, start: StartJob) -> None:
    """Muster sees the ends of the pods first, and decides about them. That counts once."""
    job = start(failure={"max_restarts": 1})
    job.until_up(1, 1)
    before = names(cluster, job)
    fail_job(cluster)
    job.until_up(2, 2)
    assert not before & names(cluster, job)
    assert "by the engine" in job.story()
    assert job.end() == "SUCCEEDED"


@pytest.mark.slow
def test_a_run_fails_that_jobset_has_restarted_too_often(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    """The supervisor has used up what JobSet does not know of."""
    job = start(failure={"max_restarts": 1})
    job.until_up(1, 1)
    Path(f"{job.failing}0").touch()
    job.until_up(2, 2)
    job.kill_supervisor(own_home)
    Path(f"{job.failing}1").touch()
    until(lambda: len(restarted_pods(cluster, job, 1)) == 2, "JobSet makes other pods", PATIENCE)
    job.until_said("the engine has restarted the run by itself")
    job.run.wait(PATIENCE)
    assert str(job.run.state) == "FAILED"


@pytest.mark.slow
def test_a_jobset_that_has_failed_after_its_restarts(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    job = start(failure={"max_restarts": 1})
    job.until_up(1, 1)
    job.kill_supervisor(own_home)
    Path(f"{job.failing}1").touch()
    until(lambda: len(restarted_pods(cluster, job, 1)) == 2, "JobSet makes other pods", PATIENCE)
    fail_job(cluster)
    until(lambda: jobset_of(cluster)["status"].get("terminalState") == "Failed", "it fails")
    job.until_said("by the engine", "reaching max number of restarts")
    job.run.wait(PATIENCE)
    assert str(job.run.state) == "FAILED"
    assert (job.ups(0), job.ups(1)) == (1, 1)
