"""A run driven by hand: events in, effects and log entries out."""

from __future__ import annotations

from typing import Any

from muster.lifecycle import counts
from muster.lifecycle.decide import decide
from muster.lifecycle.effects import Effect, Entry, StartNodes, StopNodes
from muster.lifecycle.events import (
    ControllerStarted,
    Event,
    NodeEnded,
    NodeReady,
    NodeStarted,
    Tick,
)
from muster.lifecycle.policy import GroupPolicy, Policy, Success
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus, new_status


def groups(*shapes: Any) -> tuple[GroupPolicy, ...]:
    """Groups g0, g1, ... as (replicas, nodes, min_success or None for all[, more as a dict])."""
    made, rank = [], 0
    for number, (replicas, nodes, least, *more) in enumerate(shapes):
        minimum = replicas if least is None else least
        options = more[0] if more else {}
        made.append(GroupPolicy(f"g{number}", rank, replicas, nodes, minimum, **options))
        rank += replicas * nodes
    return tuple(made)


def policy(*shapes: Any, **more: Any) -> Policy:
    """A policy for these groups, with the default rule for success."""
    made = groups(*shapes)
    awaited = tuple(i for i, g in enumerate(made) if g.min_success) or tuple(range(len(made)))
    times = {"max_runtime": 30 * 86400.0, "grace_period": 10.0}
    return Policy(**{"groups": made, "success": Success(awaited), **times, **more})


class RunDriver:
    """A run without nodes: status, effects and entries are those of the last step."""

    def __init__(self, policy: Policy, *, suspended: bool = False) -> None:
        self.policy = policy
        self.status = new_status(policy.first_nodes(), suspended=suspended)
        self.now = 1000.0
        self.effects: tuple[Effect, ...] = ()
        self.entries: tuple[Entry, ...] = ()
        self.log: list[Entry] = []

    def step(self, *events: Event, after: float = 1.0) -> RunDriver:
        """One step, `after` seconds after the last."""
        self.now += after
        decision = decide(self.policy, self.status, events, self.now)
        self.status, self.effects, self.entries = (
            decision.status,
            decision.effects,
            decision.entries,
        )
        self.log += self.entries
        if self.status.counts is not None:
            counted = counts.count_nodes(self.policy, self.status.nodes)
            assert self.status.counts == counted, "counts follow from the nodes"
        return self

    def tick(self, after: float = 0.0) -> RunDriver:
        return self.step(Tick(), after=after)

    def up(self, *ranks: int) -> RunDriver:
        """These nodes start and become ready."""
        return self.step(*(e for r in ranks for e in (self.started(r), self.ready(r))))

    def started(self, rank: int) -> NodeStarted:
        return NodeStarted(rank, self.node(rank).incarnation)

    def ready(self, rank: int) -> NodeReady:
        return NodeReady(rank, self.node(rank).incarnation)

    def ended(self, rank: int, code: int | None = 0, **more: Any) -> NodeEnded:
        return NodeEnded(rank, code, incarnation=self.node(rank).incarnation, **more)

    def end(self, rank: int, code: int | None = 0, after: float = 1.0, **more: Any) -> RunDriver:
        """A node ends, by itself unless `more` has a signal or reason."""
        return self.step(self.ended(rank, code, **more), after=after)

    def end_stopping(self) -> RunDriver:
        """Every stopping node ends by SIGTERM."""
        leaving = [rank for rank, node in enumerate(self.status.nodes) if node.leaving]
        return self.step(*(self.ended(rank, 143, signal=15) for rank in leaving))

    def node(self, rank: int) -> NodeStatus:
        return self.status.nodes[rank]

    def states(self) -> list[NodeState]:
        return [node.state for node in self.status.nodes]

    def starts(self) -> list[int]:
        """Ranks that the last step starts."""
        return [r.rank for e in self.effects if isinstance(e, StartNodes) for r in e.nodes]

    def stops(self) -> list[int]:
        """Ranks that the last step stops."""
        return [r.rank for e in self.effects if isinstance(e, StopNodes) for r in e.nodes]

    def retries(self) -> dict[str, int]:
        """The retries that replicas have used, of those that have used any, by `group/replica`."""
        nodes = self.status.nodes
        used = {
            f"{group.name}/{replica}": nodes[group.replica_ranks(replica)[0]].retries
            for group in self.policy.groups
            for replica in range(group.replicas)
        }
        return {replica: count for replica, count in used.items() if count}

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """Data of all log entries of a kind so far."""
        return [dict(entry.data) for entry in self.log if entry.kind == kind]


def starting(policy: Policy) -> RunDriver:
    """A run whose first nodes are starting."""
    return RunDriver(policy).step(ControllerStarted())


def running(policy: Policy) -> RunDriver:
    """A run whose nodes are all ready."""
    return starting(policy).up(*range(policy.size))


def refs(*ranks: int, incarnation: int = 0) -> tuple[NodeRef, ...]:
    return tuple(NodeRef(rank, incarnation) for rank in ranks)
