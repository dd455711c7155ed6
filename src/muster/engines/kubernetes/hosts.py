"""The hosts of one run's nodes: has JobSets applied for them, and follows their pods.

Nothing is polled: the namespace's watcher reports each change (`news`). A pod that
runs is dialed through the API server, or dials the supervisor itself (`nodes`). When one has ended
or is gone, its node is gone (`lost_nodes`), and its Job makes another pod for the same slot. Until
then, its owner learns what the slot waits for (`queued_slots`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.kubernetes.adopted_restarts import AdoptedRestarts
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.failed_starts import FailedStarts
from muster.engines.kubernetes.jobset_states import JobSetStates
from muster.engines.kubernetes.jobsets import JobSets
from muster.engines.kubernetes.lost_nodes import LostNodes
from muster.engines.kubernetes.native_restarts import NativeRestarts
from muster.engines.kubernetes.news import News
from muster.engines.kubernetes.nodes import Nodes
from muster.engines.kubernetes.pod_contact import PodContact
from muster.engines.kubernetes.pod_placeholders import allocatable
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.queued_slots import QueuedSlots
from muster.engines.kubernetes.record import Allocation, cluster_of
from muster.engines.kubernetes.refusals import not_applied
from muster.engines.kubernetes.run_parts import RunParts
from muster.engines.kubernetes.slots import Slots
from muster.engines.kubernetes.watcher import NEWS_TIMEOUT
from muster.engines.loop import RunLoop
from muster.engines.remote.hosts import HostsOwner
from muster.engines.remote.pauses import Pauses
from muster.engines.remote.wanted_slots import WantedSlots

#: Seconds until something is tried again that was not possible.
_RETRY_PAUSE = 5.0
#: Seconds after which the owner learns that a new run waits for the first answer of the cluster.
_SILENCE = 2.0


class KubernetesHosts:
    """See `engines.remote.hosts.Hosts`. Raises OSError if the JobSets of the run are not known."""

    def __init__(
        self,
        context: RunContext,
        profile: KubernetesProfile,
        loop: RunLoop,
        owner: HostsOwner,
    ) -> None:
        ref = cluster_of(context.home.run_dir(context.plan.run_id))
        if ref is not None and profile.namespace is not None:  # it may be another one by now
            profile = replace(profile, namespace=ref.namespace)
        self._plan, self._loop, self._owner = context.plan, loop, owner
        self._cluster = cluster = Cluster(profile, context.environ, ref)
        self._slots = slots = Slots(context)
        self._jobsets = jobsets = JobSets(context, profile, loop, cluster, self._freeing)
        self._states = states = JobSetStates(jobsets)
        self._contact = contact = PodContact(
            *(context, profile, loop, cluster, jobsets), self._can_reach, self._cannot_reach
        )
        self._restarts = NativeRestarts(context.native_restarts)
        run = RunParts(
            plan=context.plan,
            profile=profile,
            loop=loop,
            owner=owner,
            cluster=cluster,
            slots=slots,
            jobsets=jobsets,
            states=states,
            contact=contact,
            restarts=self._restarts,
            starts=FailedStarts(loop, cluster),
            doubt=self._doubt,
        )
        self._queued = queued = QueuedSlots(run)
        self._nodes = nodes = Nodes(run, queued, placed=self._report_freeing)
        self._lost = lost = LostNodes(run, queued, nodes, settled=self._report_freeing)
        self._adopted = adopted = AdoptedRestarts(run, nodes, lost)
        self._news = News(run, queued, nodes, lost, adopted)
        self._wanted = WantedSlots()
        self._pauses = Pauses(loop)
        #: Whether the cluster has accepted credentials of the run.
        self._has_applied = ref is not None or any(one.uid for one in jobsets)
        self._is_searching = False  # whether it is being found out which cluster it is
        self._has_searched = False  # whether an attempt at that has ended
        self._deletes = False  # whether JobSets are being deleted
        self._left = ""  # which were not, see `HostsOwner.freeing`
        self._closed = False
        if not jobsets.may_be_anywhere:
            self._news.begin()
        loop.post(jobsets.remove_unneeded)  # of an earlier session

    def _doubt(self, since: float) -> None:
        """See `Subscription.doubt`."""
        self._news.doubt(since)

    def _can_reach(self) -> None:
        """Pods can be reached now, or dial."""
        self._allocate_all()
        self._adopted.adopt()
        if self._slots.over:
            self.place_ended()  # again: it could not place them before

    def _cannot_reach(self, why: str) -> None:
        for slot in self._wanted:
            self._owner.queued([slot], why)

    # --- what the session requests

    def allocate(self, slots: Sequence[int]) -> None:
        """See `Hosts`."""
        self._wanted.add(slots)
        self._loop.post(self._allocate_all)  # with those that are requested meanwhile

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        """See `Hosts`. Each part is a JobSet of its own."""
        self._wanted.add_parts(parts)
        self._loop.post(self._allocate_all)

    def _allocate_all(self) -> None:
        if not self._contact.is_ready or self._closed:
            return
        if self._jobsets.may_be_anywhere:
            self._find_cluster()
            return
        together, parts = self._wanted.take()
        for part in [together, *parts]:
            tried = [slot for slot in part if not self._lost.refuse_failing(slot)]
            new = [slot for slot in tried if not self._find(slot)]
            for slots in allocatable(self._plan, new):
                one = self._jobsets.add(slots, self._restarts.reported)
                for slot in slots:
                    self._expect(slot, one)
                self._apply(one.number)

    def _find_cluster(self) -> None:
        """Find out and record where JobSets are going to be applied."""
        if not (self._is_searching or self._closed) and [*self._wanted]:
            self._is_searching = True
            self._jobsets.find_cluster(self._cluster_found)
            if not self._has_searched:
                self._pauses.after(_SILENCE, self._say_silent)

    def _say_silent(self) -> None:
        """A while has passed since it was first asked which cluster it is. (Of one that is known,
        the watcher says whether it answers.)"""
        if not self._has_searched and (waiting := [*self._wanted]):
            self._owner.queued(waiting, "the API server has not answered yet")

    def _cluster_found(self, error: CannotCall | None) -> None:
        self._is_searching, self._has_searched = False, True
        if error is None:
            self._news.begin()
            self._allocate_all()
        elif error.refused:
            for slot in [*self._wanted]:
                self._wanted.drop(slot)
                self._owner.refused(slot, not_applied(error, "rejected the JobSet"), final=True)
        else:
            why = not_applied(error, "not accepted the JobSet yet")
            self._owner.queued([*self._wanted], why)
            self._pauses.after(_RETRY_PAUSE, self._find_cluster)

    def _find(self, slot: int) -> bool:
        """Whether a slot has a pod, or gets one, of a JobSet that is there."""
        known = self._jobsets.of_slot(slot)
        if known is None:
            return False
        if known.number in self._states.doomed and not self._slots.is_in_use(slot):
            return False  # a node in use may run until its pod has ended
        self._expect(slot, known)
        if not known.uid:
            self._apply(known.number)
        return True

    def _expect(self, slot: int, one: Allocation) -> None:
        """A slot waits for a pod of an allocation."""
        if self._news.why_away and self._slots.is_in_use(slot):
            self._owner.unreachable([slot], self._news.why_away)
        self._nodes.expect(slot, one)
        if slot in self._slots.sought:
            self._lost.settle_soon()

    def place_ended(self) -> None:
        """See `Hosts`."""
        self._slots.over = True
        self._adopted.drop()
        self._wanted.take()
        if not self._contact.is_ready:
            self._report_freeing()
            return
        for slot, known in self._slots.items():
            if not known.placed and slot not in self._slots.sought:
                self.give_up(slot)  # it waits for a pod, which nobody needs any more
        for one in self._jobsets:
            for slot in one.slots:
                if slot not in self._slots:
                    if one.uid:
                        self._slots.may_be_in_use(slot)
                        self._expect(slot, one)
                    else:
                        self._jobsets.leave(slot)
        self._jobsets.remove_unneeded()
        self._pauses.after(NEWS_TIMEOUT, partial(self._doubt_if_any, self._loop.now()))

    def _doubt_if_any(self, since: float) -> None:
        """The run is over, and waits for pods: they may have ended unheard."""
        if self._slots:
            self._doubt(since)

    def give_up(self, slot: int) -> None:
        """See `Hosts`."""
        self._slots.give_up(slot)
        self._wanted.drop(slot)
        self._nodes.leave(slot)
        self._lost.settle_soon()  # others of its JobSet may have waited to be lost with it

    def close(self) -> None:
        """See `Hosts`."""
        self._closed = True
        self._pauses.close()
        self._queued.close()
        self._nodes.close()
        self._lost.close()
        self._jobsets.close()
        self._news.close()
        self._contact.close()
        self._cluster.close()

    # --- applying

    def _apply(self, number: int) -> None:
        one = self._jobsets.get(number)
        if one is None or one.is_unneeded or self._closed or not self._contact.is_ready:
            return
        self._jobsets.apply(one, self._contact.pod_dialing(), self._applied)

    def _applied(self, number: int, error: CannotCall | None) -> None:
        one = self._jobsets.get(number)
        self._has_applied = self._has_applied or error is None
        if error is None or one is None:
            return
        # credentials that were accepted before may be renewed; others are probably wrong
        if error.lasts or (error.refused and not self._has_applied):
            for slot in one.slots:
                self._nodes.forget(slot)
                self._owner.refused(slot, not_applied(error, "rejected the JobSet"), final=True)
            self._jobsets.abandon(one)
            return
        self._queued.say(one.slots, not_applied(error, "not accepted the JobSet yet"))
        self._pauses.after(_RETRY_PAUSE, partial(self._apply, number))

    # --- the end

    def _freeing(self, busy: bool, left: str) -> None:
        """Whether JobSets are being deleted, and which were not."""
        self._deletes, self._left = busy, left
        self._report_freeing()

    def _report_freeing(self) -> None:
        """When a run is over, what earlier sessions have left is looked for, and deleted."""
        waits = not self._contact.is_ready and any(one.slots for one in self._jobsets)
        seeks = self._slots.over and (bool(self._slots.sought) or waits)
        self._owner.freeing(busy=self._deletes or seeks, left=self._left)
