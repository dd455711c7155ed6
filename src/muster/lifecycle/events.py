"""What can happen to a run: reported by the engine, asked by a person, or told by the clock."""

from __future__ import annotations

from msgspec import Struct

from muster.lifecycle.model import Reason


class RunBegan(Struct, frozen=True):
    """A controller took the run up."""


class NodeStarted(Struct, frozen=True):
    """The node's processes run."""

    rank: int


class NodeReady(Struct, frozen=True):
    """The node's startup probe succeeded (at once where it has none)."""

    rank: int


class NodeEnded(Struct, frozen=True):
    """No process of the node is left. exit_code 0..255, None when there was none to see."""

    rank: int
    exit_code: int | None
    signal: int = 0
    reason: Reason = Reason.EXIT
    message: str = ""


class CancelRequested(Struct, frozen=True):
    """Somebody wants the run to end. why: a sentence for `details`."""

    why: str


class SupervisorLost(Struct, frozen=True):
    """The process that drove the run is gone, and with it every node."""

    why: str


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = RunBegan | NodeStarted | NodeReady | NodeEnded | CancelRequested | SupervisorLost | Tick
