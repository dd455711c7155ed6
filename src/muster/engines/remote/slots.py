"""Which slots the replicas of arrays get on hosts. Pure.

A replica that is started waits until slots for all of its nodes can be used: their hosts are
known and can be reached, and nothing of another replica is left to be copied from them. So
replicas run where there is a place, and a host that is gone holds up only those that ran there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, field

from muster.plan.model import GroupPlan, RunPlan


class _Block(Struct, eq=False):
    """Neighbouring slots, for the nodes of one replica."""

    slots: range
    #: The replica that has them, or had them last.
    replica: int = -1
    #: The ranks of its nodes that have not ended.
    ranks: set[int] = field(default_factory=set)


class _Array(Struct):
    """The slots of one array."""

    group: GroupPlan
    blocks: Sequence[_Block]
    #: Those that no replica has, the one that was left first first. The controller has learned of
    #: the end of a replica when it starts another one for that: what it may not have recorded yet
    #: stays longest.
    free: list[_Block]
    #: Replica -> the nodes of it that wait, the replica that was started first first.
    waiting: dict[int, list[int]] = field(default_factory=dict)


class ArraySlots:
    """The slots of the arrays of one run."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._arrays: dict[str, _Array] = {}
        self._block_of: dict[int, _Block] = {}  # by slot
        for group in plan.groups:
            if group.is_array:
                slots = plan.slots(group)
                firsts = range(slots.start, slots.stop, group.nodes)
                blocks = [_Block(range(first, first + group.nodes)) for first in firsts]
                self._arrays[group.name] = _Array(group, blocks, blocks[:])
                self._block_of |= {slot: block for block in blocks for slot in block.slots}

    def __contains__(self, slot: int) -> bool:
        """Whether a slot belongs to an array."""
        return slot in self._block_of

    def blocks(self) -> Iterator[range]:
        """The slots, those of one replica together."""
        for array in self._arrays.values():
            yield from (block.slots for block in array.blocks)

    @property
    def waiting(self) -> list[int]:
        """The ranks that wait for slots, in order."""
        every = (array.waiting.values() for array in self._arrays.values())
        return [rank for replicas in every for ranks in replicas for rank in ranks]

    def wait(self, rank: int) -> None:
        """A node was started, or needs another slot."""
        array, replica = self._of(rank)
        array.waiting.setdefault(replica, []).append(rank)

    def wait_no_more(self, rank: int) -> None:
        """A node that waits has ended; nothing if it does not wait."""
        array, replica = self._of(rank)
        ranks = array.waiting.get(replica, [])
        if rank in ranks:
            ranks.remove(rank)
            if not ranks:
                del array.waiting[replica]

    def give_out(self, usable: Callable[[int], bool]) -> list[tuple[int, int]]:
        """Give slots to those that wait, as far as there are any. usable: whether a slot can be
        used now. Returns pairs of a rank and its slot."""
        given: list[tuple[int, int]] = []
        for array in self._arrays.values():
            for replica, ranks in list(array.waiting.items()):
                block = self._choose(array, replica, usable)
                if block is None:
                    continue  # a later one may have slots of which only a part is used
                slots = [(rank, self._slot(array, block, rank)) for rank in ranks]
                ready = [pair for pair in slots if usable(pair[1])]
                for rank, _ in ready:
                    self.wait_no_more(rank)
                    self._take(array, block, rank)
                given += ready
        return given

    def _choose(self, array: _Array, replica: int, usable: Callable[[int], bool]) -> _Block | None:
        """The slots for a replica: where some of its nodes run; else its former ones, where its
        files are; else the first that are free."""
        own = next((one for one in array.blocks if one.replica == replica), None)
        if own is not None and own.ranks:
            return own
        former = [own] if own is not None else []
        every = [*former, *array.free]
        return next((one for one in every if all(map(usable, one.slots))), None)

    def found(self, rank: int, slot: int) -> None:
        """A node of an earlier session runs in a slot."""
        array, _ = self._of(rank)
        self._take(array, self._block_of[slot], rank)

    def leave(self, rank: int) -> None:
        """A node has ended, or its slot has no host any more; nothing if it has no slot."""
        array, replica = self._of(rank)
        block = next((one for one in array.blocks if one.replica == replica), None)
        if block is not None and rank in block.ranks:
            block.ranks.discard(rank)
            if not block.ranks:
                array.free.append(block)

    def _take(self, array: _Array, block: _Block, rank: int) -> None:
        if not block.ranks and block in array.free:
            array.free.remove(block)
        block.replica = (rank - array.group.first_rank) // array.group.nodes
        block.ranks.add(rank)

    def _slot(self, array: _Array, block: _Block, rank: int) -> int:
        return block.slots[(rank - array.group.first_rank) % array.group.nodes]

    def _of(self, rank: int) -> tuple[_Array, int]:
        group = self._plan.group_of(rank)
        return self._arrays[group.name], (rank - group.first_rank) // group.nodes


def clusters(plan: RunPlan) -> Iterable[tuple[int, ...]]:
    """The slots of the nodes that are one cluster: those of each replica of an array, and those of
    all groups that are none."""
    arrays = ArraySlots(plan)
    yield from (tuple(block) for block in arrays.blocks())
    others = tuple(slot for slot in range(len(plan.nodes)) if slot not in arrays)
    if others:
        yield others
