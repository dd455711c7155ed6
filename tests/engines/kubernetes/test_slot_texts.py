"""What people read about a slot that has no node, or whose node has ended."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from engines.kubernetes.test_hosts import pod
from muster.engines.kubernetes.endings import End
from muster.engines.kubernetes.pod_facts import JobSetFacts, PodFacts
from muster.engines.kubernetes.slot_texts import (
    explained_by_log,
    is_failed_start,
    why_ended,
    why_gone,
    why_no_node,
    why_not_reached,
    why_of_no_use,
)
from muster.lifecycle.status import Reason


def of(**more: Any) -> PodFacts:
    return pod("run-0", "workers", 0, "u", **more)


def jobset(**more: Any) -> JobSetFacts:
    given = {"is_suspended": False, "is_ending": False, "restarts": 0}
    return JobSetFacts(
        "uid", "run-0", "r1", **{**given, "has_succeeded": False, "failed": "", **more}
    )


SUSPENDED = jobset(is_suspended=True)
EVICTED = jobset(is_suspended=True, evicted="Kueue has preempted it")
RESUMES = "JobSet run-0 was suspended in the cluster; its pod comes back when it resumes"
ADMITTED = "Kueue has preempted it; its pod comes back when it is admitted again"
DELETED = "pod pod-u on gpu-7 was deleted"


@pytest.mark.parametrize(
    ("known", "facts", "why"),
    [
        (None, None, "its pod has not been created yet"),
        (None, jobset(why_waiting="queue q is full"), "queue q is full"),
        (None, jobset(), "its pod has not been created yet"),
        (None, jobset(is_suspended=True), "the JobSet is suspended"),
        (None, jobset(is_suspended=True, why_waiting="queue q is full"), "queue q is full"),
        (of(), jobset(), "its pod runs on gpu-7, and has not connected to 10.0.0.1 yet"),
        (of(waiting="not found"), None, "image python cannot be pulled: not found"),
    ],
)
def test_why_a_slot_has_no_node(
    known: PodFacts | None, facts: JobSetFacts | None, why: str
) -> None:
    assert why_no_node(known, facts, "10.0.0.1") == why


@pytest.mark.parametrize(
    ("known", "facts", "why", "reason"),
    [
        (of(), None, DELETED, Reason.NODE_LOST),  # it is gone, and had not ended
        (of(deleted=True, code=143), jobset(), DELETED, Reason.NODE_LOST),
        (of(code=3), jobset(), "pod pod-u on gpu-7 has exited with code 3", Reason.EXIT),
        (of(deleted=True, code=143), SUSPENDED, RESUMES, Reason.PREEMPTED),
        (of(), SUSPENDED, RESUMES, Reason.PREEMPTED),
        (of(deleted=True, code=143), EVICTED, ADMITTED, Reason.PREEMPTED),
        # it has ended by itself before its JobSet was suspended
        (of(code=3), SUSPENDED, "pod pod-u on gpu-7 has exited with code 3", Reason.EXIT),
    ],
)
def test_why_a_node_has_ended(
    known: PodFacts, facts: JobSetFacts | None, why: str, reason: Reason
) -> None:
    assert why_ended(known, facts) == (why, reason)


def test_what_ends_a_pod_counts_more_than_a_suspension() -> None:
    evicted = of(deleted=True, code=143, disrupted="EvictionByEvictionAPI")
    why, reason = why_ended(evicted, SUSPENDED)
    assert reason is Reason.PREEMPTED and "was evicted, as when its node is drained" in why


@pytest.mark.parametrize(
    ("facts", "name", "end", "why", "reason"),
    [
        (None, "", None, "its pod was deleted while no supervisor was running", Reason.NODE_LOST),
        (
            None,
            "p-x",
            None,
            "pod p-x was deleted while no supervisor was running",
            Reason.NODE_LOST,
        ),
        (jobset(), "p-x", End(Reason.PREEMPTED, "p-x made way"), "p-x made way", Reason.PREEMPTED),
        (SUSPENDED, "p-x", End(Reason.NODE_LOST, "no"), RESUMES, Reason.PREEMPTED),
    ],
)
def test_why_a_node_has_ended_whose_pod_is_gone(
    facts: JobSetFacts | None, name: str, end: End | None, why: str, reason: Reason
) -> None:
    assert why_gone(facts, name, end) == (why, reason)


@pytest.mark.parametrize(
    ("known", "facts", "may"),
    [
        (of(code=137), None, True),
        (of(code=137), SUSPENDED, True),  # it had failed before it was deleted
        (of(deleted=True, code=143), SUSPENDED, False),
        (of(deleted=True, code=143), None, False),
        (of(code=137, disrupted="EvictionByEvictionAPI"), None, False),
        (of(), None, False),  # it has not ended by itself
    ],
)
def test_whether_a_log_may_say_why(known: PodFacts, facts: JobSetFacts | None, may: bool) -> None:
    assert explained_by_log(known, why_ended(known, facts)[1]) is may


def test_why_a_pod_is_not_reached() -> None:
    assert why_not_reached(of(), "no answer") == "no answer"
    silent = replace(of(), why_unreachable="its node gpu-7 does not answer")
    assert why_not_reached(silent, "no answer") == "its node gpu-7 does not answer"
    deleted = replace(of(deleted=True), end=None)
    assert why_not_reached(deleted, "no answer") == "its pod is being deleted"
    evicted = replace(of(deleted=True, disrupted="EvictionByEvictionAPI"), end=None)
    text = "its pod is ending: it was evicted, as when its node is drained"
    assert why_not_reached(evicted, "no answer") == text
    tainted = of(deleted=True, disrupted="DeletionByTaintManager")
    tainted = replace(tainted, end=None)
    text = why_not_reached(tainted, "no answer")
    assert text.startswith(
        "its pod is ending: it was deleted for a taint of its node; its node has"
    )
    assert text.endswith("or is removed from the cluster")


@pytest.mark.parametrize(
    ("known", "reason", "placed", "counts"),
    [
        (of(code=1), Reason.EXIT, False, True),
        (of(), Reason.NODE_LOST, False, True),
        (of(), Reason.PREEMPTED, False, False),  # the next one may start
        (of(code=1), Reason.EXIT, True, True),
        (of(), Reason.NOT_STARTED, True, True),
        (of(), Reason.EXIT, True, False),  # its node program has ended well
        (of(code=137), Reason.OUT_OF_MEMORY, True, False),  # of its program
        (of(code=143), Reason.NODE_LOST, True, False),
        (of(code=143), Reason.PREEMPTED, True, False),
    ],
)
def test_which_pods_count_as_failed_starts(
    known: PodFacts, reason: Reason, placed: bool, counts: bool
) -> None:
    assert is_failed_start(known, reason, placed=placed) is counts


@pytest.mark.parametrize(
    ("facts", "is_gone", "why"),
    [
        (jobset(), False, ""),
        (SUSPENDED, False, ""),
        (jobset(has_succeeded=True), False, "JobSet run-0 has ended"),
        (jobset(failed="JobSet run-0 has failed: no"), False, "JobSet run-0 has failed: no"),
        (jobset(is_ending=True), False, "JobSet run-0 was deleted"),
        (jobset(), True, "JobSet run-0 was deleted"),
        (jobset(failed="JobSet run-0 has failed"), True, "JobSet run-0 has failed"),
        # one of several Jobs that stand for it
        (replace(jobset(has_succeeded=True), name="run-0-workers-0"), False, ""),
    ],
)
def test_why_a_jobset_is_of_no_use(facts: JobSetFacts, is_gone: bool, why: str) -> None:
    assert why_of_no_use(facts, "run-0", is_gone=is_gone) == why
