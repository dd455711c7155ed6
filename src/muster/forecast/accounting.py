"""Accounts of every node's time. A replica makes progress while all its nodes do, and loses its
work since the last checkpoint when one of them fails.

A replica of an array has nodes only while it runs; the nodes that no replica has are idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster.forecast.model import Assumptions, TimeUse
from muster.lifecycle.blocks import BlockList
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus


class Accounts:
    """Updated after every change of the run."""

    def __init__(self, policy: Policy, assumptions: Assumptions) -> None:
        self._assumptions = assumptions
        self._units = [g.replica_ranks(r) for g in policy.groups for r in range(g.replicas)]
        self._in_array = [g.is_array for g in policy.groups for _ in range(g.replicas)]
        self._unit_of = [unit for unit, ranks in enumerate(self._units) for _ in ranks]
        self._nodes = policy.size_at_once
        self._array_nodes = sum(g.at_once * g.nodes for g in policy.groups if g.is_array)
        #: Node-seconds in which the nodes of arrays had replicas.
        self._array_busy = 0.0
        self._last: Sequence[NodeStatus] | None = None
        #: Replicas whose mode may change although their nodes do not.
        self._watched: set[int] = set()
        self._working = 0
        self._mode = [TimeUse.STARTING] * len(self._units)
        self._since = [0.0] * len(self._units)
        #: Seconds of work of each replica that are saved in a checkpoint.
        self.saved = [0.0] * len(self._units)
        #: Node-seconds.
        self.uses: dict[TimeUse, float] = dict.fromkeys(TimeUse, 0.0)
        #: See `Outcome.productive`.
        self.productive: list[tuple[float, float]] = [(0.0, 0.0)]

    def units(self) -> Sequence[range]:
        """The ranks of each replica."""
        return self._units

    def update(self, nodes: Sequence[NodeStatus], silent: set[int], now: float) -> list[int]:
        """Account for the present state of the nodes.

        silent: ranks that have failed and are not noticed yet. Returns the replicas that have
        started to make progress.
        """
        started = []
        for unit in sorted(self._changed(nodes) | self._watched | self._units_of(silent)):
            ranks = self._units[unit]
            mode = _mode(nodes, ranks, silent, now)
            if mode in (TimeUse.WAITING, TimeUse.NOTICING):
                self._watched.add(unit)
            else:
                self._watched.discard(unit)
            if mode is self._mode[unit]:
                continue
            self._close(unit, now)
            self._change(unit, mode, now)
            if mode is TimeUse.USEFUL:
                started.append(unit)
        if self._working / self._nodes != self.productive[-1][1]:
            self.productive.append((now, self._working / self._nodes))
        return started

    def _changed(self, nodes: Sequence[NodeStatus]) -> set[int]:
        """The replicas whose nodes have changed."""
        if self._last is None:
            found = set(range(len(self._units)))
        else:
            found = self._units_of(
                index
                for indexes in BlockList.of(nodes).changes_from(self._last).values()
                for index in indexes
            )
        self._last = nodes
        return found

    def _units_of(self, ranks: Iterable[int]) -> set[int]:
        return {self._unit_of[rank] for rank in ranks}

    def _change(self, unit: int, mode: TimeUse, now: float) -> None:
        was_useful = self._mode[unit] is TimeUse.USEFUL
        self._working += len(self._units[unit]) * ((mode is TimeUse.USEFUL) - was_useful)
        self._mode[unit], self._since[unit] = mode, now

    def finish(self, now: float, *, failed: bool) -> None:
        """Close all accounts at the end of the run, or at the horizon."""
        for unit in range(len(self._units)):
            self._close(unit, now, kept=not failed)
        self.uses[TimeUse.IDLE] += max(0.0, self._array_nodes * now - self._array_busy)
        if failed:
            self.uses[TimeUse.OVER] += (self._assumptions.horizon - now) * self._nodes
            self.productive.append((now, 0.0))

    def left(self, unit: int) -> float:
        """Seconds until the replica's program ends, without further failures."""
        assert self._assumptions.work is not None
        work = self._assumptions.work - self.saved[unit]
        return (
            work
            + int(work / self._assumptions.checkpoint_every) * self._assumptions.checkpoint_cost
        )

    def complete(self, unit: int, now: float) -> None:
        """The replica's program has ended: its work since the last checkpoint counts."""
        self._close(unit, now, kept=True)
        self._change(unit, TimeUse.IDLE, now)

    def _close(self, unit: int, now: float, *, kept: bool = False) -> None:
        """Book what the replica has been doing until now. kept: its unsaved work counts."""
        spent, width = now - self._since[unit], len(self._units[unit])
        mode = self._mode[unit]
        if self._in_array[unit]:
            if mode in (TimeUse.IDLE, TimeUse.WAITING):
                return  # it has no nodes
            self._array_busy += spent * width
        if mode is not TimeUse.USEFUL:
            self.uses[mode] += spent * width
            return
        every, cost = self._assumptions.checkpoint_every, self._assumptions.checkpoint_cost
        written = int(spent / (every + cost))
        unsaved = min(spent - written * (every + cost), every)
        self.uses[TimeUse.CHECKPOINTS] += (spent - written * every - unsaved) * width
        self.saved[unit] += written * every + (unsaved if kept else 0.0)
        self.uses[TimeUse.USEFUL] += (written * every + (unsaved if kept else 0.0)) * width
        self.uses[TimeUse.AGAIN] += (0.0 if kept else unsaved) * width


def _mode(nodes: Sequence[NodeStatus], ranks: range, silent: set[int], now: float) -> TimeUse:
    states = set()
    for rank in ranks:
        node = nodes[rank]
        if rank in silent:
            return TimeUse.NOTICING
        if node.leaving:
            return TimeUse.STOPPING
        if node.not_before is not None and node.not_before > now:
            return TimeUse.WAITING
        if node.incarnation and node.state is NodeState.PENDING:
            return TimeUse.STOPPING  # other nodes of its restart are still stopping
        states.add(node.state)
    if states == {NodeState.READY}:
        return TimeUse.USEFUL
    if states & {NodeState.STARTING, NodeState.RUNNING}:
        return TimeUse.STARTING
    return TimeUse.IDLE
