"""What is kept of objects of the cluster."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from muster.engines.kubernetes.excerpts import Excerpt
from muster.engines.kubernetes.pod_facts import (
    gone,
    jobset_facts,
    pod_facts,
    seconds,
    workload_facts,
)
from muster.lifecycle.status import Reason

JOBSET = "jobset.sigs.k8s.io"
#: As JobSet, the Job controller and the kubelet make it.
POD: dict[str, Any] = {
    "metadata": {
        "uid": "5f0e",
        "name": "train-r1-workers-1-3-x7k2p",
        "labels": {
            "app.kubernetes.io/managed-by": "muster",
            "muster.run/id": "r1",
            f"{JOBSET}/jobset-name": "train-r1",
            f"{JOBSET}/replicatedjob-name": "workers",
            f"{JOBSET}/job-index": "1",
            f"{JOBSET}/restart-attempt": "2",
            "batch.kubernetes.io/job-completion-index": "3",
        },
        "annotations": {"batch.kubernetes.io/job-completion-index": "3"},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
    },
    "spec": {
        "nodeName": "gpu-7",
        "subdomain": "train-r1",
        "containers": [{"name": "node", "env": [{"name": "HOME", "value": "/"}]}],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::3"}],
        "hostIP": "192.0.2.7",
        "containerStatuses": [
            {"name": "log", "state": {"waiting": {}}},
            {"name": "node", "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}},
        ],
    },
}


def test_a_pod_says_where_it_is() -> None:
    one = pod_facts(POD)
    assert (one.uid, one.run, one.jobset) == ("5f0e", "r1", "train-r1")
    assert (one.group, one.job, one.index, one.restarts) == ("workers", 1, 3, 2)
    assert (one.node, one.addresses) == ("gpu-7", ("10.1.2.3", "fd00::3"))
    assert (one.phase, one.runs, one.started_at) == ("Running", True, 1767323045.0)
    assert (one.end, one.why_waiting, one.is_ending) == (None, "", False)


def owned(name: str = "train-r1-workers-1", **more: Any) -> dict[str, Any]:
    """The pod with an owner. more: other fields of the owner."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "job-1"}
    about = {**POD["metadata"], "ownerReferences": [{**owner, "controller": True, **more}]}
    return {**POD, "metadata": about}


def test_a_pod_is_of_the_job_that_owns_it() -> None:
    assert pod_facts(owned()).is_of_job
    others: list[dict[str, Any]] = [
        POD,  # as a copy of a pod with its labels
        owned("train-r1-workers-0"),
        owned(controller=False),
        owned(kind="ReplicaSet", apiVersion="apps/v1"),
    ]
    assert not any(pod_facts(one).is_of_job for one in others)


@pytest.mark.parametrize(("uid", "is_of_job"), [("job-1", True), ("job-2", False)])
def test_the_labels_of_a_pod_agree_with_its_owner(uid: str, is_of_job: bool) -> None:
    pod = owned()
    labels = {**pod["metadata"]["labels"], "batch.kubernetes.io/controller-uid": uid}
    pod["metadata"] = {**pod["metadata"], "labels": labels}
    assert pod_facts(pod).is_of_job is is_of_job


def test_excerpts_have_all_that_is_read() -> None:
    excerpt = msgspec.json.decode(msgspec.json.encode(POD), type=Excerpt)
    assert "managedFields" not in msgspec.json.encode(excerpt).decode()
    assert pod_facts(cast("dict[str, Any]", excerpt)) == pod_facts(POD)
    excerpt = msgspec.json.decode(msgspec.json.encode(owned()), type=Excerpt)
    assert pod_facts(cast("dict[str, Any]", excerpt)) == pod_facts(owned())


def test_a_pod_without_jobset_says_it_in_its_variables() -> None:
    env = [
        {"name": "MUSTER_POD_GROUP", "value": "workers"},
        {"name": "MUSTER_POD_JOB", "value": "1"},
    ]
    plain = {
        "metadata": {
            "name": "p",
            "labels": {"muster.run/id": "r1"},
            "annotations": {"batch.kubernetes.io/job-completion-index": "3"},
        },
        "spec": {"subdomain": "train-r1", "containers": [{"name": "node", "env": env}]},
    }
    one = pod_facts(plain)
    assert (one.jobset, one.group, one.job, one.index) == ("train-r1", "workers", 1, 3)
    assert one.why_waiting == "its pod has not been scheduled yet"


def test_a_strange_pod_has_no_place() -> None:
    one = pod_facts({"metadata": {"name": "p"}})
    assert (one.run, one.group, one.job, one.index) == ("", "", -1, -1)


def test_a_container_that_has_ended_ends_its_pod() -> None:
    terminated = {"exitCode": 137, "reason": "Error"}
    status = {
        **POD["status"],
        "containerStatuses": [{"name": "node", "state": {"terminated": terminated}}],
    }
    one = pod_facts({**POD, "status": status})
    assert one.end is not None
    assert (one.end.reason, one.exit_code, one.signal) == (Reason.EXIT, 137, 9)
    assert not one.runs


def test_a_pod_that_is_gone_has_ended() -> None:
    one = pod_facts(POD)
    assert gone(one).end == (Reason.NODE_LOST, f"pod {one.name} was deleted")
    lost = replace(one, why_unreachable="gpu-7 does not answer the cluster")
    assert gone(lost).end == (Reason.NODE_LOST, "gpu-7 does not answer the cluster")
    assert pod_facts(POD, is_deleted=True).end == (
        Reason.NODE_LOST,
        f"pod {one.name} on gpu-7 was deleted",
    )


@pytest.mark.parametrize(
    ("kind", "condition", "failed"),
    [
        (
            "JobSet",
            {"reason": "FailedJobs", "message": "jobset failed due to one or more job failures"},
            "JobSet train has failed: jobset failed due to one or more job failures (FailedJobs)",
        ),
        ("Job", {"reason": "DeadlineExceeded"}, "Job train has failed: DeadlineExceeded"),
    ],
)
def test_a_jobset_has_failed(kind: str, condition: dict[str, str], failed: str) -> None:
    conditions = [{"type": "Failed", "status": "True", **condition}]
    one = jobset_facts(
        {"metadata": {"name": "train"}, "status": {"conditions": conditions, "restarts": 2}}, kind
    )
    assert (one.failed, one.restarts, one.has_succeeded) == (failed, 2, False)


def test_a_jobset_has_succeeded() -> None:
    conditions = [
        {"type": "Completed", "status": "True"},
        {"type": "Failed", "status": "False"},
    ]
    one = jobset_facts({"metadata": {"name": "train"}, "status": {"conditions": conditions}})
    assert (one.failed, one.has_succeeded) == ("", True)


def test_a_workload_was_evicted() -> None:
    condition = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "for q."}
    owners = [{"uid": "other"}, {"uid": "js", "controller": True}]
    one = workload_facts(
        {"metadata": {"ownerReferences": owners}, "status": {"conditions": [condition]}}
    )
    assert (one.owner, one.evicted) == ("js", "Kueue has preempted it: for q")


def test_times_are_seconds() -> None:
    assert seconds("2026-01-02T03:04:05.250000Z") == 1767323045.25
    assert seconds(None) is None


def test_thousands_of_pods_are_small() -> None:
    tracemalloc.start()
    try:
        kept = [
            pod_facts({**POD, "metadata": {**POD["metadata"], "uid": f"{n:036}"}})
            for n in range(5000)
        ]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 5000
    assert used < 5000 * 2000, "bytes"
