"""Which nodes of one run are lost with their pods and JobSets, and why.

The Job of a pod that has ended makes another one, unless several have failed to start. The slots of
a JobSet that is of no use any more are lost together, once none of its pods is left, so that they
get one JobSet together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from muster.engines.kubernetes.jobset_reads import JobSetReads
from muster.engines.kubernetes.nodes import Nodes
from muster.engines.kubernetes.pod_facts import JobSetFacts, PodFacts
from muster.engines.kubernetes.queued_slots import QueuedSlots
from muster.engines.kubernetes.record import Allocation
from muster.engines.kubernetes.run_parts import RunParts
from muster.engines.kubernetes.slot_texts import (
    explained_by_log,
    is_failed_start,
    may_be_suspended,
    why_ended,
)
from muster.engines.kubernetes.slots import Slot
from muster.engines.kubernetes.unseen_ends import Explained, Unseen, UnseenEnds
from muster.lifecycle.status import Reason


class LostNodes:
    """See the module. settled: called when it is known which nodes of an earlier session are
    lost."""

    def __init__(
        self,
        run: RunParts,
        queued: QueuedSlots,
        nodes: Nodes,
        *,
        settled: Callable[[], object],
    ) -> None:
        self._slots, self._jobsets, self._states = run.slots, run.jobsets, run.states
        self._queued, self._nodes = queued, nodes
        self._restarts, self._starts = run.restarts, run.starts
        self._owner, self._loop, self._settled = run.owner, run.loop, settled
        self._unseen = UnseenEnds(run.loop, run.cluster)
        self._reads = JobSetReads(run.loop, run.cluster)
        self._is_losing = False  # whether `_lose_doomed` is about to be called
        self._is_settling = False  # whether `settle` is about to be called
        self._closed = False

    def close(self) -> None:
        """Report nothing any more."""
        self._closed = True

    # --- with their pods

    def pod_ended(self, slot: int, pod: PodFacts, *, is_gone: bool) -> None:
        """A pod has ended, which was not known. is_gone: it is not in the cluster any more."""
        known = self._slots.get(slot)
        if known is None or known.is_ending or self._nodes.is_of_another(known, pod):
            return
        if known.pod is None:
            if not self._slots.pods_known:
                return  # the slot may have another one: see `_lose_missing`
            if self._slots.former_pod(slot) not in ("", pod.name):
                return  # its node has ended before, with another one
        elif known.pod.uid != pod.uid:
            return  # it was replaced
        name = self._jobset_to_read(known, pod) if known.is_former else ""
        if name:
            known.is_ending, known.pod = True, None
            self._reads.read(name, partial(self._jobset_read, slot, known, pod))
        else:
            self._ended(slot, known, pod, self._states.get(known.allocation), is_gone=is_gone)

    def _jobset_to_read(self, known: Slot, pod: PodFacts | None) -> str:
        """The name of the JobSet of a pod that has ended, if it may have been suspended; "" if it
        was not."""
        one = self._jobsets.get(known.allocation)
        if one is None or one.owner != "JobSet" or self._slots.over:
            return ""
        facts = self._states.get(known.allocation)
        return self._jobsets.name(one) if may_be_suspended(pod, facts) else ""

    def _jobset_read(
        self, slot: int, known: Slot, pod: PodFacts, found: JobSetFacts | None
    ) -> None:
        """A pod was deleted. found: what its JobSet says now."""
        if self._closed or self._slots.get(slot) is not known:
            return
        known.is_ending = False
        facts = self._states.get(known.allocation)
        if may_be_suspended(pod, facts):  # nothing was heard meanwhile
            facts = found or facts
        self._ended(slot, known, pod, facts, is_gone=True)
        if self._slots.get(slot) is known:  # it waits for the pod that is made next
            self._nodes.look(slot)

    def _ended(
        self, slot: int, known: Slot, pod: PodFacts, facts: JobSetFacts | None, *, is_gone: bool
    ) -> None:
        """See `pod_ended`. facts: what its JobSet says."""
        why, reason = why_ended(pod, facts)
        if is_failed_start(pod, reason, placed=known.placed):
            self._starts.add(slot, why, known.placed_at)
        done = partial(self._log_read, slot, known, reason)
        is_read = not is_gone and explained_by_log(pod, reason)
        if is_read and self._starts.read_log(slot, pod, why, done):
            known.is_ending, known.pod = True, None
        else:
            self.end(slot, known, why, reason)

    def _log_read(self, slot: int, known: Slot, reason: Reason, why: str) -> None:
        """The pod of a slot has ended, and its log was read."""
        if self._closed or self._slots.get(slot) is not known:
            return
        known.is_ending = False
        # whatever has become of its JobSet meanwhile: this pod may be the reason
        self._lose(slot, known, why, reason)
        self._lose_doomed()
        if self._slots.get(slot) is known:  # it waits for the pod that is made next
            self._nodes.look(slot)

    def end(self, slot: int, known: Slot, why: str, reason: Reason) -> None:
        """The pod of a slot has ended."""
        known.pod = None
        number = known.allocation
        if number not in self._states.doomed or self._jobsets.get(number) is None:
            self._lose(slot, known, why, reason)
        elif not self._is_losing:  # once for all pods whose ends are reported together
            self._is_losing = True
            self._loop.post(self._lose_doomed)

    def _lose(self, slot: int, known: Slot, why: str, reason: Reason) -> None:
        """No process of the pod of a slot is left. Its Job makes another one."""
        if known.placed or slot in self._slots.sought:
            self._nodes.forget(slot)
            if self._slots.over:
                self._jobsets.leave(slot)  # first: the run waits until its JobSet is deleted
            self._owner.gone(slot, why, reason)
        elif known.allocation in self._states.doomed or self._starts.are_too_many(slot):
            self._starts.forget(slot)
            self._nodes.leave(slot)
            self._owner.refused(slot, why)
        else:
            text = why.partition("\n")[0].rstrip(":")
            self._queued.say([slot], f"{text}; another one is created")
            self._nodes.delete_spent(slot)

    def refuse_failing(self, slot: int) -> bool:
        """Refuse a slot that wants a pod if several have failed by themselves. Returns whether it
        was."""
        why = self._starts.last(slot)
        if why is None or not self._starts.are_too_many(slot):
            return False
        self._starts.forget(slot)
        self._jobsets.leave(slot)
        self._owner.refused(slot, why)
        return True

    # --- what follows from what is known now

    def settle_soon(self) -> None:
        """As `settle`, once for all slots that are requested or given up together."""
        if not self._is_settling:
            self._is_settling = True
            self._loop.post(self.settle)

    def settle(self) -> None:
        """Lose all nodes that are known to have no pod: first those of JobSets that are of no use,
        as these say why."""
        self._is_settling = False
        self._lose_doomed()
        self._lose_missing()

    # --- with their JobSets

    def _lose_doomed(self) -> None:
        """Lose all slots of each JobSet that is of no use any more, if none of its pods is left."""
        self._is_losing = False
        if not self._slots.pods_known or self._closed:
            return
        for number, why in [*self._states.doomed.items()]:
            one = self._jobsets.get(number)
            if one is None or one.is_unneeded or not self._is_empty(one):
                continue
            known = self._slots.of(one)
            was_restarted = self._nodes.report_restart(one)
            self._jobsets.abandon(one)
            if was_restarted:
                for slot in one.slots:
                    self._owner.refused(slot, why)
                continue
            failures = self._failures_of(number, known)
            # first those whose pods have failed: the first node that is lost counts as the cause
            for slot in sorted(known, key=lambda slot: (slot not in failures, slot)):
                self._lose(slot, known[slot], failures.get(slot, why), Reason.NODE_LOST)

    def _is_empty(self, one: Allocation) -> bool:
        """Whether no slot of an allocation has a pod."""
        if any(self._slots.is_in_use(slot) for slot in one.slots):
            return False  # which pod it has is not known before it is requested
        if self._restarts.pending is not None:
            return not self._slots.has_pods(one)
        return all(its.pod is None and not its.is_ending for its in self._slots.of(one).values())

    def _failures_of(self, number: int, slots: Collection[int]) -> dict[int, str]:
        """Why pods have failed whose JobSet has failed, which itself says only that a Job has."""
        facts = self._states.get(number)
        if facts is None or not facts.failed:
            return {}
        return {slot: why for slot in slots if (why := self._starts.last(slot)) is not None}

    # --- while no supervisor was running

    def lose_deleted(self, kind: str) -> None:
        """All JobSets were reported, or all Jobs: lose the nodes of an earlier session whose own
        are gone, and what `settle` does. kind: which were."""
        for number in self._states.listed(kind):
            one = self._jobsets.get(number)
            if one is not None and not one.is_unneeded:
                name = self._jobsets.name(one)
                self._states.doom(
                    number, f"JobSet {name} was deleted while no supervisor was running"
                )
        self.settle()

    def _lose_missing(self) -> None:
        """Lose the nodes of an earlier session whose pods are gone, once all that there are were
        reported, and why. First, their JobSets say whether they were restarted. Those of a
        JobSet that is of no use are lost together: see `_lose_doomed`."""
        if not (self._slots.pods_known and self._states.known) or self._closed:
            return
        if self._restarts.pending is not None:
            return
        missing: dict[int, tuple[Slot, PodFacts | None]] = {}
        for slot in sorted(self._slots.sought):
            known = self._slots[slot]
            if known.is_ending or known.allocation in self._states.doomed:
                continue
            name = self._slots.former_pod(slot)
            ended = [pod for pod in self._slots.ended(slot) if name in ("", pod.name)]
            if not ended and self._slots.may_start(slot):
                self._slots.sought.discard(slot)
                self._queued.say_why(slot, known)
                self._queued.watch(known.allocation)
                continue
            last = max(ended, key=lambda pod: pod.started_at or 0.0, default=None)
            known.is_ending, known.pod = True, None
            missing[slot] = known, last
        names = {self._jobset_to_read(*one) for one in missing.values()} - {""}
        self._reads.read_all(names, partial(self._explain, missing))

    def _explain(
        self,
        missing: Mapping[int, tuple[Slot, PodFacts | None]],
        found: Mapping[str, JobSetFacts],
    ) -> None:
        """Find out why nodes of an earlier session have ended. missing: their slots, and the pods
        that the cluster has of them. found: what their JobSets say now."""
        ends: list[Unseen] = []
        for slot, (known, pod) in missing.items():
            facts, one = self._states.get(known.allocation), self._jobsets.get(known.allocation)
            if one is not None and may_be_suspended(pod, facts):  # nothing was heard meanwhile
                facts = found.get(self._jobsets.name(one), facts)
            ends.append(Unseen(slot, self._slots.former_pod(slot), pod, facts))
        self._unseen.explain(ends, partial(self._lose_explained, missing))

    def _lose_explained(
        self, missing: Mapping[int, tuple[Slot, PodFacts | None]], ends: Sequence[Explained]
    ) -> None:
        """It is known why nodes of an earlier session have ended."""
        if self._closed:
            return
        for slot, why, reason in ends:
            known = missing[slot][0]
            if self._slots.get(slot) is known:  # else it was lost with another one, or given up
                known.is_ending = False
                self.end(slot, known, why, reason)
        self._settled()
