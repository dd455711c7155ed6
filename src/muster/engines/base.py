"""The engine contract: what nodes run on. One folder an engine; `tests/engines` holds the suite
every engine passes.

An engine starts, stops and kills nodes, and says what became of them, in the lifecycle's own
events. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from muster.errors import Problem
from muster.lifecycle.events import NodeEnded, NodeReady, NodeStarted
from muster.plan.model import RunPlan
from muster.storage.home import Home

NodeEvent = NodeStarted | NodeReady | NodeEnded


class RunContext(Struct, frozen=True):
    """One attempt of one run, as its engine gets it.

    environ: the environment of whoever submitted the run; nodes on this machine start from it.
    python: the interpreter that runs `python` jobs.
    """

    plan: RunPlan
    attempt: int
    home: Home
    environ: Mapping[str, str]
    python: str


class Session(Protocol):
    """An attempt in progress. Every call is made from one thread; none blocks for long."""

    def start(self, ranks: Sequence[int]) -> None:
        """Bring these nodes up. A rank that is up already stays as it is."""
        ...

    def stop(self, ranks: Sequence[int]) -> None:
        """Ask the nodes' processes to end (SIGTERM)."""
        ...

    def kill(self, ranks: Sequence[int]) -> None:
        """End every process of these nodes."""
        ...

    def events(self, timeout: float | None, wake: int) -> list[NodeEvent]:
        """What happened, waiting up to `timeout` seconds (None = for ever) for something to.

        Returns early, perhaps with nothing, when the descriptor `wake` becomes readable. Every
        started rank gets exactly one NodeEnded, when no process of it is left.
        """
        ...

    def close(self) -> None:
        """End whatever is left of the attempt and release what it held."""
        ...

    def seal(self) -> None:
        """Say to those who follow the logs that nothing follows. Called once the outcome of the
        run is recorded, so that whoever sees the end finds it."""
        ...


class Engine(Protocol):
    """What a kind of infrastructure can do."""

    name: str

    def check(self, plan: RunPlan, root: Path) -> list[Problem]:
        """What makes this plan impossible here, found before anything starts."""
        ...

    def notes(self, plan: RunPlan) -> list[str]:
        """What the owner should know of how this engine runs the plan (not errors)."""
        ...

    def open(self, context: RunContext) -> Session:
        """Begin an attempt. Raises EngineError."""
        ...
