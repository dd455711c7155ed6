"""The parts of the double together: JobSets whose pods are processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.jobset import jobset, replicated
from support.kube import Cluster
from support.kube.containers import marked
from support.kube.jobset_controller import ATTEMPT
from support.kube.objects import Obj, condition, has_condition, labels_of

WAIT = ["sh", "-c", "sleep 1000 & wait"]
ATTEMPT_VARIABLE = {
    "name": "ATTEMPT",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{ATTEMPT}']"}},
}


def is_over(cluster: Cluster, kind: str) -> bool:
    return has_condition(cluster.get("jobsets", "demo"), kind)


def started(cluster: Cluster, count: int) -> bool:
    running = [pod for pod in cluster.pods() if pod["status"].get("phase") == "Running"]
    return len(running) == count


def test_a_failure_restarts_all_and_the_second_attempt_succeeds(tmp_path: Path) -> None:
    code = '[ "$ATTEMPT$JOB_COMPLETION_INDEX" != 01 ] || exit 3; [ "$ATTEMPT" = 1 ] || sleep 1000'
    container = {"env": [ATTEMPT_VARIABLE], "terminationMessagePolicy": "FallbackToLogsOnError"}
    one = replicated("w", 1, 3, command=["sh", "-c", code], container=container)
    with Cluster(tmp_path) as cluster:
        cluster.create(jobset([one], failurePolicy={"maxRestarts": 1}))
        cluster.until(lambda: is_over(cluster, "Completed"))
        assert cluster.get("jobsets", "demo")["status"]["restarts"] == 1
        reasons = [
            event["reason"]
            for event in cluster.storage.listed("events")
            if event["involvedObject"]["kind"] == "JobSet"
        ]
        assert sorted(reasons) == [
            "AllJobsCompleted",
            "DefaultFailurePolicy",
            *(["JobsReady"] if "JobsReady" in reasons else ["JobSetCompleted"]),
            "RestartJobSetFailurePolicyAction",
        ]


def test_an_exit_code_that_fails_the_job_set(tmp_path: Path) -> None:
    rule = {
        "action": "FailJob",
        "onExitCodes": {"containerName": "main", "operator": "In", "values": [7]},
    }
    job = {"podFailurePolicy": {"rules": [rule]}, "backoffLimit": 6}
    one = replicated("w", 1, 1, command=["sh", "-c", "exit 7"], job=job)
    reason = {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    with Cluster(tmp_path) as cluster:
        cluster.create(jobset([one], failurePolicy={"maxRestarts": 5, "rules": [reason]}))
        cluster.until(lambda: is_over(cluster, "Failed"))
        jobset_ = cluster.get("jobsets", "demo")
        assert condition(jobset_, "Failed")["reason"] == "FailJobSetFailurePolicyAction"
        assert condition(jobset_, "Failed")["message"].endswith("(first failed job: demo-w-0)")
        assert jobset_["status"]["restarts"] == 0


def test_a_group_that_waits_for_another(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    probe = {"exec": {"command": ["test", "-e", str(mark)]}, "periodSeconds": 1}
    needs: Any = [{"name": "driver", "status": "Ready"}]
    jobs = [
        replicated("driver", 1, 1, command=WAIT, probe=probe),
        replicated("workers", 1, 2, command=WAIT, dependsOn=needs),
    ]
    with Cluster(tmp_path) as cluster:
        cluster.create(jobset(jobs))
        cluster.until(lambda: started(cluster, 1))
        assert [job["metadata"]["name"] for job in cluster.storage.listed("jobs")] == [
            "demo-driver-0"
        ]
        mark.touch()
        cluster.until(lambda: started(cluster, 3))


def test_no_process_is_left(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap '' TERM; setsid sleep 1000 & setsid sleep 1000 & wait"]
    with Cluster(tmp_path) as cluster:
        cluster.create(jobset([replicated("w", 1, 2, command=command)]))
        cluster.until(lambda: started(cluster, 2))
        marks = [cluster.kubelet.container(pod).mark for pod in cluster.pods()]
        cluster.until(lambda: all(len(marked(one)) == 3 for one in marks))
    assert [marked(one) for one in marks] == [[], []]


def test_a_namespace_that_is_deleted_ends_what_runs_in_it(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.add_namespace("team")
        cluster.create(jobset([replicated("w", 1, 1, command=WAIT)]), "team")
        cluster.until(lambda: any("nodeName" in pod["spec"] for pod in cluster.pods("team")))
        cluster.storage.delete("namespaces", "", "team")
        cluster.until(lambda: cluster.find("namespaces", "team") is None)
        assert cluster.left("team") == []
        cluster.until(lambda: not cluster.kubelet.pods)


def test_the_cluster_goes_on_while_its_api_server_is_away(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.create(jobset([replicated("w", 1, 1, command=WAIT)]))
        cluster.until(lambda: started(cluster, 1))
        before: Obj = cluster.pods()[0]
        with cluster.away():
            cluster.kubelet.container(before).kill()
            cluster.until(lambda: is_over(cluster, "Failed"))
        assert labels_of(before)[ATTEMPT] == "0"
