"""From what pods and a JobSet say to the events of a run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from engines.kubernetes.observed_pods import part, pod, runs
from muster.engines.kubernetes.ended_pods import EndedPod
from muster.engines.kubernetes.endings import End
from muster.engines.kubernetes.observation import Observation
from muster.engines.kubernetes.observed_facts import (
    ObservedJobSet,
    ObservedPod,
    observed_jobset,
)
from muster.engines.kubernetes.places import Places
from muster.lifecycle.events import (
    EngineEvent,
    NodeEnded,
    NodeLocated,
    NodeQueued,
    NodeReachable,
    NodeReady,
    NodeScheduled,
    NodeStarted,
    NodeUnreachable,
    ResourcesLeft,
    RunEnded,
    RunRestarted,
)
from muster.lifecycle.incarnations import BLOCK
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason
from muster.spec.formats.jobset.as_is import Part

R = Reason


def jobset(**status: Any) -> ObservedJobSet:
    suspend = status.pop("suspend", False)
    metadata = {"name": "train", "uid": "js"}
    made = {"metadata": metadata, "spec": {"suspend": suspend}, "status": status}
    return observed_jobset(made, "r1", "muster.run/id")


def condition(kind: str, message: str = "", reason: str = "") -> list[dict[str, str]]:
    return [{"type": kind, "status": "True", "message": message, "reason": reason}]


FAILED = {"conditions": condition("Failed", "no restarts left", "ReachedMaxRestarts")}
COMPLETED = {"conditions": condition("Completed")}


class Watched:
    """An observation whose pods are all listed, and whose nodes were started."""

    def __init__(self, *parts: Part, listed: bool = True) -> None:
        self.places = Places(parts or (part(),))
        self.one = Observation(self.places)
        self.now = 100.0
        self.one.start(NodeRef(rank, 0) for rank in range(self.places.size))
        if listed:
            self.one.pods_listed(self.now)
        self.one.take()

    def see(self, *seen: ObservedPod | ObservedJobSet) -> list[EngineEvent]:
        for one in seen:
            if isinstance(one, ObservedPod):
                self.one.see_pod(one, self.now)
            else:
                self.one.see_jobset(one, self.now)
        return self.one.take()

    def settle(self, *, after: float) -> list[EngineEvent]:
        self.now += after
        self.one.settle(self.now)
        return self.one.take()

    def start(self, *refs: tuple[int, int]) -> list[EngineEvent]:
        self.one.start(NodeRef(*ref) for ref in refs)
        return self.one.take()

    def stop(self, *refs: tuple[int, int]) -> list[EngineEvent]:
        self.one.stop(NodeRef(*ref) for ref in refs)
        return self.one.take()


def kinds(events: Iterable[EngineEvent]) -> list[tuple[type, int | None]]:
    return [(type(one), getattr(one, "rank", None)) for one in events]


def ends(events: Iterable[EngineEvent]) -> list[tuple[int, int, int | None, Reason]]:
    found = [one for one in events if isinstance(one, NodeEnded)]
    return [(one.rank, one.incarnation, one.exit_code, one.reason) for one in found]


# --- one pod


def test_a_pod_that_waits_runs_and_is_ready() -> None:
    watched = Watched()
    waiting = watched.see(pod("a", phase="Pending"))
    assert waiting == [NodeQueued(0, 0, "its pod is being created on m1")]
    assert watched.see(pod("a", phase="Pending")) == []
    assert watched.see(runs("a")) == [
        NodeScheduled(0, 0, "m1"),
        NodeLocated(0, 0, "m1", "10.0.0.1", "a"),
        NodeStarted(0, 0),
    ]
    ready = runs("a", conditions=[{"type": "Ready", "status": "True"}])
    assert watched.see(ready) == [NodeReady(0, 0)]
    assert watched.see(ready, ready) == []


def test_a_node_without_a_pod_says_why() -> None:
    watched = Watched(listed=False)
    assert watched.one.take() == []
    watched.one.pods_listed(watched.now)
    assert watched.one.take() == [
        NodeQueued(rank, 0, "JobSet has not created its pod yet") for rank in (0, 1)
    ]
    assert watched.see(jobset(suspend=True)) == [
        NodeQueued(rank, 0, "the JobSet is suspended") for rank in (0, 1)
    ]
    waits = replace(jobset(suspend=True), why_waiting="queue q of Kueue has not admitted it yet")
    assert {one.why for one in watched.see(waits) if isinstance(one, NodeQueued)} == {
        "queue q of Kueue has not admitted it yet"
    }


def test_a_success_is_reported_at_once_but_for_the_last() -> None:
    watched = Watched()
    events = watched.see(runs("a", 0), runs("b", 1), pod("a", 0, code=0))
    assert ends(events) == [(0, 0, 0, R.EXIT)]
    assert watched.see(pod("b", 1, code=0)) == []
    events = watched.see(jobset(**COMPLETED))
    assert ends(events) == [(1, 0, 0, R.EXIT)]
    assert events[-1] == RunEnded(RunState.SUCCEEDED)


def test_a_pod_that_was_never_seen_to_run_has_run() -> None:
    events = Watched().see(pod("a", 0, code=0))
    assert kinds(events) == [
        *((kind, 0) for kind in (NodeScheduled, NodeLocated, NodeStarted, NodeEnded))
    ]


def test_a_pod_on_a_machine_that_does_not_answer_is_unreachable() -> None:
    watched = Watched()
    watched.see(runs("a"))
    lost = pod("a", phase="Unknown", message="no heartbeat")
    assert kinds(watched.see(lost)) == [(NodeUnreachable, 0)]
    assert watched.see(lost) == []
    assert kinds(watched.see(runs("a"))) == [(NodeReachable, 0)]


def test_a_cluster_that_does_not_answer_makes_running_nodes_unreachable() -> None:
    watched = Watched()
    watched.see(runs("a"))
    watched.one.away("the cluster does not answer")
    assert watched.one.take() == [
        NodeUnreachable(0, 0, "the cluster does not answer"),
        NodeQueued(1, 0, "the cluster does not answer"),
    ]
    watched.one.away("")
    assert kinds(watched.one.take()) == [(NodeReachable, 0), (NodeQueued, 1)]


# --- what the cluster makes of a failure


def test_a_failure_waits_until_its_job_makes_another_pod() -> None:
    watched = Watched()
    watched.see(runs("a", 0), runs("b", 1))
    assert watched.see(pod("a", 0, code=3)) == []
    events = watched.see(pod("a2", 0, phase="Pending"))
    assert ends(events) == [(0, 0, 3, R.EXIT)]
    assert kinds(watched.start((0, 1))) == [(NodeQueued, 0)]
    assert kinds(watched.see(runs("a2", 0)))[-1] == (NodeStarted, 0)


def test_a_restart_of_the_jobset_comes_with_what_has_led_to_it() -> None:
    watched = Watched()
    watched.see(runs("a", 0), runs("b", 1), pod("b", 1, code=3))
    events = watched.see(jobset(restarts=1))
    assert ends(events) == [(1, 0, 3, R.EXIT)]
    assert events[1] == RunRestarted(1, None, 0, "pod b on m1 has exited with code 3")
    assert kinds(events[2:]) == [(NodeQueued, 0), (NodeQueued, 1)]
    # the pods before are gone for good
    assert watched.see(pod("a", 0, code=143, deleting=True)) == []
    events = watched.see(runs("c", 0, restarts=1))
    assert kinds(events)[-1] == (NodeStarted, 0)
    assert {one.incarnation for one in events if isinstance(one, NodeStarted)} == {BLOCK}


def test_new_pods_may_be_seen_before_the_restart() -> None:
    watched = Watched()
    watched.see(runs("a", 0), pod("a", 0, code=1))
    events = watched.see(pod("c", 0, restarts=2, phase="Pending"))
    assert kinds(events)[:2] == [(NodeEnded, 0), (RunRestarted, None)]
    assert kinds(events)[2:] == [(NodeQueued, 0), (NodeQueued, 1)]
    assert watched.see(jobset(restarts=2)) == []
    assert watched.one.restarts == 2


def test_a_jobset_that_fails_names_the_failed_and_not_the_deleted() -> None:
    watched = Watched(part(pods=3))
    watched.see(runs("a", 0), runs("b", 1), runs("c", 2), pod("b", 1, code=3))
    watched.see(pod("a", 0, code=143, deleting=True))
    events = watched.see(jobset(**FAILED))
    assert ends(events) == [(1, 0, 3, R.EXIT)]
    why = "JobSet train has failed: no restarts left (ReachedMaxRestarts)"
    assert events[-1] == RunEnded(RunState.FAILED, why)
    # the others end as the run stops them
    events = watched.stop((0, 0), (2, 0))
    assert ends(events) == [(0, 0, None, R.NODE_LOST)]
    assert ends(watched.see(pod("c", 2, code=143, deleting=True))) == [(2, 0, None, R.NODE_LOST)]


def test_the_pod_that_failed_may_be_seen_after_the_jobset() -> None:
    watched = Watched()
    watched.see(runs("a", 0), runs("b", 1))
    assert watched.see(jobset(**FAILED)) == []
    assert watched.one.due is not None and watched.one.due > watched.now
    events = watched.see(pod("b", 1, code=3))
    assert kinds(events) == [(NodeEnded, 1), (RunEnded, None)]
    assert watched.one.due is None


def test_a_jobset_that_fails_without_a_failed_pod_is_not_waited_for_long() -> None:
    watched = Watched()
    watched.see(runs("a", 0), runs("b", 1), jobset(**FAILED))
    assert watched.one.due is not None
    watched.one.settle(watched.one.due)
    assert kinds(watched.one.take()) == [(RunEnded, None)]
    watched.one.settle(watched.now + 1000)
    assert watched.one.take() == []


def test_the_first_of_several_failures_has_the_earliest_time() -> None:
    watched = Watched()
    watched.see(
        pod("a", 0, code=1, at="2026-01-02T03:04:07Z"),
        pod("b", 1, code=3, at="2026-01-02T03:04:06Z"),
    )
    events = watched.see(jobset(**FAILED))
    times = {one.rank: one.raised_at for one in events if isinstance(one, NodeEnded)}
    assert times[0] is not None and times[1] is not None and times[1] < times[0]


def test_a_pod_that_is_deleted_is_lost_and_replaced() -> None:
    watched = Watched()
    watched.see(runs("a", 0), runs("b", 1))
    watched.see(pod("a", 0, code=143, deleting=True))
    events = watched.see(pod("a2", 0, phase="Pending"))
    assert ends(events) == [(0, 0, None, R.NODE_LOST)]
    assert [one.message for one in events if isinstance(one, NodeEnded)] == ["pod a was deleted"]


def test_a_pod_that_reaches_its_deadline_alone_restarts_alone() -> None:
    watched = Watched()
    watched.see(runs("a", 0))
    watched.see(pod("a", 0, phase="Failed", reason="DeadlineExceeded"))
    events = watched.see(pod("a2", 0, phase="Pending"))
    assert ends(events) == [(0, 0, None, R.NODE_LOST)]


def test_a_jobset_that_is_suspended_gives_up_its_pods() -> None:
    watched = Watched(part(pods=1))
    watched.see(runs("a"), jobset(suspend=True))
    assert watched.see(pod("a", code=143, deleting=True)) == []  # Kueue may say why
    assert watched.one.due == watched.now + 3.0
    (end,) = watched.settle(after=3.0)
    assert isinstance(end, NodeEnded)
    assert end.reason is R.NODE_LOST
    assert end.message == "the JobSet is suspended: pod a was deleted"
    assert watched.one.due is None
    (waits,) = watched.start((0, 1))
    assert isinstance(waits, NodeQueued) and waits.why == "the JobSet is suspended"
    assert kinds(watched.see(runs("b")))[-1] == (NodeStarted, 0)


@pytest.mark.parametrize("order", [*permutations(("jobset", "pod", "workload"))], ids="-".join)
def test_kueue_takes_the_pods_of_a_jobset(order: tuple[str, ...]) -> None:
    """Whatever is seen first of it."""
    watched = Watched(part(pods=1))
    watched.see(runs("a"), jobset())
    is_suspended, evicted, events = False, "", list[EngineEvent]()
    for seen in order:
        if seen == "pod":
            events += watched.see(pod("a", code=143, deleting=True))
            continue
        is_suspended = is_suspended or seen == "jobset"
        evicted = "Kueue has preempted it" if seen == "workload" else evicted
        events += watched.see(replace(jobset(suspend=is_suspended), evicted=evicted))
    (end,) = events
    assert isinstance(end, NodeEnded)
    assert (end.reason, end.message) == (R.PREEMPTED, "Kueue has preempted it")
    assert watched.one.due is None


def test_the_next_supervisor_learns_that_kueue_has_taken_a_pod() -> None:
    status = NodeStatus(NodeState.RUNNING, 0)
    one = Observation(Places([part(pods=1)]), {NodeRef(0, 0): status})
    one.take()
    one.pods_listed(1.0)
    one.see_jobset(jobset(suspend=True), 1.0)
    assert ends(one.take()) == []
    one.see_jobset(replace(jobset(suspend=True), evicted="Kueue has preempted it"), 1.1)
    assert ends(one.take()) == [(0, 0, None, R.PREEMPTED)]


# --- the end


def test_a_jobset_that_is_deleted_ends_the_run() -> None:
    watched = Watched()
    watched.see(runs("a", 0), jobset())
    watched.one.see_jobset(jobset(), watched.now, is_gone=True)
    events = watched.one.take()
    assert events == [RunEnded(RunState.FAILED, "JobSet train was deleted")]
    events = watched.stop((0, 0), (1, 0))
    assert ends(events) == [(1, 0, 143, R.EXIT)]  # it had no pod
    gone = replace(runs("a"), end=End(R.NODE_LOST, "pod a was deleted"), runs=False)
    assert ends(watched.see(gone)) == [(0, 0, None, R.NODE_LOST)]


def test_nodes_that_are_canceled_end_with_their_pods() -> None:
    watched = Watched()
    watched.see(runs("a", 0), runs("b", 1), jobset())
    assert watched.stop((0, 0), (1, 0)) == []
    assert ends(watched.see(pod("a", 0, code=143, deleting=True))) == [(0, 0, None, R.NODE_LOST)]
    assert ends(watched.see(pod("b", 1, code=0))) == [(1, 0, 0, R.EXIT)]


def test_nodes_of_a_jobset_that_was_never_applied_end_at_once() -> None:
    watched = Watched(listed=False)
    watched.stop((0, 0), (1, 0))
    watched.one.never_applied(watched.now)
    events = watched.one.take()
    assert ends(events) == [(0, 0, 143, R.EXIT), (1, 0, 143, R.EXIT)]


def test_a_jobset_that_is_refused_fails_the_run_for_good() -> None:
    watched = Watched()
    watched.one.refuse("no right")
    events = watched.one.take()
    assert [(one.message, one.final) for one in events if isinstance(one, NodeEnded)] == [
        ("no right", True)
    ] * 2


def test_a_jobset_that_cannot_be_deleted_is_why_nodes_do_not_end() -> None:
    watched = Watched()
    watched.see(runs("a", 0), jobset())
    watched.stop((0, 0), (1, 0))
    watched.one.cannot_delete("no right")
    assert watched.one.take() == [NodeUnreachable(rank, 0, "no right") for rank in (0, 1)]
    watched.one.away("the cluster does not answer")
    watched.one.away("")
    assert watched.one.take() == []
    watched.one.cannot_delete("")
    assert kinds(watched.one.take())[:2] == [(NodeReachable, 0), (NodeReachable, 1)]


def test_nodes_of_a_jobset_that_is_left_end() -> None:
    watched = Watched()
    watched.see(runs("a", 0), jobset())
    watched.stop((0, 0), (1, 0))
    watched.one.cannot_delete("no right")
    watched.one.take()
    watched.one.give_up("it is left")
    events = watched.one.take()
    assert events[0] == ResourcesLeft("it is left")
    assert ends(events) == [(0, 0, None, R.NODE_LOST), (1, 0, None, R.NODE_LOST)]
    assert watched.see(jobset(**FAILED), pod("a", 0, code=3)) == []


def test_nodes_say_what_they_wait_for_before_their_pods_are_listed() -> None:
    watched = Watched(listed=False)
    watched.one.away("no right to list pods")
    why = "no right to list pods"
    assert watched.one.take() == [NodeQueued(rank, 0, why) for rank in (0, 1)]
    watched.stop((0, 0), (1, 0))
    watched.one.away("still no right")
    assert watched.one.take()[-2:] == [
        NodeUnreachable(rank, 0, "still no right") for rank in (0, 1)
    ]


# --- another supervisor


def alive(**states: NodeState) -> dict[NodeRef, NodeStatus]:
    return {NodeRef(rank, 0): NodeStatus(state, 0) for rank, state in enumerate(states.values())}


def test_another_supervisor_finds_what_there_is() -> None:
    one = Observation(Places([part()]), alive(a=NodeState.RUNNING, b=NodeState.QUEUED))
    assert kinds(one.take()) == [(NodeUnreachable, 0), (NodeUnreachable, 1)]
    one.see_pod(runs("a", 0), 0.0)
    assert kinds(one.take()) == [(NodeReachable, 0)]
    one.pods_listed(0.0)
    assert kinds(one.take()) == [(NodeReachable, 1), (NodeQueued, 1)]


@pytest.mark.parametrize("index", [0, None], ids=["Indexed", "NonIndexed"])
def test_another_supervisor_finds_the_later_pod_first(index: int | None) -> None:
    """A list has the pods of a node in any order: the end of the one that it had is reported."""
    found = {NodeRef(0, 0): NodeStatus(NodeState.RUNNING, host_id="a")}
    one = Observation(Places([part(pods=1)], {"uid-a": 0, "uid-b": 0}), found)
    one.take()
    one.see_pod(runs("b", index), 0.0)
    assert one.take() == []
    one.see_pod(pod("a", index, code=3), 0.0)
    assert kinds(one.take()) == [(NodeReachable, 0), (NodeEnded, 0)]
    one.start([NodeRef(0, 1)])
    assert NodeLocated(0, 1, "m1", "10.0.0.1", "b") in one.take()


def test_another_supervisor_finds_that_a_pod_was_replaced() -> None:
    found = {NodeRef(0, 0): NodeStatus(NodeState.RUNNING, host_id="gone")}
    one = Observation(Places([part(pods=1)]), found)
    one.take()
    one.see_pod(runs("b"), 0.0)
    assert one.take() == []
    one.pods_listed(0.0)
    _, ended = one.take()
    why = "pod gone was deleted while no supervisor was running"
    assert ended == NodeEnded(0, None, 0, Reason.NODE_LOST, why)
    one.start([NodeRef(0, 1)])
    assert NodeLocated(0, 1, "m1", "10.0.0.1", "b") in one.take()


def test_another_supervisor_says_why_it_hears_nothing() -> None:
    one = Observation(Places([part(pods=1)]), alive(a=NodeState.RUNNING))
    one.take()
    one.away("config has no context gpu")
    assert one.take() == [NodeUnreachable(0, 0, "config has no context gpu")]
    one.away("")
    assert one.take() == []
    one.see_pod(runs("a", 0), 0.0)
    assert kinds(one.take()) == [(NodeReachable, 0)]


def test_a_node_whose_pod_is_gone_is_lost_when_that_is_known_to_last() -> None:
    one = Observation(Places([part(pods=1)]), alive(a=NodeState.RUNNING))
    one.pods_listed(0.0)
    one.see_jobset(jobset(), 0.0)
    assert kinds(one.take()) == [(NodeUnreachable, 0)]
    one.see_jobset(jobset(**FAILED), 0.0)
    one.settle(1000.0)
    assert kinds(one.take()) == [(RunEnded, None)]
    one.stop([NodeRef(0, 0)])
    assert kinds(one.take()) == [(NodeReachable, 0), (NodeEnded, 0)]


def test_what_was_restarted_meanwhile_is_restarted() -> None:
    one = Observation(Places([part(pods=1)]), alive(a=NodeState.RUNNING), 1)
    one.take()
    one.see_pod(runs("c", restarts=3), 0.0)
    events = one.take()
    assert events[0] == RunRestarted(3, None, 0, "")
    assert events[-1] == NodeStarted(0, 3 * BLOCK)


def test_the_ends_of_pods_that_were_reported_are_not_reported_again() -> None:
    watched = Watched(part(pods=1))
    watched.see(runs("a"), pod("a", code=3), runs("b"))
    ended = watched.one.take_ended()
    assert ended == [EndedPod(NodeRef(0, 0), "uid-a")]
    assert watched.one.take_ended() == []
    found = {NodeRef(0, 1): NodeStatus(NodeState.RUNNING, 1)}
    one = Observation(watched.places, found, ended=ended)
    one.take()
    one.see_pod(pod("a", code=3), 0.0)
    one.see_pod(runs("b"), 0.0)
    one.pods_listed(0.0)
    assert kinds(one.take()) == [(NodeReachable, 0)]
    assert one.is_spent("uid-a") and not one.is_spent("uid-b")


def test_an_end_that_was_not_heard_of_is_reported_by_the_next_supervisor() -> None:
    found = {NodeRef(0, 0): NodeStatus(NodeState.RUNNING, 0)}
    ended = [EndedPod(NodeRef(0, 0), "uid-a")]
    one = Observation(Places([part(pods=1)]), found, ended=ended)
    one.take()
    one.see_pod(pod("a", code=3), 0.0)
    one.see_pod(runs("b"), 0.0)
    assert ends(one.take()) == [(0, 0, 3, R.EXIT)]
