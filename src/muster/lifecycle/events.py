"""What can happen to a run: reported by the engine, asked by a person, or told by the clock."""

from __future__ import annotations

from msgspec import Struct

from muster.lifecycle.status import Reason


class RunBegan(Struct, frozen=True):
    """A controller took the run up: it was accepted or resumed, or its last one is gone."""


class NodeStarted(Struct, frozen=True):
    """The node's processes run."""

    rank: int
    incarnation: int = 0


class NodeReady(Struct, frozen=True):
    """The node's startup probe succeeded (at once where it has none)."""

    rank: int
    incarnation: int = 0


class NodeEnded(Struct, frozen=True):
    """No process of the node is left. exit_code 0..255, None when there was none to see.

    raised_at: when its program saw the error, if it left a note of that (epoch seconds).
    """

    rank: int
    exit_code: int | None
    signal: int = 0
    reason: Reason = Reason.EXIT
    message: str = ""
    incarnation: int = 0
    raised_at: float | None = None


class DiskExceeded(Struct, frozen=True):
    """The node's files take more disk than it asked for. It stands in the event log, and nothing
    else follows. used: what was counted, it may be more; used, allowed: in bytes."""

    rank: int
    used: int
    allowed: int
    incarnation: int = 0


class CancelRequested(Struct, frozen=True):
    """Somebody wants the run to end. why: a sentence for `details`."""

    why: str


class SuspendRequested(Struct, frozen=True):
    """Somebody wants the run to pause. why: a sentence for `details`."""

    why: str


class ResumeRequested(Struct, frozen=True):
    """Somebody wants a suspended run to go on. why: a sentence for the event log."""

    why: str


class ScaleRequested(Struct, frozen=True):
    """Somebody wants a group to have so many replicas. It is a wish that lasts: told again, it
    changes nothing. why: a phrase for the event log."""

    group: str
    replicas: int
    why: str


class SupervisorLost(Struct, frozen=True):
    """The process that drove the run is gone, and with it every node that had begun.

    begun: ranks whose program may have run; None = every node that was handed to the engine.
    """

    why: str
    begun: frozenset[int] | None = None


class RunBroken(Struct, frozen=True):
    """The run cannot go on, whatever its policy says: a defect of ours, a folder that is gone.
    Nothing of it is left running."""

    why: str


class Tick(Struct, frozen=True):
    """Time has passed."""


NodeEvent = NodeStarted | NodeReady | NodeEnded | DiskExceeded
Request = CancelRequested | SuspendRequested | ResumeRequested | ScaleRequested
Event = RunBegan | NodeEvent | Request | SupervisorLost | RunBroken | Tick
