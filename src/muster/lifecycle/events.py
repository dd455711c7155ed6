"""Input of `decide`: reports from the engine, requests from users, and the passing of time."""

from __future__ import annotations

from msgspec import Struct

from muster.lifecycle.status import Reason


class ControllerStarted(Struct, frozen=True):
    """A controller started to drive the run: after a submit, a resume, or a recovery."""


class NodeStarted(Struct, frozen=True):
    """The node's processes have started."""

    rank: int
    incarnation: int = 0


class NodeReady(Struct, frozen=True):
    """The node's startup probe succeeded. A node without a probe is ready when it has started."""

    rank: int
    incarnation: int = 0


class NodeEnded(Struct, frozen=True):
    """No process of the node is left."""

    rank: int
    exit_code: int | None
    """0..255; None if it is unknown."""
    signal: int = 0
    reason: Reason = Reason.EXIT
    message: str = ""
    incarnation: int = 0
    raised_at: float | None = None
    """When the program raised the error (epoch seconds), if it left a note."""


class DiskExceeded(Struct, frozen=True):
    """The node's files take more disk space than its `resources.disk`. The event is only logged."""

    rank: int
    used: int
    """Bytes counted so far; the files may take more."""
    allowed: int
    """Bytes."""
    incarnation: int = 0


class CancelRequested(Struct, frozen=True):
    """A request to cancel the run."""

    why: str
    """A sentence for `details`."""


class SuspendRequested(Struct, frozen=True):
    """A request to suspend the run."""

    why: str
    """A sentence for `details`."""


class ResumeRequested(Struct, frozen=True):
    """A request to resume a suspended run."""

    why: str
    """A sentence for the event log."""


class ScaleRequested(Struct, frozen=True):
    """A request to scale a group. Repeating the request changes nothing."""

    group: str
    replicas: int
    why: str
    """A phrase for the event log."""


class SupervisorLost(Struct, frozen=True):
    """The run's supervisor has ended before the run did, and every started node with it."""

    why: str
    """A sentence; that of a supervisor that has handed the run over takes precedence."""
    started: frozenset[int] | None = None
    """Ranks whose program may have run; None = every node that was given to the engine."""


class RunBroken(Struct, frozen=True):
    """The run cannot continue under any policy: after an internal error, for instance, or
    when its folder was deleted. No process of the run is left."""

    why: str


class RunQueued(Struct, frozen=True):
    """The run waits for resources that other runs have. The engine has started none of its nodes,
    and ignores requests to start them, until it reports RunAdmitted."""

    why: str
    """What it waits for: a phrase for `details`."""


class RunAdmitted(Struct, frozen=True):
    """The run has the resources that it needs."""


class SessionClosed(Struct, frozen=True):
    """The engine's session has closed, as the controller requested: no process of the run is left.
    For the controller; `decide` ignores it."""


class HandOverRequested(Struct, frozen=True):
    """The process that drives the run is about to end, and another one is to drive the run on. For
    the controller; `decide` ignores it."""

    why: str
    """A sentence for the event log, and for the failures of the nodes that ended with it."""


class Tick(Struct, frozen=True):
    """Time has passed."""


NodeEvent = NodeStarted | NodeReady | NodeEnded | DiskExceeded
AdmissionEvent = RunQueued | RunAdmitted
EngineEvent = NodeEvent | AdmissionEvent | SessionClosed
Request = CancelRequested | SuspendRequested | ResumeRequested | ScaleRequested
Event = (
    ControllerStarted
    | EngineEvent
    | Request
    | SupervisorLost
    | RunBroken
    | HandOverRequested
    | Tick
)
