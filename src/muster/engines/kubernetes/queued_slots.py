"""Reports what the slots of one run wait for: their pods are not created, or wait, or what these
mount is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from muster.engines.kubernetes.cluster import CannotCall
from muster.engines.kubernetes.missing_pods import Answers, Missing, MissingPods
from muster.engines.kubernetes.pods import OWNED_VOLUMES
from muster.engines.kubernetes.record import Allocation
from muster.engines.kubernetes.run_parts import RunParts
from muster.engines.kubernetes.slot_texts import why_no_node, why_not_mounted
from muster.engines.kubernetes.slots import Slot
from muster.engines.kubernetes.watcher import NEWS_TIMEOUT


class QueuedSlots:
    """Those of a run."""

    def __init__(self, run: RunParts) -> None:
        self._slots, self._jobsets, self._states = run.slots, run.jobsets, run.states
        self._contact, self._owner, self._loop = run.contact, run.owner, run.loop
        self._address, self._doubt = run.profile.address, run.doubt
        self._missing = MissingPods(run.loop, run.cluster, self._what_is_missing, self._why_missing)
        #: Allocation -> the time of the last report of a missing volume that has been reapplied.
        self._restored: dict[int, str] = {}
        self._to_say: set[int] = set()  # see `say_soon_why_no_pods`
        self._closed = False

    def close(self) -> None:
        """Read nothing any more."""
        self._closed = True
        self._missing.close()

    # --- what is reported

    def say(self, slots: Sequence[int], why: str) -> None:
        """Say what slots wait for, if that is new. Those that have nodes wait for nothing."""
        known = {slot: its for slot in slots if (its := self._slots.get(slot)) is not None}
        new = [slot for slot, its in known.items() if its.why_queued != why and not its.placed]
        new = [slot for slot in new if slot not in self._slots.sought]
        for slot in new:
            known[slot].why_queued = why
        if new and why:
            self._owner.queued(new, why)

    def say_why(self, slot: int, known: Slot) -> None:
        """Say why a slot has no node yet."""
        facts = self._states.get(known.allocation)
        self.say([slot], why_no_node(known.pod, facts, self._address))

    def say_why_no_pods(self, number: int) -> None:
        """Say why no pods of a JobSet are made, if none are."""
        one, why = self._jobsets.get(number), self._states.why_no_pods(number)
        if one is not None and why:
            self.say(self._slots.without_pod(one), why)

    def say_soon_why_no_pods(self, number: int) -> None:
        """As `say_why_no_pods`, once for all slots that begin to wait together."""
        if number not in self._to_say:
            self._to_say.add(number)
            self._loop.post(partial(self._say_posted, number))

    def _say_posted(self, number: int) -> None:
        self._to_say.discard(number)
        self.say_why_no_pods(number)

    def say_not_replaced(self, slot: int, why: str) -> None:
        """See `SpentPods`."""
        known = self._slots.get(slot)
        if known is not None and known.pod is None:
            self.say([slot], why)

    def say_away(self, why: str) -> None:
        """Nothing is known of the cluster. why: as a phrase; "" if it is known again."""
        for slot, known in self._slots.items():
            if why:
                self.say([slot], why)
            else:
                self.say_why(slot, known)

    # --- pods that are missing

    def watch(self, number: int) -> None:
        """Pods of an allocation are waited for."""
        self._missing.watch(number)

    def watch_if_without_pods(self, one: Allocation) -> None:
        """A JobSet has changed: its pods may be missing from now on, as after it was admitted."""
        if self._job_without_pods(one):
            self._missing.watch(one.number)

    def _job_without_pods(self, one: Allocation) -> str:
        """The name of a Job that lacks pods which the cluster ought to create now; "" if there is
        none."""
        waiting = self._slots.without_pod(one)
        held = self._states.why_no_pods(one.number)
        if not waiting or held or one.number in self._states.doomed:
            return ""
        return self._jobsets.job_of(one, waiting[0])

    def _what_is_missing(self, number: int) -> Missing:
        """See `MissingPods`."""
        one = self._jobsets.get(number)
        if one is None or one.is_unneeded or number in self._states.doomed:
            return Missing()
        pods = [its.pod for its in self._slots.of(one).values() if not its.placed]
        mounting = [pod.name for pod in pods if pod is not None and pod.is_mounting]
        return Missing(self._job_without_pods(one), mounting)

    def _why_missing(self, number: int, missing: Missing, found: Answers) -> None:
        """See `MissingPods`."""
        one = self._jobsets.get(number)
        if one is None or self._closed:
            return
        if missing.job and self._job_without_pods(one) == missing.job:
            if found.why_not_created:
                waiting = self._slots.without_pod(one)
                slots = [s for s in waiting if self._jobsets.job_of(one, s) == missing.job]
                self.say(slots, found.why_not_created)
            elif found.why_not_created is not None:  # they may have been created unheard
                self._doubt(self._loop.now() - NEWS_TIMEOUT)
        for slot, known in self._slots.of(one).items():
            if known.pod is None or known.placed or not known.pod.is_mounting:
                continue
            if known.pod.name not in found.not_mounted:
                continue
            if (failure := found.not_mounted[known.pod.name]) is not None:
                self.say([slot], why_not_mounted(known.pod, failure))
                if failure.volume in OWNED_VOLUMES:
                    self._restore(one, failure.time)
            else:  # as when it was mounted since
                self.say_why(slot, known)

    # --- what pods mount

    def _restore(self, one: Allocation, time: str) -> None:
        """Somebody has deleted what pods of an allocation mount. time: when they have missed it."""
        if time > self._restored.get(one.number, "") and self._contact.is_ready:
            self._restored[one.number] = time
            self._jobsets.restore(one, self._contact.pod_dialing(), self._was_restored)

    def _was_restored(self, number: int, error: CannotCall | None) -> None:
        if error is None:
            return
        self._restored.pop(number, None)  # it is tried again with the next look at the pods
        if (one := self._jobsets.get(number)) is not None:
            known = self._slots.of(one)
            waiting = [slot for slot, its in known.items() if its.pod and its.pod.is_mounting]
            text = f"what its pod mounts was deleted, and cannot be applied again: {error}"
            self.say(waiting, text)
