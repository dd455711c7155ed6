"""One run of many nodes under the real controller: what it does to the control plane when nodes
fail as real ones do. Nothing else goes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from muster.control.controller import Controller
from muster.engines.simulated.agenda import Agenda
from muster.engines.simulated.clock import VirtualClock
from muster.engines.simulated.life import End, Life
from muster.engines.simulated.session import SimulatedSession
from muster.engines.simulated.world import Phase, World
from muster.lifecycle.effects import Entry
from muster.lifecycle.events import Request
from muster.lifecycle.policy import Policy, Strategy
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef, Reason, RunStatus
from muster.simulation.book import MemoryBook
from muster.simulation.harness import EPOCH
from muster.simulation.plans import plan_of


class Conditions(Struct, frozen=True):
    """What nodes are like. Times in seconds.

    start: a new node, at most (evenly spread); again: one that was kept. mtbf: of one node.
    noticed: until a lost node is. stop: from SIGTERM to the end. work: of the program, without
    failures; None = for ever. checkpoint: what it has done is safe after whole multiples of that.
    grain: what happens within one is told at once.
    """

    start: float = 120.0
    again: float = 5.0
    mtbf: float = 5 * 365 * 86400.0
    noticed: float = 10.0
    stop: float = 5.0
    work: float | None = None
    checkpoint: float = 1800.0
    grain: float = 1.0


class Moment(Struct, frozen=True):
    """From this time on, the run was in this state, with so many nodes ready."""

    at: float
    state: RunState
    ready: int


class Timeline(Struct, frozen=True):
    """moments: each differs from the one before. steps: transactions. final: the last status."""

    moments: tuple[Moment, ...]
    failures: int
    steps: int
    final: RunStatus


class _Over(BaseException):
    """The horizon is reached."""


def simulate_run(policy: Policy, conditions: Conditions, seed: int, horizon: float) -> Timeline:
    """What becomes of a run within `horizon` seconds. The same seed, the same run."""
    return _Scale(policy, conditions, seed, horizon).run()


class _Scale:
    def __init__(self, policy: Policy, conditions: Conditions, seed: int, horizon: float) -> None:
        self._policy = policy
        self._conditions = conditions
        self._random = Random(seed)
        self._agenda = Agenda()
        keep = policy.strategy is Strategy.IN_PLACE and policy.restarts
        self._world = World(self._agenda, self._life, keep=keep, grain=conditions.grain)
        self._book = MemoryBook(plan_of(seed, policy), EPOCH, suspended=False)
        self._moments: list[Moment] = []
        self._steps = self._failures = 0
        self._saved = 0.0
        self._going: float | None = None  # since when all nodes are ready
        self._agenda.at(horizon, self._stop)
        self._agenda.after(self._next(), self._fail)

    def run(self) -> Timeline:
        clock = VirtualClock(self._agenda, EPOCH)
        session = SimulatedSession(self._agenda, self._world)
        try:
            Controller(self._policy, self, session, clock, -1, list).run()
        except _Over:
            pass
        final = self._book.load()
        return Timeline(tuple(self._moments), self._failures, self._steps, final)

    # --- the ledger

    def load(self) -> RunStatus:
        return self._book.load()

    def record(
        self, before: RunStatus, after: RunStatus, entries: Sequence[Entry], now: float
    ) -> None:
        self._book.record(before, after, entries, now)
        self._steps += 1
        ready = sum(group.ready for group in after.census.groups) if after.census else 0
        if ready == self._policy.size and self._going is None:
            self._going = self._agenda.now
        last = self._moments[-1] if self._moments else None
        if last is None or (last.state, last.ready) != (after.state, ready):
            self._moments.append(Moment(self._agenda.now, after.state, ready))

    def requests(self) -> list[Request]:
        return []

    # --- the world

    def _life(self, ref: NodeRef, attempt: int, kept: bool) -> Life:
        c = self._conditions
        start = c.again if kept else c.start * self._random.random()
        left = None if c.work is None else max(c.work - self._saved, c.grain)
        return Life(start=start, run=left, stop=c.stop)

    def _next(self) -> float:
        return self._random.expovariate(self._policy.size / self._conditions.mtbf)

    def _fail(self) -> None:
        """Some node is lost, if anything of the run is on it."""
        self._agenda.after(self._next(), self._fail)
        rank = self._random.randrange(self._policy.size)
        process = self._world.processes.get(rank)
        if process is None or process.phase is Phase.ENDED:
            return
        self._failures += 1
        if self._going is not None:
            done = self._agenda.now - self._going
            self._saved += done // self._conditions.checkpoint * self._conditions.checkpoint
            self._going = None
        process.life = replace(process.life, tell=self._conditions.noticed)
        self._world.fail([rank], End(None, 0, Reason.NODE_LOST, "it was not heard of any more"))

    def _stop(self) -> None:
        raise _Over
