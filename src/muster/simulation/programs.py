"""Random programs: they succeed, fail, crash, hang, do not hear, cannot start, and mean well at
last. What a node does in one of its lives follows from seed, rank and incarnation alone, so it
stays the same when a fault elsewhere is taken away."""

from __future__ import annotations

import signal
from random import Random

from msgspec import Struct

from muster.engines.simulated.life import KILLED, TERMINATED, End, Life
from muster.lifecycle.policy import GroupPolicy, Policy
from muster.lifecycle.status import NodeRef, Reason
from muster.simulation.policies import EXIT_CODES, MESSAGES

_SAVED = (End(0), End(0), End(75), End(128 + signal.SIGUSR1, int(signal.SIGUSR1)))
_STOPPED = (TERMINATED, TERMINATED, TERMINATED, End(0), End(1, message="interrupted"))


class Habit(Struct, frozen=True):
    """What the programs of a group are like. failing: how probable it is that one of them fails,
    in a life that is not its last. Times in seconds."""

    pace: float
    start: float
    failing: float
    server: bool
    rough: bool


class Programs:
    """See `Case.script`. settled: whoever begins later means well."""

    def __init__(self, seed: int, policy: Policy, dice: Random, settled: float) -> None:
        self._seed = seed
        self._policy = policy
        self._settled = settled
        awaited = {d.group for group in policy.groups for d in group.depends_on if d.complete}
        self._habits = [
            _habit(dice, group, serves=index not in awaited | set(policy.success.groups))
            for index, group in enumerate(policy.groups)
        ]

    def __call__(self, ref: NodeRef, attempt: int, kept: bool, now: float) -> Life:
        """What an incarnation that is handed over now will do."""
        habit = self._habits[self._policy.group_index(ref.rank)]
        dice = Random(self._seed * 1_000_003 + ref.rank * 1009 + ref.incarnation)
        start = 0.1 if kept else habit.start * (0.5 + dice.random())
        run = None if habit.server else habit.pace * (0.5 + dice.random())
        if now >= self._settled:
            return Life(start=min(start, 0.2), run=run, stop=0.2)
        return _life(dice, habit, start, run)


def _habit(dice: Random, group: GroupPolicy, *, serves: bool) -> Habit:
    return Habit(
        pace=dice.choice((2.0, 10.0, 30.0)),
        start=dice.choice((0.0, 0.5, 3.0)),
        failing=dice.choice((0.0, 0.05, 0.15, 0.4, 1.0)),
        server=serves and group.min_success == 0 and dice.random() < 0.7,
        rough=dice.random() < 0.3,
    )


def _life(dice: Random, habit: Habit, start: float, run: float | None) -> Life:
    end, unable = End(0), None
    if dice.random() < habit.failing:
        run = habit.pace * dice.random()
        kind = dice.randrange(12)
        if kind == 0:
            run = None  # it hangs
        elif kind == 1:
            unable = End(None, 0, Reason.NOT_STARTED, "no such image")
        else:
            end = _failure(dice, kind)
    rough = habit.rough and dice.random() < 0.5
    return Life(
        start=start,
        unable=unable,
        ready=_readiness(dice),
        run=run,
        end=end,
        stop=None if rough else dice.choice((0.0, 0.3, 1.0, 4.0)),
        stopped=dice.choice(_STOPPED) if habit.rough else TERMINATED,
        save=dice.choice((None, 0.5, 3.0)),
        saved=dice.choice(_SAVED),
        tell=dice.choice((0.0, 0.0, 0.0, 0.2)),
    )


def _failure(dice: Random, kind: int) -> End:
    message = dice.choice(MESSAGES)
    raised = dice.choice((None, None, 0.5, 3.0))
    match kind:
        case 2:
            return End(137, int(signal.SIGKILL), Reason.OUT_OF_MEMORY)
        case 3:
            return End(139, int(signal.SIGSEGV), message=message)
        case 4:
            return KILLED
        case 5:
            return End(0, 0, Reason.OUTPUT_LOST, "cannot write s3://results")
        case 6:
            return End(137, int(signal.SIGKILL), Reason.HANG, "no output for 60 s")
        case _:
            return End(dice.choice(EXIT_CODES), message=message, raised_before=raised)


def _readiness(dice: Random) -> float | None:
    chance = dice.random()
    if chance < 0.6:
        return 0.0
    return None if chance > 0.96 else 6.0 * dice.random()
