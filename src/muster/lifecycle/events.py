"""What can happen to a run: reported by the engine, asked by a person, or told by the clock."""

from __future__ import annotations

from dataclasses import dataclass

from muster.lifecycle.model import Reason


@dataclass(frozen=True, slots=True)
class RunBegan:
    """A controller took the run up."""


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """The node's processes run."""

    rank: int


@dataclass(frozen=True, slots=True)
class NodeReady:
    """The node's startup probe succeeded (at once where it has none)."""

    rank: int


@dataclass(frozen=True, slots=True)
class NodeEnded:
    """No process of the node is left. exit_code 0..255, None when there was none to see."""

    rank: int
    exit_code: int | None
    signal: int = 0
    reason: Reason = Reason.EXIT
    message: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants the run to end. why: a sentence for `details`."""

    why: str


@dataclass(frozen=True, slots=True)
class SupervisorLost:
    """The process that drove the run is gone, and with it every node."""

    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = RunBegan | NodeStarted | NodeReady | NodeEnded | CancelRequested | SupervisorLost | Tick
