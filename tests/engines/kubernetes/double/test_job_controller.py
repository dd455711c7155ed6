"""The model of the Job controller: indexes, failure policies, back-off and replacement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.kube import Cluster
from support.kube.job_controller import (
    DEADLINE,
    FAILED_INDEXES,
    LIMIT,
    MAX_FAILED_INDEXES,
    TRACKING,
    read_indexes,
    write_indexes,
)
from support.kube.objects import ApiError, Obj, condition, has_condition, labels_of
from support.kube.scheduler import disrupt

CODES = {"containerName": "main", "operator": "In", "values": [3]}
NOT_LOST = {"operator": "NotIn", "values": [0, 137, 143]}
DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


class OneJob:
    """A cluster with the Job `j`, whose pods a test ends."""

    def __init__(self, cluster: Cluster, spec: Obj) -> None:
        self.cluster = cluster
        container = {"name": "main", "image": "busybox", "command": ["true"]}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        made = {"completionMode": "Indexed", "template": template, **spec}
        cluster.create({"kind": "Job", "metadata": {"name": "j"}, "spec": made})
        self.pass_time(2)

    def pass_time(self, seconds: float) -> None:
        self.cluster.manager.advance(seconds)

    @property
    def job(self) -> Obj:
        return self.cluster.get("jobs", "j")

    @property
    def status(self) -> Obj:
        status: Obj = self.job["status"]
        return status

    def alive(self) -> dict[int, Obj]:
        """Index -> its pod."""
        return {
            int(labels_of(pod)["batch.kubernetes.io/job-completion-index"]): pod
            for pod in self.cluster.pods()
            if pod["status"]["phase"] not in ("Succeeded", "Failed")
        }

    def end(self, index: int, code: int = 0, seconds: float = 2) -> None:
        self.cluster.kubelet.end(self.alive()[index], code)
        self.pass_time(seconds)

    def failed(self) -> tuple[str, str]:
        found = condition(self.job, "Failed")
        return found.get("reason", ""), found.get("message", "")


@contextmanager
def running(folder: Path, **spec: Any) -> Iterator[OneJob]:
    with Cluster(folder, manual=True) as cluster:
        yield OneJob(cluster, spec)


def test_each_index_has_a_pod_until_it_has_succeeded(tmp_path: Path) -> None:
    with running(tmp_path, completions=3, parallelism=2) as one:
        assert sorted(one.alive()) == [0, 1]
        pod = one.alive()[1]
        assert pod["metadata"]["name"].startswith("j-1-")
        assert pod["spec"]["hostname"] == "j-1"
        assert TRACKING in pod["metadata"]["finalizers"]
        assert one.status["ready"] == 2
        one.end(0)
        assert sorted(one.alive()) == [1, 2]
        one.end(2)
        one.end(1)
        assert one.status["completedIndexes"] == "0-2"
        assert has_condition(one.job, "Complete")
        # pods stay, and may go
        assert not any(pod["metadata"].get("finalizers") for pod in one.cluster.pods())


def test_a_failed_pod_is_replaced_after_a_delay_that_doubles(tmp_path: Path) -> None:
    with running(tmp_path, completions=1, parallelism=1, backoffLimit=6) as one:
        for delay in (10, 20, 40):
            one.end(0, 1, seconds=delay - 1)
            assert not one.alive()
            one.pass_time(4)
            assert list(one.alive()) == [0]
        assert one.status["failed"] == 3


def test_beyond_the_limit_it_fails_when_its_pods_have_ended(tmp_path: Path) -> None:
    with running(tmp_path, completions=2, parallelism=2, backoffLimit=0) as one:
        one.cluster.manager.paused.add(one.cluster.kubelet)
        one.end(0, 1)
        # the other pod still ends
        assert condition(one.job, "FailureTarget")["reason"] == "BackoffLimitExceeded"
        assert one.status["terminating"] == 1
        assert not has_condition(one.job, "Failed")
        one.cluster.manager.resume(one.cluster.kubelet)
        one.pass_time(3)
        assert one.failed() == ("BackoffLimitExceeded", LIMIT)


@pytest.mark.parametrize(
    ("rule", "code", "ends"),
    [
        ({"action": "FailJob", "onExitCodes": CODES}, 3, "FailJob"),
        ({"action": "FailJob", "onExitCodes": CODES}, 4, "Count"),
        ({"action": "FailJob", "onExitCodes": NOT_LOST}, 1, "FailJob"),
        ({"action": "FailJob", "onExitCodes": NOT_LOST}, 137, "Count"),
        ({"action": "Ignore", "onExitCodes": CODES}, 3, "Ignore"),
        ({"action": "Count", "onExitCodes": CODES}, 3, "Count"),
    ],
)
def test_rules_on_exit_codes(tmp_path: Path, rule: Obj, code: int, ends: str) -> None:
    policy = {"rules": [rule]}
    with running(
        tmp_path, completions=1, parallelism=1, backoffLimit=3, podFailurePolicy=policy
    ) as one:
        name = one.alive()[0]["metadata"]["name"]
        one.end(0, code)
        if ends == "FailJob":
            text = f"Container main for pod default/{name} failed with exit code {code} matching "
            assert one.failed() == ("PodFailurePolicy", f"{text}FailJob rule at index 0")
            return
        assert one.status.get("failed", 0) == (0 if ends == "Ignore" else 1)
        one.pass_time(12)
        assert list(one.alive()) == [0]


def test_a_disrupted_pod_is_ignored(tmp_path: Path) -> None:
    policy = {
        "rules": [
            {"action": "Ignore", "onPodConditions": [DISRUPTED]},
            {"action": "FailJob", "onExitCodes": NOT_LOST},
        ]
    }
    with running(
        tmp_path, completions=2, parallelism=2, backoffLimit=0, podFailurePolicy=policy
    ) as one:
        kept = one.alive()[1]["metadata"]["uid"]
        disrupt(one.cluster.storage, one.alive()[0], "TerminationByKubelet", "no memory")
        one.end(0, 1, seconds=13)
        assert one.failed() == ("", "")
        assert one.status.get("failed", 0) == 0
        assert sorted(one.alive()) == [0, 1]
        assert one.alive()[1]["metadata"]["uid"] == kept


@pytest.mark.parametrize(("policy", "early"), [("Failed", False), ("TerminatingOrFailed", True)])
def test_when_a_deleted_pod_is_replaced(tmp_path: Path, policy: str, early: bool) -> None:
    with running(
        tmp_path, completions=1, parallelism=1, backoffLimit=6, podReplacementPolicy=policy
    ) as one:
        one.cluster.manager.paused.add(one.cluster.kubelet)
        first = one.alive()[0]["metadata"]
        one.cluster.storage.delete("pods", "default", first["name"])
        one.pass_time(12)
        assert ({pod["metadata"]["uid"] for pod in one.cluster.pods()} != {first["uid"]}) == early
        one.cluster.manager.resume(one.cluster.kubelet)
        one.pass_time(14)
        assert [pod["metadata"]["uid"] for pod in one.cluster.pods()] != [first["uid"]]
        assert list(one.alive()) == [0]


def test_limits_for_each_index(tmp_path: Path) -> None:
    spec = {"completions": 3, "parallelism": 3, "backoffLimitPerIndex": 0}
    with running(tmp_path, **spec) as one:
        one.end(0, 1)
        one.end(1)
        assert one.failed() == ("", "")
        one.end(2)
        assert one.status["failedIndexes"] == "0"
        assert one.failed() == ("FailedIndexes", FAILED_INDEXES)


def test_too_many_failed_indexes(tmp_path: Path) -> None:
    spec = {"completions": 3, "parallelism": 3, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
    with running(tmp_path, **spec) as one:
        one.end(0, 1, seconds=4)
        assert one.failed() == ("MaxFailedIndexesExceeded", MAX_FAILED_INDEXES)
        assert not one.alive()


def test_a_deadline(tmp_path: Path) -> None:
    with running(tmp_path, completions=1, parallelism=1, activeDeadlineSeconds=60) as one:
        one.pass_time(50)
        assert list(one.alive()) == [0]
        one.pass_time(15)
        assert one.failed() == ("DeadlineExceeded", DEADLINE)


def test_suspended_and_resumed(tmp_path: Path) -> None:
    with running(tmp_path, completions=1, parallelism=1) as one:

        def suspend(value: bool) -> None:
            one.cluster.storage.update(
                "jobs", "default", "j", lambda obj: obj["spec"].update(suspend=value)
            )
            one.pass_time(3)

        suspend(True)
        assert not one.alive()
        assert "startTime" not in one.status
        assert condition(one.job, "Suspended")["reason"] == "JobSuspended"
        suspend(False)
        assert list(one.alive()) == [0]
        assert condition(one.job, "Suspended")["reason"] == "JobResumed"
        assert not one.status.get("failed")


def test_a_quota_that_is_used_up(tmp_path: Path) -> None:
    with Cluster(tmp_path, manual=True) as cluster:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
        cluster.create({"kind": "ResourceQuota", **quota})
        one = OneJob(cluster, {"completions": 2, "parallelism": 2})
        assert len(one.alive()) == 1
        texts = [e["message"] for e in cluster.storage.listed("events")]
        assert any(
            text.startswith('Error creating: pods "j-1-')
            and text.endswith("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")
            for text in texts
        )
        one.end(0)
        one.pass_time(3)
        assert list(one.alive()) == [1]


def test_a_job_is_checked(tmp_path: Path) -> None:
    with Cluster(tmp_path, manual=True) as cluster:
        pod = {"spec": {"restartPolicy": "Always", "containers": []}}
        job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": pod}}
        with pytest.raises(ApiError) as caught:
            cluster.create(job)
        assert caught.value.code == 422


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1], "0,1"), ([0, 1, 2, 5, 7, 8], "0-2,5,7,8")]
)
def test_indexes_as_text(numbers: list[int], text: str) -> None:
    assert write_indexes(numbers) == text
    assert read_indexes(text) == numbers
