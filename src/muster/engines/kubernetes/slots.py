"""The slots of one run that have pods or wait for them, and all pods that the cluster has for its
slots. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from muster.engines.base import RunContext
from muster.engines.kubernetes.main_containers import MainContainers
from muster.engines.kubernetes.pod_facts import PodFacts
from muster.engines.kubernetes.record import Allocation
from muster.engines.remote.contact import Arrivals
from muster.engines.remote.hosts import slots_in_use
from muster.lifecycle.states import NodeState

#: States of nodes whose programs were started where it is recorded.
_RUN = (NodeState.RUNNING, NodeState.READY)


class Slot(Struct):
    """A slot that has a pod, or waits for one."""

    allocation: int
    #: The pod that it has; None: none is known.
    pod: PodFacts | None = None
    #: Whether its node was placed on this pod, and when.
    placed: bool = False
    placed_at: float | None = None
    #: Whether its node may run since an earlier session.
    is_former: bool = False
    #: Where its connections are passed on to, if nodes dial; None until it has one.
    arrivals: Arrivals | None = None
    #: The containers that run with its node; None: there are none, or it was not placed.
    mains: MainContainers | None = None
    #: Why it waits, as was reported last.
    why_queued: str = ""
    #: Whether its pod has ended, and it is being found out why.
    is_ending: bool = False
    #: Since when there is no contact with its node, and news of its pod are waited for; infinity:
    #: none are. And when there were none, so that all pods were listed.
    missed_at: float = float("inf")
    doubted_at: float = float("-inf")


class Slots:
    """Those of a run, by their numbers."""

    def __init__(self, context: RunContext) -> None:
        plan = context.plan
        self._slots: dict[int, Slot] = {}
        #: Slots whose nodes were found alive, and that nobody has requested yet.
        self._in_use = set(slots_in_use(context))
        #: Those of them that had not begun when the earlier session ended.
        self._starting = {
            plan.slot_of(plan.node(ref.rank))
            for ref, status in context.alive.items()
            if status.state is NodeState.STARTING and not plan.group_of(ref.rank).is_array
        }
        #: The names of the pods in which nodes of the earlier session ran.
        self._former_pods = {
            plan.slot_of(plan.node(ref.rank)): status.host_id
            for ref, status in context.alive.items()
            if status.state in _RUN and status.host_id and not plan.group_of(ref.rank).is_array
        }
        #: Those whose nodes an earlier session had: they are placed once their pods are known.
        self.sought: set[int] = set()
        #: Pods that have not ended, and those that have and are still in the cluster; by slot and
        #: uid.
        self._pods: dict[int, dict[str, PodFacts]] = defaultdict(dict)
        self._ended: dict[int, dict[str, PodFacts]] = defaultdict(dict)
        #: Whether all pods of the run are known.
        self.pods_known = False
        #: Whether the run is over: what runs is to leave, and nothing else starts.
        self.over = False

    # --- slots

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[int]:
        return iter([*self._slots])

    def __contains__(self, slot: int) -> bool:
        return slot in self._slots

    def __getitem__(self, slot: int) -> Slot:
        return self._slots[slot]

    def get(self, slot: int) -> Slot | None:
        """What is known of a slot; None if it neither has a pod nor waits for one."""
        return self._slots.get(slot)

    def items(self) -> Sequence[tuple[int, Slot]]:
        """All, as they are now."""
        return [*self._slots.items()]

    def of(self, one: Allocation) -> dict[int, Slot]:
        """Those that have a pod of an allocation, or wait for one."""
        known = {slot: self._slots[slot] for slot in one.slots if slot in self._slots}
        return {slot: its for slot, its in known.items() if its.allocation == one.number}

    def without_pod(self, one: Allocation) -> list[int]:
        """Those of an allocation that have no pod, and for all that is known no node."""
        known = [(slot, self._slots[slot]) for slot in one.slots if slot in self._slots]
        waiting = [slot for slot, its in known if its.pod is None and not its.placed]
        return [slot for slot in waiting if slot not in self.sought]

    def is_in_use(self, slot: int) -> bool:
        """Whether its node may run since an earlier session, and nobody has requested it yet."""
        return slot in self._in_use

    def may_be_in_use(self, slot: int) -> None:
        """Its node had ended before this session, but its pod may be there."""
        self._in_use.add(slot)

    def may_start(self, slot: int) -> bool:
        """Whether the node of a slot that is sought had not begun, and may in another pod."""
        return slot in self._starting and not self.over

    def former_pod(self, slot: int) -> str:
        """The name of the pod in which the node of a slot that is sought has run; "" if it is not
        known. In another pod, the node does not run."""
        return self._former_pods.get(slot, "") if slot in self.sought else ""

    def expect(self, slot: int, number: int) -> Slot:
        """A slot waits for a pod of an allocation. It is sought if it was in use."""
        known = self._slots[slot] = Slot(number)
        if slot in self._in_use:
            self._in_use.discard(slot)
            self.sought.add(slot)
            known.is_former = True
        return known

    def forget(self, slot: int) -> bool:
        """A slot has no pod any more, and waits for none. Returns whether it did."""
        self.sought.discard(slot)
        return self._slots.pop(slot, None) is not None

    def give_up(self, slot: int) -> None:
        """Nobody is going to request a slot."""
        self._in_use.discard(slot)

    def restart(self) -> None:
        """All pods of the run were replaced: none of an earlier session is left."""
        self._in_use.clear()
        self._starting.clear()

    # --- pods

    def pods(self, slot: int) -> Sequence[PodFacts]:
        """Those of a slot that have not ended."""
        return [*self._pods.get(slot, {}).values()]

    def ended(self, slot: int) -> Sequence[PodFacts]:
        """Those of a slot that have ended, and are still in the cluster."""
        return [*self._ended.get(slot, {}).values()]

    def every_pod(self) -> Iterator[PodFacts]:
        """Those that have not ended."""
        return (pod for of_slot in self._pods.values() for pod in of_slot.values())

    def is_there(self, slot: int, pod: PodFacts) -> bool:
        """Whether a pod of a slot has not ended."""
        return pod.uid in self._pods.get(slot, {})

    def has_pods(self, one: Allocation) -> bool:
        """Whether there are pods for an allocation that have not ended."""
        return any(self._pods.get(slot) for slot in one.slots)

    def keep(self, slot: int, pod: PodFacts) -> None:
        """A pod has not ended."""
        self._pods[slot][pod.uid] = pod

    def end(self, slot: int, pod: PodFacts, *, is_gone: bool) -> bool:
        """A pod has ended. is_gone: it is not in the cluster any more. Returns whether its end was
        known."""
        self._pods[slot].pop(pod.uid, None)
        was_known = self._ended[slot].pop(pod.uid, None) is not None
        if not is_gone:
            self._ended[slot][pod.uid] = pod
        return was_known
