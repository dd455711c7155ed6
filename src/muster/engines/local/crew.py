"""Which nodes of a run there are: their agents, and the lives these are in."""

from __future__ import annotations

from collections.abc import Iterable

from muster.engines.local.starting import LocalNode
from muster.lifecycle.status import NodeRef


class Crew:
    """Nodes whose agents have not ended, by the agents' pids.

    Of each rank one life has not ended, or one node is kept for the next life, or there is none.
    """

    def __init__(self) -> None:
        self.agents: dict[int, LocalNode] = {}
        self._living: dict[int, LocalNode] = {}  # by rank
        self._kept: dict[int, LocalNode] = {}
        self._newest: dict[int, int] = {}  # incarnation, by rank

    @property
    def busy(self) -> bool:
        """Whether any life has not ended."""
        return bool(self._living)

    def claim(self, ref: NodeRef) -> bool:
        """Whether this life is to begin; it is from now on the newest of its rank. Nothing begins
        twice, nor while the one before it goes on."""
        if ref.rank in self._living or ref.incarnation <= self._newest.get(ref.rank, -1):
            return False
        self._newest[ref.rank] = ref.incarnation
        return True

    def kept(self, rank: int) -> LocalNode | None:
        """The node that waits for its next life."""
        return self._kept.get(rank)

    def living(self, refs: Iterable[NodeRef]) -> list[LocalNode]:
        """The nodes that are in these very lives."""
        nodes = ((self._living.get(ref[0]), ref) for ref in refs)
        return [node for node, ref in nodes if node is not None and node.ref == tuple(ref)]

    def everybody(self) -> list[LocalNode]:
        """The nodes whose lives go on."""
        return list(self._living.values())

    def begin(self, node: LocalNode) -> None:
        """A life begins, of a node that is new or was kept."""
        self.agents[node.pid] = node
        self._kept.pop(node.ref.rank, None)
        self._living[node.ref.rank] = node

    def rest(self, node: LocalNode) -> None:
        """Its life has ended, the node is kept."""
        self._kept[self._living.pop(node.ref.rank).ref.rank] = node

    def remove(self, node: LocalNode) -> bool:
        """Its agent has ended. Whether its life had not."""
        del self.agents[node.pid]
        if self._kept.get(node.ref.rank) is node:
            del self._kept[node.ref.rank]
            return False
        del self._living[node.ref.rank]
        return True

    def clear(self) -> list[LocalNode]:
        """Nothing is left. Returns who was there."""
        nodes = list(self.agents.values())
        for known in (self.agents, self._living, self._kept):
            known.clear()
        return nodes
