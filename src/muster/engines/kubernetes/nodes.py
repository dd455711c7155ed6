"""The nodes of one run in its pods: which are placed on their pods, how these are reached, and when
they are of no use any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from muster.engines.kubernetes.main_containers import MainContainers
from muster.engines.kubernetes.pod_facts import PodFacts
from muster.engines.kubernetes.pods import pod_mounts, shared_sources
from muster.engines.kubernetes.queued_slots import QueuedSlots
from muster.engines.kubernetes.record import Allocation
from muster.engines.kubernetes.run_parts import RunParts
from muster.engines.kubernetes.slot_texts import why_not_reached
from muster.engines.kubernetes.slots import Slot
from muster.engines.kubernetes.spent_pods import SpentPods
from muster.engines.kubernetes.watcher import NEWS_TIMEOUT
from muster.engines.remote.contact import Arrivals
from muster.engines.remote.hosts import Host
from muster.node.connection import Connection, Transport

#: At most one list in this many seconds for one node.
_DOUBT_PAUSE = 60.0


class Nodes:
    """Those of a run. placed: called when another one is."""

    def __init__(self, run: RunParts, queued: QueuedSlots, *, placed: Callable[[], object]) -> None:
        self._plan, self._profile, self._owner = run.plan, run.profile, run.owner
        self._slots, self._jobsets, self._queued = run.slots, run.jobsets, queued
        self._contact, self._restarts, self._starts = run.contact, run.restarts, run.starts
        self._loop, self._doubt, self._was_placed = run.loop, run.doubt, placed
        self._spent = SpentPods(run.loop, run.cluster, queued.say_not_replaced)
        self._doubting = run.loop.add(lambda _: self._doubt_missed())

    def close(self) -> None:
        """Do nothing any more."""
        self._doubting.close()
        self._spent.close()

    # --- slots

    def expect(self, slot: int, one: Allocation) -> None:
        """A slot waits for a pod of an allocation, which may be there."""
        known = self._slots.expect(slot, one.number)
        self._contact.expect(slot, partial(self._arrived, slot))
        self.look(slot)
        self.delete_spent(slot)
        self._queued.say_soon_why_no_pods(one.number)
        if known.pod is None:
            self._queued.watch(one.number)

    def forget(self, slot: int) -> None:
        """A slot has no pod any more, and waits for none."""
        if self._slots.forget(slot):
            self._contact.refuse(slot)

    def leave(self, slot: int) -> None:
        """As `forget`, and no JobSet serves the slot any more."""
        self.forget(slot)
        self._jobsets.leave(slot)

    def report_restart(self, one: Allocation) -> bool:
        """Report that JobSet has restarted the run, if it has restarted this allocation. No slot
        has a host then."""
        if self._restarts.pending is None or self._restarts.pending[0].number != one.number:
            return False
        total = self._restarts.take()
        for slot in self._slots:
            self.forget(slot)
        self._slots.restart()
        why = f"JobSet {self._jobsets.name(one)} has replaced all pods"
        self._owner.restarted(total, one.slots, why)
        return True

    # --- their pods

    def look(self, slot: int) -> None:
        """A slot may get one of the pods that are there."""
        for pod in self._slots.pods(slot):
            self.see(slot, pod)

    def see(self, slot: int, pod: PodFacts) -> None:
        """A pod for a slot is there, or has changed."""
        known = self._slots.get(slot)
        if known is None or known.is_ending or self.is_of_another(known, pod):
            return
        if self._restarts.pending is not None or pod in self._spent:
            return
        is_same = known.pod is not None and known.pod.uid == pod.uid
        is_sought = slot in self._slots.sought
        if self._slots.former_pod(slot) not in ("", pod.name):
            return  # another one has followed the pod of the node, which is lost
        if pod.is_ending and not (is_sought or is_same):
            return  # another one follows
        known.pod = pod
        if known.mains is not None:
            known.mains.see(pod)
        self._contact.expect_server(slot, pod.restarts)
        if known.placed and pod.is_ending and pod.end is None:
            self._owner.ending([slot], why_not_reached(pod))
        if known.placed or (pod.is_ending and not is_sought):
            return
        # the node of an earlier session may run though nobody knows how its pod is
        if (is_sought and not pod.why_waiting) or (pod.runs and not self._contact.dials):
            self._place(slot, pod.node or pod.name)
        else:
            self._queued.say_why(slot, known)
            if pod.is_mounting:
                self._queued.watch(known.allocation)

    def is_of_another(self, known: Slot, pod: PodFacts) -> bool:
        """Whether a pod is of another JobSet than the one that a slot waits for."""
        return self._jobsets.number_of(pod) != known.allocation

    # --- their hosts

    def _place(self, slot: int, name: str) -> None:
        known = self._slots[slot]
        known.placed, known.placed_at = True, self._loop.now()
        self._slots.sought.discard(slot)
        if self._contact.dials:
            known.arrivals = Arrivals()
        group = self._plan.group_for(self._plan.nodes[slot])
        mounts = pod_mounts(group, self._profile)
        mains = [one.name for one in group.extra_containers if one.role == "main"]
        if mains:
            known.mains = MainContainers(
                *(slot, mains, self._loop, self._owner, self._starts),
                lambda: self._slots.get(slot) is known,
            )
            if known.pod is not None:
                known.mains.see(known.pod)
        host = Host(
            known.arrivals or partial(self._dial, slot),
            name,
            id="" if known.pod is None else known.pod.name,
            compress=True,
            mounted={mount.source: mount.path for mount in mounts},
            at_paths=frozenset(mount.path for mount in mounts),
            shared=shared_sources(group),
            terminated=lambda: None,  # the end of its pod says why
            ends_with_slot=True,
            keeps_variables=True,
            has_names=True,
            unfit=partial(self._unfit, slot),
            companions=known.mains,
            spent=partial(self._spend, slot),
            lost=partial(self._contact_lost, slot),
        )
        self._owner.placed(slot, host)
        self._was_placed()

    def _dial(self, slot: int) -> Transport:
        """Raises OSError."""
        known = self._slots.get(slot)
        if known is None or known.pod is None:
            raise OSError("its pod is not known")
        group = self._plan.group_for(self._plan.nodes[slot])
        return self._contact.open(known.pod.name, group, partial(self._why_lost, slot))

    def _why_lost(self, slot: int, why: str) -> str:
        known = self._slots.get(slot)
        return why if known is None or known.pod is None else why_not_reached(known.pod, why)

    def _arrived(self, slot: int, connection: Connection) -> None:
        """The server of a slot has dialed. Raises Refusal."""
        from muster.node.greeting import Refusal

        known = self._slots.get(slot)
        if known is None or known.is_ending:
            raise Refusal("the supervisor does not expect this node now")
        if not known.placed:
            hello = connection.hello or {}
            machine = "" if known.pod is None else known.pod.node
            self._place(slot, machine or str(hello.get("host", ""))[:255] or "its pod")
        if known.arrivals is None or known.arrivals.take is None:
            raise Refusal("the supervisor does not expect this node now")
        known.arrivals.take(connection)
        known.missed_at = math.inf

    def _contact_lost(self, slot: int) -> None:
        """Contact with the node in a slot was lost. If its pod has ended, that is known soon."""
        known = self._slots.get(slot)
        if known is not None and known.missed_at == math.inf:
            known.missed_at = self._loop.now()
            due, first = _doubt_at(known), self._doubting.deadline
            self._doubting.wake_at(due if first is None else min(due, first))

    def _doubt_missed(self) -> None:
        now = self._loop.now()
        due = [its for _, its in self._slots.items() if _doubt_at(its) <= now]
        if due:
            self._doubt(max(its.missed_at for its in due))
        for its in due:
            its.missed_at, its.doubted_at = math.inf, now
        later = [at for _, its in self._slots.items() if (at := _doubt_at(its)) < math.inf]
        self._doubting.wake_at(min(later, default=None))

    # --- pods that are of no use any more

    def _unfit(self, slot: int) -> None:
        """The node in a slot has not passed its preflight checks: the slot gets a JobSet of its
        own next, since a Job that exists cannot be made to avoid a machine. Its pod ends when its
        server has left, which its Job takes for success, so that no other pod follows there."""
        known = self._slots.get(slot)
        if known is None:
            return  # it was called before
        if known.pod is not None and known.pod.node:
            self._jobsets.avoid(known.pod.node)
        self.leave(slot)

    def _spend(self, slot: int) -> None:
        """A container of the role main has failed in the pod of a slot, whose node has ended: its
        Job makes another pod when this one is gone."""
        known = self._slots.get(slot)
        if known is None or known.pod is None:
            return  # it was called before
        self.forget(slot)
        self._spent.delete(slot, known.pod)

    def delete_spent(self, slot: int) -> None:
        """Delete pods of a slot whose nodes have ended: a container that goes on keeps them."""
        for pod in self._slots.ended(slot):
            if pod.others and not pod.is_ending:
                self._spent.delete(slot, pod)

    def end_pod(self, slot: int, pod: PodFacts, *, is_gone: bool) -> bool:
        """A pod has ended, or its node has. is_gone: see `Slots.end`. Returns whether that was
        known."""
        was_known = self._slots.end(slot, pod, is_gone=is_gone) or pod in self._spent
        if is_gone or pod.phase in ("Failed", "Succeeded"):
            self._spent.gone(pod)
        return was_known


def _doubt_at(known: Slot) -> float:
    """When the news of the pod of a slot are doubted; infinity: they are not."""
    return max(known.missed_at + NEWS_TIMEOUT, known.doubted_at + _DOUBT_PAUSE)
