"""The engine contract: what nodes run on. One folder an engine; `tests/engines` holds the suite
every engine passes.

An engine starts, stops and kills nodes, and says what became of them, in the lifecycle's own
events. It decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from muster.errors import Problem
from muster.lifecycle.events import NodeEvent
from muster.lifecycle.status import NodeRef
from muster.plan.model import RunPlan
from muster.storage.home import Home


class RunContext(Struct, frozen=True):
    """One run, as its engine gets it.

    environ: the environment of whoever submitted the run; nodes on this machine start from it.
    python: the interpreter that runs `python` jobs. keep: nodes may be started again in place:
    what has ended is kept, without its processes, until it is or the session is closed.
    resumes: how many of the run's attempts before and with this one began with a resume. started:
    epoch seconds at which the run first started, however often it has since.
    """

    plan: RunPlan
    home: Home
    environ: Mapping[str, str]
    python: str
    keep: bool = False
    resumes: int = 0
    started: float = field(default_factory=time.time)


class Session(Protocol):
    """A run in progress. Every call is made from one thread; none blocks for long.

    Nodes are named by rank and incarnation. Of each rank there is one incarnation at a time; what
    is asked of one that is no more, or not yet, is not done.
    """

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """Bring these nodes up, as part of this attempt of the run. One that is up already stays
        as it is. Where an earlier incarnation was kept in place, only its processes start."""
        ...

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """Send a signal to the nodes' programs, and not to what those have started."""
        ...

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """Ask the nodes' processes to end (SIGTERM)."""
        ...

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """End every process of these nodes."""
        ...

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """Let go of what was kept for these incarnations to begin in place, and have the others
        know that these nodes are not there. They may be started later all the same."""
        ...

    def events(self, timeout: float | None, wake: int) -> list[NodeEvent]:
        """What happened, waiting up to `timeout` seconds (None = for ever) for something to.

        Returns early, perhaps with nothing, when the descriptor `wake` becomes readable. Every
        incarnation that was started gets exactly one NodeEnded, when no process of it is left.
        """
        ...

    def close(self) -> None:
        """End whatever is left of the run and release what it held."""
        ...

    def seal(self) -> None:
        """Say to those who follow the logs that nothing follows. Called once the outcome of the
        run is recorded, so that whoever sees the end finds it."""
        ...


class Engine(Protocol):
    """What a kind of infrastructure can do."""

    name: str
    #: Whether nodes can be kept while their processes start again.
    in_place: bool

    def check(self, plan: RunPlan, root: Path) -> list[Problem]:
        """What makes this plan impossible here, found before anything starts."""
        ...

    def notes(self, plan: RunPlan) -> list[str]:
        """What the owner should know of how this engine runs the plan (not errors)."""
        ...

    def open(self, context: RunContext) -> Session:
        """Take a run up. Raises EngineError."""
        ...
