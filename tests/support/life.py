"""A run driven by hand: events in, what must follow out."""

from __future__ import annotations

from typing import Any

from muster.lifecycle import census
from muster.lifecycle.decide import decide
from muster.lifecycle.effects import Effect, Entry, StartNodes, StopNodes
from muster.lifecycle.events import Event, NodeEnded, NodeReady, NodeStarted, RunBegan, Tick
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
    """A policy over such groups, with success as a spec without a word on it has it."""
    made = groups(*shapes)
    awaited = tuple(i for i, g in enumerate(made) if g.min_success) or tuple(range(len(made)))
    return Policy(**{"groups": made, "success": Success(awaited), **more})


class Life:
    """status, effects and entries are those of the last step; `told` all entries so far."""

    def __init__(self, policy: Policy, *, suspended: bool = False) -> None:
        self.policy = policy
        self.status = new_status(policy.first_nodes(), suspended=suspended)
        self.now = 1000.0
        self.effects: tuple[Effect, ...] = ()
        self.entries: tuple[Entry, ...] = ()
        self.told: list[Entry] = []

    def tell(self, *events: Event, after: float = 1.0) -> Life:
        """One step, `after` seconds after the last."""
        self.now += after
        decision = decide(self.policy, self.status, events, self.now)
        self.status, self.effects, self.entries = (
            decision.status,
            decision.effects,
            decision.entries,
        )
        self.told += self.entries
        if self.status.census is not None:
            counted = census.take(self.policy, self.status.nodes)
            assert self.status.census == counted, "the census follows from the nodes"
        return self

    def tick(self, after: float = 0.0) -> Life:
        return self.tell(Tick(), after=after)

    def up(self, *ranks: int) -> Life:
        """These nodes started and became ready."""
        return self.tell(*(e for r in ranks for e in (self.started(r), self.ready(r))))

    def started(self, rank: int) -> NodeStarted:
        return NodeStarted(rank, self.node(rank).incarnation)

    def ready(self, rank: int) -> NodeReady:
        return NodeReady(rank, self.node(rank).incarnation)

    def ended(self, rank: int, code: int | None = 0, **more: Any) -> NodeEnded:
        return NodeEnded(rank, code, incarnation=self.node(rank).incarnation, **more)

    def end(self, rank: int, code: int | None = 0, after: float = 1.0, **more: Any) -> Life:
        """A node ended, by itself unless more is said."""
        return self.tell(self.ended(rank, code, **more), after=after)

    def obey(self) -> Life:
        """Every node that was told to end does, of SIGTERM."""
        leaving = [rank for rank, node in enumerate(self.status.nodes) if node.leaving]
        return self.tell(*(self.ended(rank, 143, signal=15) for rank in leaving))

    def node(self, rank: int) -> NodeStatus:
        return self.status.nodes[rank]

    def states(self) -> list[NodeState]:
        return [node.state for node in self.status.nodes]

    def starts(self) -> list[int]:
        """Ranks that the last step had started."""
        return [r.rank for e in self.effects if isinstance(e, StartNodes) for r in e.nodes]

    def stops(self) -> list[int]:
        """Ranks that the last step told to end."""
        return [r.rank for e in self.effects if isinstance(e, StopNodes) for r in e.nodes]

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """What the log says under a kind, so far."""
        return [dict(entry.data) for entry in self.told if entry.kind == kind]


def begun(policy: Policy) -> Life:
    """A run whose first nodes were handed to the engine."""
    return Life(policy).tell(RunBegan())


def running(policy: Policy) -> Life:
    """A run all of whose nodes are up."""
    return begun(policy).up(*range(policy.size))


def refs(*ranks: int, incarnation: int = 0) -> tuple[NodeRef, ...]:
    return tuple(NodeRef(rank, incarnation) for rank in ranks)
