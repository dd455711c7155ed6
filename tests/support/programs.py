"""What programs of nodes do in tests of calls and events: once for real nodes, as a script of a
shell, and once for simulated ones."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NamedTuple

from muster.lifecycle.status import NodeRef
from simulation.harness.behavior import SUCCESS, TERMINATED, Behavior, Exit


class Program(NamedTuple):
    """A program. It prints `up` and the number of its incarnation when it listens to signals."""

    script: str
    behavior: Callable[[NodeRef], Behavior]


#: Ends with the number of its incarnation, from 1.
COUNTS = Program(
    "exit $((MUSTER_RESTART + 1))", lambda ref: Behavior(run=0.0, end=Exit(ref.incarnation + 1))
)
#: Is ended by SIGTERM.
RUNS = Program("echo up $MUSTER_RESTART; exec sleep 1000", lambda ref: Behavior())


def ends_with(code: int) -> Program:
    """Ends at once, by itself."""
    return Program(f"exit {code}", lambda ref: Behavior(run=0.0, end=Exit(code)))


def ends_by(number: int) -> Program:
    """Ends at once, by a signal."""
    end = Exit(128 + number, number)
    return Program(f"kill -{number} $$", lambda ref: Behavior(run=0.0, end=end))


def _listens(traps: str) -> str:
    return f"{traps}; echo up $MUSTER_RESTART; while :; do sleep 0.01; done"


#: Ends with 0 when it gets SIGTERM.
ENDS_WHEN_STOPPED = Program(_listens("trap 'exit 0' TERM"), lambda ref: Behavior(stop_exit=SUCCESS))
#: Is ended by SIGKILL only.
IGNORES_STOP = Program(_listens("trap '' TERM"), lambda ref: Behavior(stop=None))
#: Saves what it has when it gets SIGUSR1, and ends with 0.
SAVES = Program(
    _listens("trap 'exit 0' USR1"),
    lambda ref: Behavior(save=0.0, stop_exit=TERMINATED),
)
SAVE = signal.SIGUSR1
