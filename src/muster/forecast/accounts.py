"""What every node's time went into. A replica makes progress while all its nodes do; what it has
done since its last checkpoint is lost with any of them."""

from __future__ import annotations

from collections.abc import Sequence

from muster.forecast.world import Use, World
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus


class Accounts:
    """Told of every change of the run, and when."""

    def __init__(self, policy: Policy, world: World) -> None:
        self._world = world
        self._units = [g.replica_ranks(r) for g in policy.groups for r in range(g.replicas)]
        self._nodes = policy.size
        self._mode = [Use.STARTING] * len(self._units)
        self._since = [0.0] * len(self._units)
        self.saved = [0.0] * len(self._units)  # seconds of work that no failure takes away
        self.uses: dict[Use, float] = dict.fromkeys(Use, 0.0)
        self.productive: list[tuple[float, float]] = [(0.0, 0.0)]

    def units(self) -> Sequence[range]:
        """The ranks of each replica."""
        return self._units

    def update(self, nodes: Sequence[NodeStatus], silent: set[int], now: float) -> list[int]:
        """Take in what the nodes are now. silent: ranks that have failed, which nobody knows yet.

        Returns the replicas that have begun to make progress.
        """
        begun = []
        for unit, ranks in enumerate(self._units):
            mode = _mode(nodes, ranks, silent, now)
            if mode is self._mode[unit]:
                continue
            self._close(unit, now)
            self._mode[unit], self._since[unit] = mode, now
            if mode is Use.USEFUL:
                begun.append(unit)
        working = sum(
            len(ranks)
            for ranks, mode in zip(self._units, self._mode, strict=True)
            if mode is Use.USEFUL
        )
        if working / self._nodes != self.productive[-1][1]:
            self.productive.append((now, working / self._nodes))
        return begun

    def finish(self, now: float, *, failed: bool) -> None:
        """The run is over, or we look no further."""
        for unit in range(len(self._units)):
            self._close(unit, now, kept=not failed)
        if failed:
            self.uses[Use.OVER] += (self._world.horizon - now) * self._nodes
            self.productive.append((now, 0.0))

    def left(self, unit: int) -> float:
        """Seconds until the replica's program is done, if nothing comes between."""
        assert self._world.work is not None
        work = self._world.work - self.saved[unit]
        return work + int(work / self._world.checkpoint_every) * self._world.checkpoint_cost

    def complete(self, unit: int, now: float) -> None:
        """The replica's program is done: what it did since its last checkpoint counts."""
        self._close(unit, now, kept=True)
        self._mode[unit], self._since[unit] = Use.IDLE, now

    def _close(self, unit: int, now: float, *, kept: bool = False) -> None:
        """Book what the replica has been doing until now."""
        spent, width = now - self._since[unit], len(self._units[unit])
        mode = self._mode[unit]
        if mode is not Use.USEFUL:
            self.uses[mode] += spent * width
            return
        every, cost = self._world.checkpoint_every, self._world.checkpoint_cost
        written = int(spent / (every + cost))
        rest = min(spent - written * (every + cost), every)
        self.uses[Use.CHECKPOINTS] += (spent - written * every - rest) * width
        self.saved[unit] += written * every + (rest if kept else 0.0)
        self.uses[Use.USEFUL] += (written * every + (rest if kept else 0.0)) * width
        self.uses[Use.AGAIN] += (0.0 if kept else rest) * width


def _mode(nodes: Sequence[NodeStatus], ranks: range, silent: set[int], now: float) -> Use:
    states = set()
    for rank in ranks:
        node = nodes[rank]
        if rank in silent:
            return Use.NOTICING
        if node.leaving:
            return Use.STOPPING
        if node.not_before is not None and node.not_before > now:
            return Use.WAITING
        if node.incarnation and node.state is NodeState.PENDING:
            return Use.STOPPING  # the others of its restart are not gone yet
        states.add(node.state)
    if states == {NodeState.READY}:
        return Use.USEFUL
    if states & {NodeState.STARTING, NodeState.RUNNING}:
        return Use.STARTING
    return Use.IDLE
