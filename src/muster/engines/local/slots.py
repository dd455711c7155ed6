"""The slots of the nodes of a run: replicas of an array take those of replicas that have ended."""

from __future__ import annotations

from bisect import bisect_left, insort

from msgspec import Struct

from muster.plan.model import GroupPlan, NodePlan, RunPlan


class _ReplicaSlots(Struct):
    """Neighbouring slots, for the nodes of one replica of an array."""

    first: int
    #: The replica that has them, or had them last.
    replica: int
    #: The nodes of the replica that have not ended.
    nodes: int = 0


class _ArraySlots(Struct):
    """The slots of one array."""

    #: The first slots of replicas that are free, in order: an array that has more slots than
    #: replicas left uses few of them.
    free: list[int]
    #: By replica, and by the first slot.
    of_replica: dict[int, _ReplicaSlots] = {}
    last: dict[int, _ReplicaSlots] = {}

    def take(self, replica: int) -> _ReplicaSlots:
        """The slots of a replica of which no node runs."""
        slots = self.of_replica.get(replica)
        if slots is not None:
            del self.free[bisect_left(self.free, slots.first)]
            return slots
        first = self.free.pop(0)  # the controller starts no more replicas than have room
        if (former := self.last.get(first)) is not None:
            del self.of_replica[former.replica]
        slots = self.of_replica[replica] = self.last[first] = _ReplicaSlots(first, replica)
        return slots


class Slots:
    """The slots of one run.

    A node of an array has a slot from its start to its end. A replica gets its former slots again
    while no other has had them.
    """

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._arrays = {
            group.name: _ArraySlots([*plan.slots(group)[:: group.nodes]])
            for group in plan.groups
            if group.is_array
        }
        self._taken: dict[int, _ReplicaSlots] = {}  # by rank

    def take(self, rank: int) -> NodePlan:
        """The node of a rank in its slot, which it has until `leave`."""
        group = self._plan.group_of(rank)
        if not group.is_array:
            return self._plan.node(rank)
        replica, index = divmod(rank - group.first_rank, group.nodes)
        slots = self._taken.get(rank)
        if slots is None:
            slots = self._taken[rank] = self._slots_of(group, replica)
            slots.nodes += 1
        return self._plan.node(rank, slots.first + index)

    def _slots_of(self, group: GroupPlan, replica: int) -> _ReplicaSlots:
        array = self._arrays[group.name]
        slots = array.of_replica.get(replica)
        return slots if slots is not None and slots.nodes else array.take(replica)

    def leave(self, rank: int) -> None:
        """A node has ended."""
        slots = self._taken.pop(rank, None)
        if slots is not None:
            slots.nodes -= 1
            if not slots.nodes:
                insort(self._arrays[self._plan.group_of(rank).name].free, slots.first)
