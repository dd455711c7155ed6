"""Why pods and runs have not started, in plain words."""

from __future__ import annotations

from typing import Any

import pytest

from muster.engines.kubernetes.waiting import (
    is_mounting,
    unschedulable,
    why_pod_waits,
    why_queued,
)

SCHEDULER = {
    "0/12 nodes are available: 8 Insufficient nvidia.com/gpu, 4 node(s) had untolerated "
    "taint {dedicated: cpu}. preemption: 0/12 nodes are available: 12 No preemption victims "
    "found for incoming pod.": (
        "none of the cluster's 12 machines can run the pod: 8 have too little free "
        "nvidia.com/gpu, 4 have the taint dedicated: cpu, which the pod does not tolerate"
    ),
    "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) had "
    "untolerated taint {node-role.kubernetes.io/control-plane: }.": (
        "none of the cluster's 3 machines can run the pod: 1 has too little free cpu, 1 has "
        "too little free memory, 1 has the taint node-role.kubernetes.io/control-plane, "
        "which the pod does not tolerate"
    ),
    "0/5 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, 2 node(s) "
    "were unschedulable, 1 Too many pods. no new claims to deallocate, preemption: 0/5 nodes "
    "are available: 5 Preemption is not helpful for scheduling.": (
        "none of the cluster's 5 machines can run the pod: 2 do not match the pod's node "
        "selector or affinity, 2 are cordoned, 1 is at its limit of pods"
    ),
    "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: "
    "}.": "none of the cluster's 2 machines can run the pod: 2 are not ready",
    "0/4 nodes are available: 1 node(s) had untolerated taint "
    "{node.kubernetes.io/unschedulable: }, 3 node(s) had untolerated taint(s).": (
        "none of the cluster's 4 machines can run the pod: 1 is cordoned, 3 have taints that "
        "the pod does not tolerate"
    ),
    "0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 1 node(s) had "
    "volume node affinity conflict.": (
        "none of the cluster's 2 machines can run the pod: 1 has a pod that keeps this one "
        "away (anti-affinity), 1 cannot reach the pod's volume"
    ),
    "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints "
    "(missing required label).": (
        "none of the cluster's 3 machines can run the pod: 3 do not match the pod's topology spread"
    ),
    "0/2 nodes are available: 2 node(s) were frobbed today.": (
        "none of the cluster's 2 machines can run the pod: 2: were frobbed today"
    ),
    "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.": (
        "none of the cluster's 3 machines can run the pod: a volume claim of the pod is not "
        "bound yet"
    ),
    '0/3 nodes are available: persistentvolumeclaim "data" not found.': (
        "none of the cluster's 3 machines can run the pod: there is no volume claim data"
    ),
    'persistentvolumeclaim "data" not found': "there is no volume claim data",
    "0/1 nodes are available: 1 Insufficient cpu.": (
        "the cluster's only machine cannot run the pod: 1 has too little free cpu"
    ),
    "no nodes available to schedule pods": "no nodes available to schedule pods",
    "0/0 nodes are available:": "the cluster has no machines",
}


@pytest.mark.parametrize("message", SCHEDULER)
def test_the_schedulers_counts_are_plain(message: str) -> None:
    assert unschedulable(message) == SCHEDULER[message]


def pod(
    waiting: dict[str, str] | None = None,
    *,
    node: str = "gpu-7",
    conditions: tuple[dict[str, str], ...] = (),
    gates: tuple[str, ...] = (),
    phase: str = "Pending",
    initial: dict[str, Any] | None = None,
) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase, "conditions": list(conditions)}
    if waiting is not None:
        container = {"name": "node", "image": "team/x:1", "state": {"waiting": waiting}}
        status["containerStatuses"] = [container]
    if initial is not None:
        status["initContainerStatuses"] = [{"name": "load", "image": "l:1", **initial}]
    spec: dict[str, Any] = {"nodeName": node} if node else {}
    if gates:
        spec["schedulingGates"] = [{"name": one} for one in gates]
    return {"spec": spec, "status": status}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 Insufficient cpu.",
}
DENIED = 'failed to pull and unpack image "team/x:1": pull access denied, repository does not exist'
PODS: list[tuple[dict[str, Any], str]] = [
    (pod(phase="Running"), ""),
    (pod(node=""), "its pod has not been scheduled yet"),
    (
        pod(node="", conditions=(UNSCHEDULABLE,)),
        "none of the cluster's 2 machines can run the pod: 2 have too little free cpu",
    ),
    (pod(node="", gates=("kueue.x-k8s.io/admission",)), "Kueue has not admitted its pod yet"),
    (
        pod(node="", gates=("kueue.x-k8s.io/topology",)),
        "Kueue has not assigned its pod a place in the topology yet",
    ),
    (pod(node="", gates=("a/b", "c")), "its pod is held by the scheduling gate a/b, c"),
    (pod(), "its pod is being created on gpu-7"),
    (pod({"reason": "ContainerCreating"}), "its pod is being created on gpu-7"),
    (
        pod({"reason": "ErrImagePull", "message": DENIED}),
        f"image team/x:1 cannot be pulled: {DENIED}",
    ),
    (
        pod(
            {
                "reason": "ImagePullBackOff",
                "message": f'Back-off pulling image "team/x:1": ErrImagePull: {DENIED}',
            }
        ),
        f"image team/x:1 cannot be pulled: {DENIED}",
    ),
    (
        pod({"reason": "ErrImageNeverPull"}),
        "image team/x:1 cannot be pulled (ErrImageNeverPull)",
    ),
    (
        pod({"reason": "CreateContainerConfigError", "message": 'secret "keys" not found'}),
        'container node of its pod cannot be created: secret "keys" not found',
    ),
    (
        pod({"reason": "PodInitializing"}, initial={"state": {"running": {}}}),
        "container load of its pod runs first, on gpu-7",
    ),
    (
        pod(
            {"reason": "PodInitializing"},
            initial={"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}},
        ),
        "container load of its pod keeps failing: back-off",
    ),
]


@pytest.mark.parametrize(("one", "why"), PODS, ids=[why for _, why in PODS])
def test_a_pod_waits_for_a_reason(one: dict[str, Any], why: str) -> None:
    assert why_pod_waits(one) == why


def workload(
    *conditions: tuple[str, str, str, str], active: bool = True, **status: Any
) -> dict[str, Any]:
    """conditions: type, status, reason, message."""
    made = [dict(zip(("type", "status", "reason", "message"), c, strict=True)) for c in conditions]
    spec: dict[str, Any] = {"queueName": "team-a"}
    if not active:
        spec["active"] = False
    return {"spec": spec, "status": {"conditions": made, **status}}


QUOTA = (
    "couldn't assign flavors to pod set workers: insufficient unused quota for nvidia.com/gpu in "
    "flavor a100, 8 more needed"
)
WORKLOADS: list[tuple[dict[str, Any], str]] = [
    (workload(), "queue team-a of Kueue has not admitted it yet"),
    (
        workload(("QuotaReserved", "False", "Pending", f"{QUOTA}.")),
        f"queue team-a of Kueue has not admitted it yet: {QUOTA}",
    ),
    (
        workload(("QuotaReserved", "False", "WaitingForQuota", QUOTA)),
        f"queue team-a of Kueue: it waits for quota: {QUOTA}",
    ),
    (
        workload(("QuotaReserved", "False", "Inadmissible", "LocalQueue team-a doesn't exist")),
        "the namespace has no LocalQueue team-a: create it, or cancel the run, and start it in "
        "another queue",
    ),
    (
        workload(
            ("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus"),
            admission={"clusterQueue": "gpus"},
            admissionChecks=[{"name": "machines", "state": "Pending", "message": "two of 8"}],
        ),
        "Kueue has reserved quota in gpus, and waits for admission check machines: two of 8",
    ),
    (
        workload(("QuotaReserved", "True", "", ""), admission={"clusterQueue": "gpus"}),
        "Kueue has reserved quota in gpus, and has not admitted it yet",
    ),
    (workload(("QuotaReserved", "True", "", ""), ("Admitted", "True", "", "")), ""),
    (
        workload(
            ("Admitted", "True", "", ""),
            ("Evicted", "True", "Preempted", "Preempted to accommodate a workload (UID: 7)"),
        ),
        "Kueue has preempted it: Preempted to accommodate a workload (UID: 7)",
    ),
    (
        workload(("Evicted", "True", "PodsReadyTimeout", "Exceeded the PodsReady timeout ns/x")),
        "Kueue has evicted it since its pods were not ready in time: Exceeded the PodsReady "
        "timeout ns/x",
    ),
    (  # its quota is taken for the same reason
        workload(
            ("QuotaReserved", "False", "Pending", "Preempted to accommodate a workload (UID: 8)"),
            ("Evicted", "True", "Preempted", "Preempted to accommodate a workload (UID: 8)"),
        ),
        "Kueue has preempted it: Preempted to accommodate a workload (UID: 8)",
    ),
    (
        workload(
            ("QuotaReserved", "False", "Pending", QUOTA),
            ("Evicted", "True", "Preempted", "Preempted to accommodate a workload (UID: 9)"),
        ),
        f"queue team-a of Kueue has not admitted it again yet: {QUOTA}",
    ),
    (
        workload(
            ("QuotaReserved", "False", "Pending", "The workload is deactivated"),
            ("Evicted", "True", "Deactivated", "exceeded the maximum number of re-queuing retries"),
            active=False,
        ),
        "Kueue has deactivated it: exceeded the maximum number of re-queuing retries",
    ),
    (workload(active=False), "it is deactivated in Kueue"),
    (workload(("Finished", "True", "Succeeded", "done")), ""),
]


@pytest.mark.parametrize(("one", "why"), WORKLOADS, ids=[why for _, why in WORKLOADS])
def test_a_run_waits_in_kueue_for_a_reason(one: dict[str, Any], why: str) -> None:
    assert why_queued(one) == why


def _placed(reason: str = "ContainerCreating", **status: Any) -> dict[str, Any]:
    """A pod that has a machine. reason: why its container waits."""
    one = {"name": "node", "image": "i", "state": {"waiting": {"reason": reason}}}
    found = {"phase": "Pending", "containerStatuses": [one], **status}
    return {"spec": {"nodeName": "gpu-7"}, "status": found}


NETWORK = {"type": "PodReadyToStartContainers", "status": "True"}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (_placed(), True),
        (_placed(containerStatuses=[]), True),
        (_placed(conditions=[{**NETWORK, "status": "False"}]), True),
        (_placed(conditions=[NETWORK]), False),  # as while it pulls a large image
        (_placed("ErrImagePull"), False),
        (_placed(phase="Running"), False),
        ({**_placed(), "spec": {}}, False),
    ],
)
def test_whether_volumes_may_not_be_mounted_yet(one: dict[str, Any], expected: bool) -> None:
    assert is_mounting(one) is expected
