"""Simulates one run: the real `decide`, virtual time, and nodes that fail at random."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import inf
from random import Random

from muster.forecast.accounting import Accounts
from muster.forecast.event_queue import EventQueue
from muster.forecast.model import Assumptions, Outcome
from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.effects import Effect, KillNodes, SignalNodes, StartNodes, StopNodes
from muster.lifecycle.events import (
    ControllerStarted,
    Event,
    NodeEnded,
    NodeReady,
    NodeStarted,
    Tick,
)
from muster.lifecycle.policy import Policy, Strategy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeRef, Reason, new_status


def simulate(policy: Policy, assumptions: Assumptions, seed: int) -> Outcome:
    """The outcome of a run under this policy. The same seed gives the same run."""
    return _Simulation(policy, assumptions, seed).run()


class _Simulation:
    def __init__(self, policy: Policy, assumptions: Assumptions, seed: int) -> None:
        self._policy = policy
        self._assumptions = assumptions
        self._rng = Random(seed)
        self._status = new_status(policy.first_nodes())
        self._accounts = Accounts(policy, assumptions)
        self._queue = EventQueue()
        self._pending: list[Event] = []  # not given to `decide` yet
        self._completions: dict[int, tuple[float, int]] = {}  # replica -> (time, incarnation)
        self._silent: set[int] = set()  # ranks that have failed and are not noticed yet
        self._lost: set[int] = set()  # ranks that need another node
        self._spare = [0] * len(policy.groups)  # nodes of arrays, without a replica
        self._failures = 0

    def run(self) -> Outcome:
        """Simulate to the end of the run, or to the horizon."""
        self._decide([ControllerStarted()])
        next_failure = self._next_failure()
        while not self._status.state.terminal:
            due = min(self._next(), next_failure)
            if due > self._assumptions.horizon:
                break
            self._queue.advance(due)
            if due == next_failure:
                self._fail_one()
                next_failure = self._now + self._next_failure()
            else:
                self._decide(self._due())
        ended = self._status.state.terminal
        until = self._now if ended else self._assumptions.horizon
        self._accounts.finish(until, failed=self._status.state is RunState.FAILED)
        return Outcome(
            state=str(self._status.state),
            details=self._status.details,
            ended_at=until if ended else None,
            failures=self._failures,
            restarts=self._status.last_incarnation,
            uses=self._accounts.uses,
            productive=tuple(self._accounts.productive),
        )

    def _next_failure(self) -> float:
        """Seconds until the next failure of any node."""
        return self._rng.expovariate(self._policy.size_at_once / self._assumptions.mtbf)

    def _next(self) -> float:
        if self._pending:  # from the moment of a failure
            return self._now
        wake = wake_at(self._status)
        planned = self._queue.next()
        times = [at for at in (wake, planned) if at is not None]
        times += [at for at, _ in self._completions.values()]
        return max(min(times, default=inf), self._now)

    def _due(self) -> list[Event]:
        events, self._pending = self._pending, []
        for unit, (at, incarnation) in list(self._completions.items()):
            if at <= self._now:
                del self._completions[unit]
                ranks = self._accounts.units()[unit]
                if self._status.nodes[ranks[0]].incarnation == incarnation:
                    self._accounts.complete(unit, self._now)
                    events += [self._node_ended(rank, 0) for rank in ranks]
        return [*events, Tick()]

    def _fail_one(self) -> None:
        """A random node fails. Without a running program on it that has no effect."""
        rank = self._rank_at(self._rng.randrange(self._policy.size_at_once))
        lost = self._rng.random() < self._assumptions.lost
        if rank is None:
            return
        node = self._status.nodes[rank]
        if node.state not in (NodeState.RUNNING, NodeState.READY) or rank in self._silent:
            return
        self._failures += 1
        self._silent.add(rank)
        if lost:
            self._lost.add(rank)
        noticed = self._assumptions.loss_noticed if lost else self._assumptions.crash_noticed
        reason = Reason.NODE_LOST if lost else Reason.EXIT
        event = NodeEnded(rank, None if lost else 1, 0, reason, "", node.incarnation)
        self._schedule(noticed, [event])
        self._update_accounts()

    def _rank_at(self, place: int) -> int | None:
        """The rank that runs on one of the machine's nodes; None if none does. The replicas of an
        array take nodes one after another, the others have their own."""
        for group in self._policy.groups:
            nodes = group.at_once * group.nodes
            if place < nodes and not group.is_array:
                return group.first_rank + place
            if place < nodes:
                alive = (rank for rank in group.ranks if self._status.nodes[rank].alive)
                return next(islice(alive, place, None), None)
            place -= nodes
        return None

    def _node_ended(self, rank: int, code: int) -> NodeEnded:
        return NodeEnded(rank, code, incarnation=self._status.nodes[rank].incarnation)

    def _decide(self, events: Sequence[Event]) -> None:
        self._silent -= {event.rank for event in events if isinstance(event, NodeEnded)}
        decision = decide(self._policy, self._status, events, self._now)
        self._status = decision.status
        for event in events:
            if isinstance(event, NodeEnded):
                self._free(event.rank)
        for effect in decision.effects:
            self._carry_out(effect)
        self._update_accounts()

    def _update_accounts(self) -> None:
        """Book changes, and schedule the ends of replicas that have started to make progress."""
        started = self._accounts.update(self._status.nodes, self._silent, self._now)
        if self._assumptions.work is None:
            return
        for unit in started:
            incarnation = self._status.nodes[self._accounts.units()[unit][0]].incarnation
            self._completions[unit] = (self._now + self._accounts.left(unit), incarnation)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case StartNodes(_, nodes):
                kept = {ref for ref in nodes if self._kept(ref)}
                self._start([ref for ref in nodes if ref in kept], 0.0)
                fresh = [ref for ref in nodes if ref not in kept]
                self._start(fresh, self._assumptions.node_start)
                self._lost -= {ref.rank for ref in nodes}
            case StopNodes(nodes):
                self._schedule(self._assumptions.stop, [_stop_event(ref) for ref in nodes])
            case KillNodes(nodes):
                self._schedule(0.0, [_stop_event(ref) for ref in nodes])
            case SignalNodes():
                pass  # checkpoints are written at intervals

    def _free(self, rank: int) -> None:
        """Keep the node of an array's replica that has ended for the next one."""
        index = self._policy.group_index(rank)
        ended = self._status.nodes[rank].state.ended
        if ended and self._policy.groups[index].is_array and rank not in self._lost:
            self._spare[index] += 1

    def _kept(self, ref: NodeRef) -> bool:
        """Whether only processes start, on a node that was kept."""
        if self._policy.strategy is not Strategy.IN_PLACE or ref.rank in self._lost:
            return False
        index = self._policy.group_index(ref.rank)
        if ref.incarnation == 0 and self._spare[index]:
            self._spare[index] -= 1
            return True
        return ref.incarnation > 0

    def _start(self, refs: Sequence[NodeRef], delay: float) -> None:
        if refs:
            self._schedule(delay, [NodeStarted(*ref) for ref in refs])
            self._schedule(delay + self._assumptions.load, [NodeReady(*ref) for ref in refs])

    def _schedule(self, delay: float, events: Sequence[Event]) -> None:
        self._queue.after(delay, self._receive, events)

    def _receive(self, events: Sequence[Event]) -> None:
        self._pending += events

    @property
    def _now(self) -> float:
        return self._queue.now


def _stop_event(ref: NodeRef) -> NodeEnded:
    return NodeEnded(ref.rank, 143, 15, incarnation=ref.incarnation)
