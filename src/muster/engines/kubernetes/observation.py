"""What becomes of the nodes of a run whose JobSet the cluster runs as it is: from what pods and the
JobSet say, the events of a session. Pure: nothing is read, and the time is given.

A node is a place in the JobSet. Its incarnations are the pods that have this place one after
another, and those after a restart of the whole JobSet.

The end of a pod is reported once it is known what the cluster makes of it, as the lifecycle acts on
what it learns: its Job makes another pod; JobSet restarts all; JobSet has ended; or it is
suspended. The objects are watched apart, so that a JobSet may be seen to have failed before the pod
that did, or to be suspended before Kueue says why: that is waited for, a little."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from muster.engines.kubernetes.ended_pods import EndedPod
from muster.engines.kubernetes.endings import End
from muster.engines.kubernetes.node_reports import NodeReports
from muster.engines.kubernetes.observed_facts import ObservedJobSet, ObservedPod
from muster.engines.kubernetes.places import Places
from muster.engines.node_ends import canceled_start
from muster.lifecycle.events import (
    EngineEvent,
    NodeEnded,
    ResourcesLeft,
    RunEnded,
    RunRestarted,
)
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef, NodeStatus, Reason

#: Seconds for which what is watched apart is waited for: the pod whose failure has led to what
#: JobSet has done; and why Kueue has suspended the JobSet, if it has.
_LATE = 3.0
_NO_POD = "JobSet has not created its pod yet"
_SUSPENDED = "the JobSet is suspended"


class Observation:
    """The nodes of one run.

    alive: those that an earlier session has left. restarts: how often JobSet had restarted them, as
    is recorded. ended: the pods whose ends earlier sessions have reported.
    """

    def __init__(
        self,
        places: Places,
        alive: Mapping[NodeRef, NodeStatus] | None = None,
        restarts: int = 0,
        ended: Iterable[EndedPod] = (),
    ) -> None:
        self._places = places
        #: Pods of the present restart, by rank and uid, in the order in which they were seen.
        self._pods: defaultdict[int, dict[str, ObservedPod]] = defaultdict(dict)
        #: The uids of pods whose ends were reported. An incarnation that is alive has not heard of
        #: the end of its pod: the session before has recorded it, and was killed before it said so.
        self._spent = {one.uid for one in ended if one.ref not in (alive or {})}
        self._newly_ended: list[EndedPod] = []
        self._restarts = restarts
        self._jobset: ObservedJobSet | None = None
        #: Whether the JobSet is in the cluster no more.
        self._is_gone = False
        self._pods_listed = False
        self._why_away = ""
        self._why_kept = ""  # why the JobSet cannot be deleted
        self._due: float | None = None  # until when a pod that failed is waited for
        #: Until when Kueue may say why the JobSet is suspended.
        self._eviction_due: float | None = None
        self._has_ended = False  # whether RunEnded was reported
        self._events: list[EngineEvent] = []
        self._nodes = [NodeReports(self._report) for _ in range(places.size)]
        for ref, status in (alive or {}).items():
            self._nodes[ref.rank].attach(ref, status)

    def _report(self, event: EngineEvent) -> None:
        self._events.append(event)

    # --- what is known of it

    @property
    def due(self) -> float | None:
        """When `settle` is to be called, if nothing else happens."""
        due = [one for one in (self._due, self._eviction_due) if one is not None]
        return min(due, default=None)

    @property
    def has_seen_jobset(self) -> bool:
        """Whether the JobSet was reported, or that it is gone."""
        return self._jobset is not None or self._is_gone

    @property
    def is_over(self) -> bool:
        """Whether the cluster makes no pods of the JobSet any more: it has ended, or is gone."""
        return self._is_gone or (self._jobset is not None and _has_finished(self._jobset))

    @property
    def alive(self) -> list[NodeRef]:
        """The incarnations that have not ended, as was reported."""
        return [node.ref for node in self._nodes if node.ref is not None]

    @property
    def restarts(self) -> int:
        """How often JobSet has restarted the run, as was reported."""
        return self._restarts

    def take(self) -> list[EngineEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def take_ended(self) -> list[EndedPod]:
        """The pods whose ends are among the events since the last call."""
        ended, self._newly_ended = self._newly_ended, []
        return ended

    def is_spent(self, uid: str) -> bool:
        """Whether the end of a pod was reported."""
        return uid in self._spent

    # --- what the controller wants

    def start(self, refs: Iterable[NodeRef]) -> list[NodeRef]:
        """Incarnations are to start: each is the next pod of its place. Returns those that are
        new."""
        new = [ref for ref in refs if ref.incarnation > self._nodes[ref.rank].newest]
        for ref in new:
            self._nodes[ref.rank].begin(ref)
        self._advance_all()
        return new

    def stop(self, refs: Iterable[NodeRef]) -> None:
        """These are to end, as the run does. Of those that the cluster does not end by itself, the
        JobSet has to be deleted."""
        for ref in refs:
            node = self._nodes[ref.rank]
            if node.ref == ref:
                node.stopping = True
                self._advance(ref.rank)

    def refuse(self, why: str) -> None:
        """The cluster refuses the JobSet."""
        for node in self._nodes:
            if node.ref is not None:
                end = NodeEnded(
                    *(node.ref.rank, None),
                    reason=Reason.NOT_STARTED,
                    message=why,
                    incarnation=node.ref.incarnation,
                    final=True,
                )
                node.end(end)

    def wait(self, why: str) -> None:
        """The JobSet is not in the cluster yet. why: a phrase."""
        for rank, node in enumerate(self._nodes):
            if node.ref is not None and not self._pods[rank]:
                node.reach()
                node.queue(why)

    # --- what the cluster says

    def see_pod(self, pod: ObservedPod, now: float) -> None:
        """A pod has changed, or is gone (its `end` says how)."""
        rank = self._places.rank_of(pod)
        if rank is None or pod.restarts < self._restarts or pod.uid in self._spent:
            return
        restarted = pod.restarts > self._restarts
        if restarted:
            self._restart(pod.restarts)
        known = self._pods[rank].get(pod.uid)
        if known is None or known.end is None:  # what is done with it later does not change its end
            self._pods[rank][pod.uid] = pod
        if restarted:
            self._advance_all()
        else:
            self._advance(rank)
        self.settle(now)

    def see_jobset(self, jobset: ObservedJobSet, now: float, *, is_gone: bool = False) -> None:
        """The JobSet has changed, or is gone."""
        if not jobset.is_suspended or jobset.evicted:
            self._eviction_due = None
        elif not self._is_suspended():
            self._eviction_due = now + _LATE
        self._jobset, self._is_gone = jobset, is_gone
        self.settle(now)
        self._advance_all()

    def jobset_missing(self, now: float) -> None:
        """The JobSet is not in the cluster, and was before."""
        self._is_gone = True
        self.settle(now)
        self._advance_all()

    def never_applied(self, now: float) -> None:
        """There is no JobSet, and no pod."""
        self._pods_listed = True
        self.jobset_missing(now)

    def pods_listed(self, now: float) -> None:
        """All pods that there are have been reported."""
        self._pods_listed = True
        self._advance_all()
        self.settle(now)

    def away(self, why: str) -> None:
        """The cluster does not answer. why: a phrase; "": it does again."""
        self._why_away = why
        self._advance_all()

    def cannot_delete(self, why: str) -> None:
        """The JobSet cannot be deleted, so nodes that are to end do not. why: a phrase; "": it is
        deleted."""
        self._why_kept = why
        self._advance_all()

    def give_up(self, why: str) -> None:
        """The JobSet is left as it is: its nodes end for the run. why: a sentence."""
        self._has_ended = True
        self._events.append(ResourcesLeft(why))
        for node in self._nodes:
            if node.ref is not None:
                node.reach()
                node.end(_node_ended(node.ref, None, 0, End(Reason.NODE_LOST, "")))

    # --- restarts and the end

    def settle(self, now: float) -> None:
        """Report what JobSet has done, if it is known what has led to it, or that is overdue."""
        if self._eviction_due is not None and now >= self._eviction_due:
            self._eviction_due = None
            self._advance_all()
        if self._has_ended or not self._is_news():
            self._due = None
            return
        has_failed = self._jobset is not None and not self._jobset.has_succeeded
        if has_failed and not self._is_gone and not self._has_failed_pod():
            self._due = now + _LATE if self._due is None else self._due
            if now < self._due:
                return
        self._due = None
        jobset = self._jobset
        if jobset is not None and jobset.restarts > self._restarts:
            self._restart(jobset.restarts)
        if self.is_over:
            self._finish()

    def _is_news(self) -> bool:
        restarts = 0 if self._jobset is None else self._jobset.restarts
        return self.is_over or restarts > self._restarts

    def _restart(self, number: int) -> None:
        """JobSet restarts all. The ends of the pods before are reported with it. None counts: the
        budget is JobSet's."""
        cause = self._report_failures()
        why = "" if cause is None or cause.end is None else cause.end.why.partition("\n")[0]
        self._events.append(RunRestarted(number, counted=0, why=why))
        self._restarts = number
        self._pods.clear()
        self._due = None
        for rank, node in enumerate(self._nodes):
            stopping = node.stopping
            node.begin(NodeRef(rank, of_native_restart(number)))
            node.stopping = stopping

    def _finish(self) -> None:
        """The JobSet has ended, or is gone."""
        self._has_ended = True
        self._report_failures()
        for node, pod in [*self._ended_pods()]:
            if _is_success(pod):
                self._report_end(node, pod)
        jobset = self._jobset
        if jobset is not None and jobset.has_succeeded:
            self._events.append(RunEnded(RunState.SUCCEEDED))
        elif jobset is not None and jobset.failed:
            self._events.append(RunEnded(RunState.FAILED, jobset.failed))
        else:
            name = "its JobSet" if jobset is None else f"JobSet {jobset.name}"
            self._events.append(RunEnded(RunState.FAILED, f"{name} was deleted"))

    def _report_failures(self) -> ObservedPod | None:
        """Report the ends of the pods that have failed by themselves; if none has, of the first one
        that was deleted. What else was deleted, JobSet has deleted for that. Returns the first."""
        failed = [one for one in self._ended_pods() if not _is_success(one[1])]
        own = [one for one in failed if not one[1].was_deleted]
        failed = sorted(own or failed, key=lambda one: _ended_at(one[1]))[: None if own else 1]
        for node, pod in failed:
            self._report_end(node, pod)
        return failed[0][1] if failed else None

    def _ended_pods(self) -> Iterator[tuple[NodeReports, ObservedPod]]:
        """The nodes that are alive, as was reported, and whose pods have ended."""
        for rank, node in enumerate(self._nodes):
            pod = None if node.ref is None else self._pod_of(rank, node)
            if pod is not None and pod.end is not None:
                yield node, pod

    def _has_failed_pod(self) -> bool:
        """Whether a pod has failed by itself whose end was not reported."""
        return any(not (_is_success(pod) or pod.was_deleted) for _, pod in self._ended_pods())

    # --- one node

    def _advance_all(self) -> None:
        for rank in range(len(self._nodes)):
            self._advance(rank)

    def _pod_of(self, rank: int, node: NodeReports) -> ObservedPod | None:
        """The pod of a node: the one that it has or, as it has none, the next one of its place."""
        pods = self._pods[rank]
        if node.pod not in pods:
            node.pod = self._first(pods.values(), node.located)
        return pods.get(node.pod)

    def _first(self, pods: Iterable[ObservedPod], located: str) -> str:
        """The uid of the first of a node's pods; "" if it is not known yet. located: the name of
        the one that it had when the session began; the list may have a later one before it."""
        if located and not self._pods_listed:
            pods = [one for one in pods if one.name == located]
        # of pods that were there before they were seen, those that have ended were first
        left = sorted(
            pods,
            key=lambda one: (one.name != located, one.end is None, one.accepted_at or "~"),
        )
        return left[0].uid if left else ""

    def _advance(self, rank: int) -> None:
        """Report what is new of a node."""
        node = self._nodes[rank]
        if node.ref is None:
            return
        pod = self._pod_of(rank, node)
        if pod is None:
            self._advance_without_pod(node)
            return
        if node.located and pod.name != node.located:
            node.reach()
            why = f"pod {node.located} was deleted while no supervisor was running"
            node.end(_node_ended(node.ref, None, 0, self._why_deleted(why)))
            return
        self._reach_or_lose(node, pod)
        if pod.end is not None:
            if self._may_report_end(rank, node, pod):
                self._report_end(node, pod)
        elif pod.runs:
            node.run(pod)
        else:
            node.queue(pod.why_waiting or f"pod {pod.name} does not run yet")

    def _advance_without_pod(self, node: NodeReports) -> None:
        assert node.ref is not None
        if not self._pods_listed:
            self._say_what_is_missing(node)
            return
        if node.stopping and self.is_over:
            node.reach()
            report = canceled_start(node.ref)
            node.end(report)
        elif node.has_started:
            if node.stopping or self._knows_suspension():
                node.reach()
                end = self._why_deleted("its pod was deleted while no supervisor was running")
                node.end(_node_ended(node.ref, None, 0, end))
        elif node.stopping and (why := self._why_not_heard(node)):
            node.lose(why)
        else:
            node.reach()
            node.queue(self._why_away or self._why_no_pod())

    def _say_what_is_missing(self, node: NodeReports) -> None:
        """Nothing is known of a node, as its pod was not listed yet: say why, if it is known."""
        if not (why := self._why_not_heard(node)):
            return
        if node.stopping or node.unreachable or node.has_started:
            node.lose(why)
        else:
            node.queue(why)

    def _why_not_heard(self, node: NodeReports) -> str:
        """Why nothing becomes of a node; "" if it can."""
        return (self._why_kept if node.stopping else "") or self._why_away

    def _why_no_pod(self) -> str:
        if self._jobset is None:
            return _NO_POD
        if self._jobset.why_waiting:
            return self._jobset.why_waiting
        return _SUSPENDED if self._jobset.is_suspended else _NO_POD

    def _is_suspended(self) -> bool:
        return self._jobset is not None and self._jobset.is_suspended

    def _knows_suspension(self) -> bool:
        """Whether the JobSet is suspended, and Kueue has said why, or will not."""
        return self._is_suspended() and self._eviction_due is None

    def _may_report_end(self, rank: int, node: NodeReports, pod: ObservedPod) -> bool:
        """Whether it is known what the cluster makes of the end of a pod."""
        if node.stopping:
            return True
        if _is_success(pod):
            # with the last one, the run would have succeeded before JobSet has
            return any(one.ref is not None for one in self._nodes if one is not node)
        if self._knows_suspension():
            return True
        return len(self._pods[rank]) > 1

    def _report_end(self, node: NodeReports, pod: ObservedPod) -> None:
        assert node.ref is not None and pod.end is not None
        node.reach()
        if pod.exit_code is not None:  # it has run, if only for a moment
            node.run(pod)
        end = pod.end
        if pod.was_deleted and not _is_success(pod):  # what its containers did is a consequence
            end = self._why_deleted(f"pod {pod.name} was deleted")
        if end.reason is Reason.DEADLINE and not self._has_ended:
            # of Muster's own deadlines, which restart more than a pod
            end = End(Reason.NODE_LOST, end.why)
        lost = end.reason in (Reason.NODE_LOST, Reason.PREEMPTED)
        code, number = (None, 0) if lost else (pod.exit_code, pod.signal)
        self._spent.add(pod.uid)
        self._newly_ended.append(EndedPod(node.ref, pod.uid))
        self._pods[node.ref.rank].pop(pod.uid, None)
        node.end(_node_ended(node.ref, code, number, end, pod.ended_at))

    def _why_deleted(self, why: str) -> End:
        """How a node has ended whose pod was deleted. why: that, as a clause."""
        jobset = self._jobset
        if jobset is not None and jobset.evicted:
            return End(Reason.PREEMPTED, jobset.evicted)
        return End(Reason.NODE_LOST, f"{_SUSPENDED}: {why}" if self._is_suspended() else why)

    def _reach_or_lose(self, node: NodeReports, pod: ObservedPod) -> None:
        assert node.ref is not None
        why = ""
        if pod.end is None:
            says = node.stopping or node.has_started
            why = pod.why_unreachable or (self._why_not_heard(node) if says else "")
        if why:
            node.lose(why)
        else:
            node.reach()


def _has_finished(jobset: ObservedJobSet) -> bool:
    return jobset.has_succeeded or bool(jobset.failed)


def _is_success(pod: ObservedPod) -> bool:
    return pod.end is not None and pod.end.reason is Reason.EXIT and pod.exit_code in (0, None)


def _ended_at(pod: ObservedPod) -> float:
    return float("inf") if pod.ended_at is None else pod.ended_at


def _node_ended(
    ref: NodeRef, code: int | None, number: int, end: End, ended_at: float | None = None
) -> NodeEnded:
    is_success = end.reason is Reason.EXIT and not code
    return NodeEnded(
        ref.rank,
        0 if is_success else code,
        number,
        end.reason,
        "" if is_success else end.why,
        ref.incarnation,
        ended_at,
    )
