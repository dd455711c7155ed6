"""One simulated run: the real `decide`, a clock that jumps from one happening to the next, and
nodes that fail at random."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random

from muster.engines.simulated.agenda import Agenda
from muster.forecast.accounts import Accounts
from muster.forecast.world import Outcome, World
from muster.lifecycle.decide import decide, wake_at
from muster.lifecycle.effects import Effect, KillNodes, SignalNodes, StartNodes, StopNodes
from muster.lifecycle.events import Event, NodeEnded, NodeReady, NodeStarted, RunBegan, Tick
from muster.lifecycle.policy import Policy, Strategy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeRef, Reason, new_status


def play(policy: Policy, world: World, seed: int) -> Outcome:
    """What becomes of a run under this policy in this world. The same seed, the same run."""
    return _Play(policy, world, seed).run()


class _Play:
    def __init__(self, policy: Policy, world: World, seed: int) -> None:
        self._policy = policy
        self._world = world
        self._random = Random(seed)
        self._status = new_status(policy.first_nodes())
        self._accounts = Accounts(policy, world)
        self._agenda = Agenda()
        self._heard: list[Event] = []
        self._done: dict[int, tuple[float, int]] = {}  # replica -> when it is done, in which life
        self._silent: set[int] = set()  # failed, and nobody knows
        self._gone: set[int] = set()  # ranks that need another node
        self._failures = 0

    def run(self) -> Outcome:
        """Play it to its end, or to the horizon."""
        self._tell([RunBegan()])
        next_failure = self._draw()
        while not self._status.state.terminal:
            due = min(self._next(), next_failure)
            if due > self._world.horizon:
                break
            self._agenda.advance(due)
            if due == next_failure:
                self._fail_one()
                next_failure = self._now + self._draw()
            else:
                self._tell(self._due())
        ended = self._status.state.terminal
        until = self._now if ended else self._world.horizon
        self._accounts.finish(until, failed=self._status.state is RunState.FAILED)
        return Outcome(
            state=str(self._status.state),
            details=self._status.details,
            ended_at=until if ended else None,
            failures=self._failures,
            restarts=self._status.restarts,
            uses=self._accounts.uses,
            productive=tuple(self._accounts.productive),
        )

    def _draw(self) -> float:
        """Until any of the nodes fails next."""
        return self._random.expovariate(self._policy.size / self._world.mtbf)

    def _next(self) -> float:
        if self._heard:  # in the very moment in which a node failed
            return self._now
        wake = wake_at(self._status)
        planned = self._agenda.next()
        times = [at for at in (wake, planned) if at is not None]
        times += [at for at, _ in self._done.values()]
        return max(min(times, default=inf), self._now)

    def _due(self) -> list[Event]:
        events, self._heard = self._heard, []
        for unit, (at, life) in list(self._done.items()):
            if at <= self._now:
                del self._done[unit]
                ranks = self._accounts.units()[unit]
                if self._status.nodes[ranks[0]].incarnation == life:
                    self._accounts.complete(unit, self._now)
                    events += [self._ended(rank, 0) for rank in ranks]
        return [*events, Tick()]

    def _fail_one(self) -> None:
        """A node fails; if nothing of the run is on it, nobody minds."""
        rank = self._random.randrange(self._policy.size)
        lost = self._random.random() < self._world.lost
        node = self._status.nodes[rank]
        if node.state not in (NodeState.RUNNING, NodeState.READY) or rank in self._silent:
            return
        self._failures += 1
        self._silent.add(rank)
        if lost:
            self._gone.add(rank)
        noticed = self._world.loss_noticed if lost else self._world.crash_noticed
        reason = Reason.NODE_LOST if lost else Reason.EXIT
        event = NodeEnded(rank, None if lost else 1, 0, reason, "", node.incarnation)
        self._plan(noticed, [event])
        self._see()

    def _ended(self, rank: int, code: int) -> NodeEnded:
        return NodeEnded(rank, code, incarnation=self._status.nodes[rank].incarnation)

    def _tell(self, events: Sequence[Event]) -> None:
        self._silent -= {event.rank for event in events if isinstance(event, NodeEnded)}
        decision = decide(self._policy, self._status, events, self._now)
        self._status = decision.status
        for effect in decision.effects:
            self._act(effect)
        self._see()

    def _see(self) -> None:
        """Book what has changed; know when those that now make progress will be done."""
        begun = self._accounts.update(self._status.nodes, self._silent, self._now)
        if self._world.work is None:
            return
        for unit in begun:
            life = self._status.nodes[self._accounts.units()[unit][0]].incarnation
            self._done[unit] = (self._now + self._accounts.left(unit), life)

    def _act(self, effect: Effect) -> None:
        match effect:
            case StartNodes(_, nodes):
                kept = [ref for ref in nodes if self._kept(ref)]
                self._start(kept, 0.0)
                self._start([ref for ref in nodes if not self._kept(ref)], self._world.node_start)
                self._gone -= {ref.rank for ref in nodes}
            case StopNodes(nodes):
                self._plan(self._world.stop, [_stopped(ref) for ref in nodes])
            case KillNodes(nodes):
                self._plan(0.0, [_stopped(ref) for ref in nodes])
            case SignalNodes():
                pass  # saving is what the checkpoints are for

    def _kept(self, ref: NodeRef) -> bool:
        """Whether only processes start, on a node that is there."""
        in_place = self._policy.strategy is Strategy.IN_PLACE
        return in_place and ref.incarnation > 0 and ref.rank not in self._gone

    def _start(self, refs: Sequence[NodeRef], delay: float) -> None:
        if refs:
            self._plan(delay, [NodeStarted(*ref) for ref in refs])
            self._plan(delay + self._world.load, [NodeReady(*ref) for ref in refs])

    def _plan(self, delay: float, events: Sequence[Event]) -> None:
        self._agenda.after(delay, self._heard_of, events)

    def _heard_of(self, events: Sequence[Event]) -> None:
        self._heard += events

    @property
    def _now(self) -> float:
        return self._agenda.now


def _stopped(ref: NodeRef) -> NodeEnded:
    return NodeEnded(ref.rank, 143, 15, incarnation=ref.incarnation)
