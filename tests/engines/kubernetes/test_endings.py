"""How pods end, as the kubelet and the controllers of Kubernetes report it."""

from __future__ import annotations

from typing import Any

import pytest

from muster.engines.kubernetes.endings import (
    Crash,
    End,
    Failure,
    crash_of,
    end_of_deleted,
    end_of_deleted_pod,
    end_of_pod,
    failed_beside,
    running_beside,
    why_unreachable,
)
from muster.lifecycle.status import Reason


def pod(
    phase: str,
    terminated: dict[str, Any] | None = None,
    *,
    disrupted: tuple[str, str] | None = None,
    name: str = "node",
    initial: dict[str, Any] | None = None,
    **status: str,
) -> dict[str, Any]:
    """disrupted: reason and message of the condition."""
    made: dict[str, Any] = {"phase": phase, **status}
    if terminated is not None:
        made["containerStatuses"] = [{"name": name, "state": {"terminated": terminated}}]
    if initial is not None:
        made["initContainerStatuses"] = [{"name": "load", "state": {"terminated": initial}}]
    if disrupted is not None:
        reason, message = disrupted
        made["conditions"] = [
            {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        ]
    containers = [{"name": "node", "resources": {"limits": {"memory": "8Gi"}}}]
    spec = {"nodeName": "gpu-7", "containers": containers}
    return {"metadata": {"name": "p-0-x"}, "spec": spec, "status": made}


P = "pod p-0-x on gpu-7"
ENDS: list[tuple[dict[str, Any], Reason | None, str]] = [
    (pod("Running"), None, ""),
    (pod("Pending"), None, ""),
    (pod("Succeeded", {"exitCode": 0, "reason": "Completed"}), Reason.EXIT, f"{P} has ended"),
    (
        pod("Failed", {"exitCode": 3, "reason": "Error", "message": "a\nno space left.\n"}),
        Reason.EXIT,
        f"{P} has exited with code 3: no space left",
    ),
    # others of its containers still run
    (pod("Running", {"exitCode": 3}), Reason.EXIT, f"{P} has exited with code 3"),
    (pod("Failed", {"exitCode": 143}), Reason.EXIT, f"{P} was ended by SIGTERM"),
    # of the program that ran then
    (
        pod("Failed", {"exitCode": 137, "message": "epoch 7 loss 0.2"}),
        Reason.EXIT,
        f"{P} was ended by SIGKILL",
    ),
    (
        pod("Failed", {"exitCode": 143, "message": "epoch 7\nmuster: the node server has failed"}),
        Reason.EXIT,
        f"{P} was ended by SIGTERM: muster: the node server has failed",
    ),
    (pod("Failed", {"exitCode": 0, "signal": 9}), Reason.EXIT, f"{P} was ended by SIGKILL"),
    (
        pod("Failed", {"exitCode": 137, "reason": "OOMKilled"}),
        Reason.OUT_OF_MEMORY,
        f"{P} ran out of memory: its limit is 8Gi",
    ),
    (
        pod("Failed", {"exitCode": 128, "reason": "StartError", "message": "exec: no such file"}),
        Reason.NOT_STARTED,
        f"{P} could not be started: exec: no such file",
    ),
    (
        pod("Failed", {"exitCode": 1}, name="log"),
        Reason.EXIT,
        f"container log of {P} has exited with code 1",
    ),
    (
        pod("Failed", initial={"exitCode": 2, "message": "no data"}),
        Reason.NOT_STARTED,
        f"container load of {P} has exited with code 2: no data",
    ),
    (
        pod("Failed", reason="Evicted", message="The node was low on resource: memory. "),
        Reason.NODE_LOST,
        f"{P} was evicted: The node was low on resource: memory",
    ),
    (
        pod(
            "Failed",
            {"exitCode": 137},
            disrupted=("TerminationByKubelet", "low on resource: memory"),
            reason="Evicted",
            message="low on resource: memory",
        ),
        Reason.NODE_LOST,
        f"{P} was evicted: low on resource: memory",
    ),
    (
        pod("Failed", reason="DeadlineExceeded", message="Pod was active on the node longer"),
        Reason.DEADLINE,
        f"{P} has reached its activeDeadlineSeconds: Pod was active on the node longer",
    ),
    (
        pod("Failed", {"exitCode": 143}, disrupted=("PreemptionByScheduler", "preempting for q")),
        Reason.PREEMPTED,
        f"{P} was preempted by a pod of higher priority: preempting for q",
    ),
    (
        pod("Failed", {"exitCode": 143}, disrupted=("EvictionByEvictionAPI", "Eviction API")),
        Reason.PREEMPTED,
        f"{P} was evicted, as when its node is drained: Eviction API",
    ),
    (
        pod("Failed", disrupted=("DeletionByPodGC", "PodGC: node no longer exists")),
        Reason.NODE_LOST,
        f"{P} was deleted, as its node is gone: PodGC: node no longer exists",
    ),
    (
        pod("Failed", disrupted=("DeletionByTaintManager", "")),
        Reason.NODE_LOST,
        f"{P} was deleted for a taint of its node",
    ),
    (
        pod("Failed", reason="NodeShutdown", message="Pod was rejected"),
        Reason.NODE_LOST,
        f"{P} was ended, as its node shuts down: Pod was rejected",
    ),
    (
        pod("Failed", reason="OutOfnvidia.com/gpu", message="Node didn't have enough resource"),
        Reason.NOT_STARTED,
        f"{P} was refused there (OutOfnvidia.com/gpu): Node didn't have enough resource",
    ),
    (
        pod("Failed", reason="UnexpectedAdmissionError", message="Allocate failed"),
        Reason.NOT_STARTED,
        f"{P} was refused there (UnexpectedAdmissionError): Allocate failed",
    ),
    (pod("Failed"), Reason.NODE_LOST, f"{P} has failed"),
    # nobody knows whether its programs run: it has not ended
    (pod("Unknown", reason="NodeLost", message="Node gpu-7 is unresponsive"), None, ""),
    (pod("Running", disrupted=("EvictionByEvictionAPI", "")), None, ""),
]


@pytest.mark.parametrize(("one", "reason", "why"), ENDS, ids=[f"{r}-{w}" for _, r, w in ENDS])
def test_a_pod_ends_for_a_reason(one: dict[str, Any], reason: Reason | None, why: str) -> None:
    assert end_of_pod(one) == (None if reason is None else (reason, why))


DELETED: list[tuple[dict[str, Any], Reason, str]] = [
    (pod("Running"), Reason.NODE_LOST, f"{P} was deleted"),
    (
        pod("Running", disrupted=("EvictionByEvictionAPI", "")),
        Reason.PREEMPTED,
        f"{P} was evicted, as when its node is drained",
    ),
    (
        pod("Unknown", reason="NodeLost", message="Node gpu-7 is unresponsive"),
        Reason.NODE_LOST,
        f"{P} was on a node that does not answer: Node gpu-7 is unresponsive",
    ),
    (pod("Failed", {"exitCode": 3}), Reason.EXIT, f"{P} has exited with code 3"),
]


@pytest.mark.parametrize(("one", "reason", "why"), DELETED, ids=[why for _, _, why in DELETED])
def test_a_deleted_pod_has_ended(one: dict[str, Any], reason: Reason, why: str) -> None:
    assert end_of_deleted(one) == (reason, why)


def event(reason: str, message: str, minute: int) -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": f"2026-01-02T03:{minute:02}:00Z"}


MADE_WAY = End(
    Reason.PREEMPTED,
    "pod p was preempted by a pod of higher priority: Preempted by pod 77 on node gpu-7",
)


@pytest.mark.parametrize(
    ("events", "end"),
    [
        ([], None),
        ([event("Scheduled", "Successfully assigned", 1), event("Killing", "Stopping", 2)], None),
        (
            [
                event("Preempted", "Preempted by pod 77 on node gpu-7", 2),
                event("Killing", "Stopping container node", 3),
            ],
            MADE_WAY,
        ),
        (
            [
                event("Evicted", "The node was low on resource: memory.", 4),
                event("Preempted", "by pod 77", 2),
            ],
            End(Reason.NODE_LOST, "pod p was evicted: The node was low on resource: memory"),
        ),
    ],
    ids=["none", "of-others", "preempted", "the-last"],
)
def test_what_events_say_of_a_pod_that_is_gone(
    events: list[dict[str, Any]], end: End | None
) -> None:
    assert end_of_deleted_pod("p", events) == end


def test_a_pod_on_a_lost_node_is_unreachable() -> None:
    one = pod("Unknown", reason="NodeLost", message="Node gpu-7 is unresponsive")
    assert why_unreachable(one) == "gpu-7 does not answer the cluster: Node gpu-7 is unresponsive"
    assert why_unreachable(pod("Running")) == ""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (pod("Running"), None),
        (pod("Succeeded", {"exitCode": 0}), None),
        (pod("Failed", {"exitCode": 3}), Crash("node", f"{P} has exited with code 3")),
        (pod("Running", {"exitCode": 3}), Crash("node", f"{P} has exited with code 3")),
        (
            pod("Failed", {"exitCode": 1, "message": "x"}, name="proxy"),
            Crash("proxy", f"container proxy of {P} has exited with code 1"),
        ),
        (
            pod("Failed", initial={"exitCode": 1}),
            Crash("load", f"container load of {P} has exited with code 1"),
        ),
        (pod("Failed", {"exitCode": 137}), Crash("node", f"{P} was ended by SIGKILL", killed=True)),
        (
            pod("Failed", {"exitCode": 137, "reason": "OOMKilled"}),
            Crash("node", f"{P} ran out of memory: its limit is 8Gi", killed=True),
        ),
        # what says all itself, or was ended from outside
        (pod("Failed", {"exitCode": 128, "reason": "StartError"}), None),
        (pod("Failed", {"exitCode": 137}, reason="Evicted"), None),
        (pod("Failed", {"exitCode": 143}, disrupted=("DeletionByTaintManager", "")), None),
    ],
)
def test_whose_log_may_say_why(given: dict[str, Any], found: Crash | None) -> None:
    assert crash_of(given) == found


def test_containers_beside_the_node_fail_while_it_runs() -> None:
    states = {
        "late": {"terminated": {"exitCode": 2, "finishedAt": "2026-03-01T12:00:02Z"}},
        "first": {"terminated": {"exitCode": 137, "finishedAt": "2026-03-01T12:00:01Z"}},
        "done": {"terminated": {"exitCode": 0}},
        "runs": {"running": {}},
        "node": {"terminated": {"exitCode": 4}},
    }
    one = pod("Running")
    one["status"]["containerStatuses"] = [
        {"name": name, "state": state} for name, state in states.items()
    ]
    first, late = failed_beside(one)
    text = f"container first of {P} was ended by SIGKILL"
    assert first == Failure("first", 137, 9, Reason.EXIT, text, text)
    assert (late.container, late.code, late.signal) == ("late", 2, 0)
    assert running_beside(one) == ("runs",)
    one["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:03Z"
    assert failed_beside(one) == ()  # they were told to end


def test_the_lines_that_explain_a_crash_are_below_it() -> None:
    crash = Crash("node", f"{P} has exited with code 1")
    log = 'starting\nTraceback (most recent call last):\n  File "x"\nImportError: no y'
    first, *rest = crash.with_log(log).splitlines()
    assert first == f"{P} has exited with code 1:"
    assert rest[-1] == "ImportError: no y"
    assert "starting" not in rest


TRACEBACK = 'Traceback (most recent call last):\n  File "x"\nValueError: of the program'


@pytest.mark.parametrize(
    "log",
    [
        "epoch 1 loss 0.3\nmuster-node: the folder /muster/node cannot be used",
        f"{TRACEBACK}\nmuster-node: the folder /muster/node cannot be used\n",
    ],
)
def test_the_server_says_last_why_it_has_failed(log: str) -> None:
    """What its program has written before is not why."""
    crash = Crash("node", f"{P} has exited with code 1")
    assert crash.with_log(log).splitlines() == [
        f"{P} has exited with code 1:",
        "muster-node: the folder /muster/node cannot be used",
    ]


def test_a_note_of_the_server_is_not_why() -> None:
    crash = Crash("node", f"{P} has exited with code 1")
    note = "muster-node: note: names of nodes do not resolve"
    assert crash.with_log(f"{note}\nmuster: it is full").splitlines()[1:] == ["muster: it is full"]
    assert "ValueError: of the program" in crash.with_log(f"{TRACEBACK}\n{note}")


def test_the_last_lines_of_what_was_killed_do_not_explain_it() -> None:
    crash = Crash("node", f"{P} ran out of memory: its limit is 8Gi", killed=True)
    assert crash.with_log("epoch 1\nepoch 2").splitlines() == [
        f"{P} ran out of memory: its limit is 8Gi",
        "last lines of its log:",
        "epoch 1",
        "epoch 2",
    ]


def test_other_containers_may_begin_lines_as_the_node_program_does() -> None:
    crash = Crash("load", f"container load of {P} has exited with code 1")
    log = f"{TRACEBACK}\nmuster: hello"
    assert "ValueError: of the program" in crash.with_log(log)
