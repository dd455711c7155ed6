"""Input of `decide`: reports from the engine, requests from users, and the passing of time."""

from __future__ import annotations

from msgspec import Struct

from muster.lifecycle.states import RunState
from muster.lifecycle.status import Reason


class ControllerStarted(Struct, frozen=True):
    """A controller started to drive the run: after a submit, a resume, or a recovery."""

    attaches: bool = False
    """Whether nodes that are alive have outlived the controller before it, and it attaches to
    them."""


class NodeStarted(Struct, frozen=True, gc=False):
    """The node's processes have started."""

    rank: int
    incarnation: int = 0


class NodeQueued(Struct, frozen=True, gc=False):
    """The node waits in the queue of the engine's infrastructure, or it waits for something else
    now than it did."""

    rank: int
    incarnation: int = 0
    why: str = ""
    """What it waits for: a phrase, the same for nodes that wait for the same."""


class NodeScheduled(Struct, frozen=True, gc=False):
    """The node does not wait in a queue any more: it starts."""

    rank: int
    incarnation: int = 0
    where: str = ""
    """The host that it was given, for instance; "" if it is unknown."""


class NodeLocated(Struct, frozen=True, gc=False):
    """The node is on a host that is known now."""

    rank: int
    incarnation: int = 0
    host: str = ""
    """For people."""
    address: str = ""
    """At which the other nodes reach it."""
    host_id: str = ""
    """See `NodeStatus.host_id`."""


class NodeReady(Struct, frozen=True, gc=False):
    """The node's startup probe succeeded. A node without a probe is ready when it has started."""

    rank: int
    incarnation: int = 0


class NodeEnded(Struct, frozen=True, gc=False):
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
    metrics: str = ""
    """What the program left as its results, as JSON; "" if nothing. Recorded with the node's end,
    and used by no rule."""
    final: bool = False
    """Whether each further start of the node would fail in the same way."""


class NodeUnreachable(Struct, frozen=True, gc=False):
    """There is no contact with the node's agent any more, or there is none for another reason; or
    the infrastructure is ending the node. Its processes may run or not."""

    rank: int
    incarnation: int = 0
    why: str = ""
    """A phrase for the event log, the same for nodes that were lost for the same reason."""


class NodeReachable(Struct, frozen=True, gc=False):
    """There is contact with the node's agent again."""

    rank: int
    incarnation: int = 0


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


class RunRestarted(Struct, frozen=True):
    """The engine's infrastructure has restarted the whole run by itself. All older incarnations of
    its nodes have ended; those that it has started have the number
    `incarnations.of_native_restart(restarts)`."""

    restarts: int
    """How often it has done so since the run was submitted (JobSet: status.restarts; Slurm:
    SLURM_RESTART_COUNT), by all that has run the run's nodes one after another."""
    ranks: tuple[int, ...] | None = None
    """The nodes that it has started, or starts without being asked; None = all that are desired."""
    counted: int | None = None
    """How many of these count towards `failure.max_restarts` (JobSet:
    status.restartsCountTowardsMax); None = all."""
    why: str = ""
    """A phrase on the latest one."""


class RunEnded(Struct, frozen=True):
    """The engine's infrastructure has ended the run by rules of its own. Nodes that are left are
    stopped."""

    outcome: RunState
    """SUCCEEDED or FAILED."""
    why: str = ""
    """A sentence: why it has failed (JobSet: the message of the condition Failed)."""


class ResourcesLeft(Struct, frozen=True):
    """The engine leaves something where it is as the run ends: a user wants that, has ended the run
    by force, or it cannot be removed. Its nodes count as ended."""

    why: str
    """A sentence for `details`: what is left, and why."""


class SessionClosed(Struct, frozen=True):
    """The engine's session has closed, as the controller requested: no process of the run is left,
    unless it was to leave them alone. For the controller; `decide` ignores it."""


class HandOverRequested(Struct, frozen=True):
    """The process that drives the run is about to end, and another one is to drive the run on. For
    the controller; `decide` ignores it."""

    why: str
    """A sentence for the event log, and for the failures of the nodes that ended with it."""


class Tick(Struct, frozen=True):
    """Time has passed."""


NodeEvent = (
    NodeQueued
    | NodeScheduled
    | NodeLocated
    | NodeStarted
    | NodeReady
    | NodeEnded
    | NodeUnreachable
    | NodeReachable
    | DiskExceeded
)
AdmissionEvent = RunQueued | RunAdmitted
EngineEvent = NodeEvent | AdmissionEvent | RunRestarted | RunEnded | ResourcesLeft | SessionClosed
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
