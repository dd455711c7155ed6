"""Random programs. They succeed, fail, crash, hang, ignore SIGTERM or cannot start; in the end they
behave well. The behavior of an incarnation depends only on seed, rank and incarnation, so it stays
the same when a fault is removed from the plan."""

from __future__ import annotations

import signal
from random import Random

from msgspec import Struct

from muster.lifecycle.policy import GroupPolicy, Policy
from muster.lifecycle.status import NodeRef, Reason
from simulation.harness.behavior import KILLED, TERMINATED, Behavior, Exit
from simulation.harness.random_policies import EXIT_CODES, MESSAGES

_SAVED = (Exit(0), Exit(0), Exit(75), Exit(128 + signal.SIGUSR1, int(signal.SIGUSR1)))
_STOPPED = (TERMINATED, TERMINATED, TERMINATED, Exit(0), Exit(1, message="interrupted"))
#: Why a node does not come as far as its program.
_START_ERRORS = (
    Exit(None, 0, Reason.NOT_STARTED, "no such image"),
    Exit(None, 0, Reason.PREFLIGHT, "on gpu-7: 7 of 8 GPUs are visible"),
)


class GroupHabits(Struct, frozen=True):
    """How the programs of a group behave. Times in seconds."""

    #: The typical run time.
    pace: float
    start: float
    #: The probability that an incarnation fails.
    failing: float
    #: Whether they run until they are stopped.
    server: bool
    #: Whether they may ignore SIGTERM or fail when they are stopped.
    rough: bool


class Programs:
    """See `Case.script`. settled: programs that start later behave well."""

    def __init__(self, seed: int, policy: Policy, rng: Random, settled: float) -> None:
        self._seed = seed
        self._policy = policy
        self._settled = settled
        awaited = {d.group for group in policy.groups for d in group.depends_on if d.complete}
        self._habits = [
            _group_habits(rng, group, serves=index not in awaited | set(policy.success.groups))
            for index, group in enumerate(policy.groups)
        ]

    def __call__(self, ref: NodeRef, attempt: int, kept: bool, now: float) -> Behavior:
        """The behavior of an incarnation that is launched now."""
        habit = self._habits[self._policy.group_index(ref.rank)]
        rng = Random(self._seed * 1_000_003 + ref.rank * 1009 + ref.incarnation)
        start = 0.1 if kept else habit.start * (0.5 + rng.random())
        run = None if habit.server else habit.pace * (0.5 + rng.random())
        if now >= self._settled:
            return Behavior(start=min(start, 0.2), run=run, stop=0.2)
        return _behavior(rng, habit, start, run)


def _group_habits(rng: Random, group: GroupPolicy, *, serves: bool) -> GroupHabits:
    return GroupHabits(
        pace=rng.choice((2.0, 10.0, 30.0)),
        start=rng.choice((0.0, 0.5, 3.0)),
        failing=rng.choice((0.0, 0.05, 0.15, 0.4, 1.0)),
        server=serves and group.min_success == 0 and rng.random() < 0.7,
        rough=rng.random() < 0.3,
    )


def _behavior(rng: Random, habit: GroupHabits, start: float, run: float | None) -> Behavior:
    end, start_error = Exit(0), None
    if rng.random() < habit.failing:
        run = habit.pace * rng.random()
        kind = rng.randrange(12)
        if kind == 0:
            run = None  # it hangs
        elif kind == 1:
            start_error = rng.choice(_START_ERRORS)
        else:
            end = _failure(rng, kind)
    rough = habit.rough and rng.random() < 0.5
    return Behavior(
        start=start,
        start_error=start_error,
        ready=_readiness(rng),
        run=run,
        end=end,
        stop=None if rough else rng.choice((0.0, 0.3, 1.0, 4.0)),
        stop_exit=rng.choice(_STOPPED) if habit.rough else TERMINATED,
        save=rng.choice((None, 0.5, 3.0)),
        save_exit=rng.choice(_SAVED),
        report_delay=rng.choice((0.0, 0.0, 0.0, 0.2)),
    )


def _failure(rng: Random, kind: int) -> Exit:
    message = rng.choice(MESSAGES)
    raised = rng.choice((None, None, 0.5, 3.0))
    match kind:
        case 2:
            return Exit(137, int(signal.SIGKILL), Reason.OUT_OF_MEMORY)
        case 3:
            return Exit(139, int(signal.SIGSEGV), message=message)
        case 4:
            return KILLED
        case 5:
            return Exit(0, 0, Reason.OUTPUT_LOST, "cannot write s3://results")
        case 6:
            reason = rng.choice([Reason.HANG, Reason.UNHEALTHY])
            return Exit(137, int(signal.SIGKILL), reason, "no sign of life for 60 s")
        case _:
            return Exit(rng.choice(EXIT_CODES), message=message, raised_before=raised)


def _readiness(rng: Random) -> float | None:
    chance = rng.random()
    if chance < 0.6:
        return 0.0
    return None if chance > 0.96 else 6.0 * rng.random()
