"""What becomes of a node once it is handed over: written down before it begins."""

from __future__ import annotations

import signal
from collections.abc import Callable

from msgspec import Struct

from muster.lifecycle.status import NodeRef, Reason


class End(Struct, frozen=True):
    """How a node ends; see `lifecycle.events.NodeEnded`. raised_before: seconds before its end in
    which its program saw the error, where it left a note of that."""

    exit_code: int | None
    signal: int = 0
    reason: Reason = Reason.EXIT
    message: str = ""
    raised_before: float | None = None


SUCCESS = End(0)
TERMINATED = End(128 + signal.SIGTERM, int(signal.SIGTERM))
KILLED = End(128 + signal.SIGKILL, int(signal.SIGKILL))


class Life(Struct, frozen=True):
    """One incarnation of one node. Times in seconds; None = never.

    start: from being handed over to its processes running. unable: it ends so instead of starting.
    ready: from then on to the success of its startup probe. run: to its end by itself, which is
    `end`. stop: from SIGTERM to its end, which is `stopped`. save: from any other signal to its
    end, which is `saved`. tell: from its end to that being told.
    """

    start: float = 0.0
    unable: End | None = None
    ready: float | None = 0.0
    run: float | None = None
    end: End = SUCCESS
    stop: float | None = 0.0
    stopped: End = TERMINATED
    save: float | None = None
    saved: End = SUCCESS
    tell: float = 0.0


#: What an incarnation of a node will be like. Told are the attempt of the run, and whether the
#: node was kept in place since an earlier incarnation.
Script = Callable[[NodeRef, int, bool], Life]
