"""The scripted behavior of simulated nodes."""

from __future__ import annotations

import signal
from collections.abc import Callable

from msgspec import Struct

from muster.lifecycle.status import NodeRef, Reason


class Exit(Struct, frozen=True):
    """How a node ends; see `lifecycle.events.NodeEnded`."""

    exit_code: int | None
    signal: int = 0
    reason: Reason = Reason.EXIT
    message: str = ""
    #: How many seconds before its end the program recorded its error; None if it did not.
    raised_before: float | None = None


SUCCESS = Exit(0)
TERMINATED = Exit(128 + signal.SIGTERM, int(signal.SIGTERM))
KILLED = Exit(128 + signal.SIGKILL, int(signal.SIGKILL))


class Behavior(Struct, frozen=True):
    """What one incarnation of a node does. Times in seconds; None = never."""

    #: From its launch until it is scheduled, if it waits in a queue.
    queue: float | None = None
    #: From its launch, or from when it is scheduled, until its processes run.
    start: float = 0.0
    #: How it ends if it cannot start.
    start_error: Exit | None = None
    #: From the start of its processes until its startup probe succeeds.
    ready: float | None = 0.0
    #: From its start until it ends by itself, with `end`.
    run: float | None = None
    end: Exit = SUCCESS
    #: From SIGTERM until it ends, with `stop_exit`.
    stop: float | None = 0.0
    stop_exit: Exit = TERMINATED
    #: From any other signal until it ends, with `save_exit`.
    save: float | None = None
    save_exit: Exit = SUCCESS
    #: From its end until the end is reported.
    report_delay: float = 0.0


#: The behavior of an incarnation, given the attempt of the run and whether the node was kept.
Script = Callable[[NodeRef, int, bool], Behavior]
