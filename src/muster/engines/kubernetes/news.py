"""What the cluster says of the pods and JobSets of one run, passed on to those whom it concerns."""

from __future__ import annotations

from collections.abc import Sequence

from muster.engines.kubernetes.adopted_restarts import AdoptedRestarts
from muster.engines.kubernetes.changes import Away, Change, JobSetChanged, Listed, PodChanged
from muster.engines.kubernetes.lost_nodes import LostNodes
from muster.engines.kubernetes.nodes import Nodes
from muster.engines.kubernetes.pod_facts import JobSetFacts, PodFacts
from muster.engines.kubernetes.queued_slots import QueuedSlots
from muster.engines.kubernetes.run_parts import RunParts
from muster.engines.kubernetes.slot_texts import why_of_no_use
from muster.engines.kubernetes.watcher import Subscription, watcher_of


class News:
    """Those of a run, from `begin` on."""

    def __init__(
        self,
        run: RunParts,
        queued: QueuedSlots,
        nodes: Nodes,
        lost: LostNodes,
        adopted: AdoptedRestarts,
    ) -> None:
        self._run, self._owner, self._restarts = run, run.owner, run.restarts
        self._slots, self._jobsets, self._states = run.slots, run.jobsets, run.states
        self._queued, self._nodes, self._lost, self._adopted = queued, nodes, lost, adopted
        #: Why the cluster says nothing, as a phrase; "" if it does.
        self.why_away = ""
        self._watching: Subscription | None = None
        self._closed = False

    def begin(self) -> None:
        """Learn of all that the run has in its cluster, which is known from now on."""
        run, has_jobs = self._run, any(one.owner == "Service" for one in self._jobsets)
        watcher = watcher_of(run.cluster)
        self._watching = watcher.subscribe(run.plan.run_id, run.loop, self._seen, has_jobs=has_jobs)

    def doubt(self, since: float) -> None:
        """See `Subscription.doubt`."""
        if self._watching is not None:
            self._watching.doubt(since)

    def close(self) -> None:
        """Learn nothing any more."""
        self._closed = True
        if self._watching is not None:
            self._watching.close()

    def _seen(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if self._closed:
                return
            match change:
                case PodChanged():
                    self._pod_changed(change.pod, is_gone=change.is_gone)
                case JobSetChanged():
                    self._jobset_changed(change.jobset, is_gone=change.is_gone)
                case Listed(kind="Pod"):
                    self._slots.pods_known = True
                    self._adopted.adopt()
                    self._lost.settle()
                case Listed(kind="JobSet" | "Job"):
                    self._lost.lose_deleted(change.kind)
                case Away():
                    self._away_changed(change)

    def _pod_changed(self, pod: PodFacts, *, is_gone: bool) -> None:
        slot, one = self._jobsets.slot_of(pod), self._jobsets.named(pod.jobset)
        if slot is None or one is None:
            return
        self._adopted.learn(one, pod.restarts)
        if not is_gone and pod.end is None:
            self._slots.keep(slot, pod)
            self._nodes.see(slot, pod)
            return
        was_known = self._nodes.end_pod(slot, pod, is_gone=is_gone)
        if self._restarts.pending is not None:
            self._adopted.adopt()
        elif not was_known and not self._restarts.is_former(one, pod):
            self._lost.pod_ended(slot, pod, is_gone=is_gone)

    def _jobset_changed(self, jobset: JobSetFacts, *, is_gone: bool) -> None:
        one = self._jobsets.named(jobset.name)
        if one is None or one.is_unneeded:
            return
        self._states.keep(one.number, jobset)
        self._adopted.learn(one, jobset.restarts)
        if why := why_of_no_use(jobset, self._jobsets.name(one), is_gone=is_gone):
            self._states.doom(one.number, why)
            self._lost.settle()
        else:
            self._queued.say_why_no_pods(one.number)
            self._queued.watch_if_without_pods(one)

    def _away_changed(self, away: Away) -> None:
        """Nodes keep running, and are known again when the cluster is."""
        self.why_away = "" if away.is_back else away.why
        if self.why_away and self._slots.sought:
            self._owner.unreachable(sorted(self._slots.sought), self.why_away)
        self._queued.say_away(self.why_away)
