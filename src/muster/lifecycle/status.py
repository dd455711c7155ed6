"""The status of a run: facts, and the intentions that followed from them. Frozen records.

Intentions are part of the status, so that a supervisor that recovers a run sees what its
predecessor was doing and can do it again (`outstanding.effects`). Times are epoch seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from muster.lifecycle.states import ALIVE, NodeState, RunState

if TYPE_CHECKING:
    from muster.lifecycle.counts import NodeCounts


class Reason(StrEnum):
    """Why a node failed."""

    EXIT = "exit"  # a process exited with a code other than 0, or was ended by a signal
    NOT_STARTED = "not_started"  # the engine could not start it
    OUT_OF_MEMORY = "out_of_memory"  # the kernel killed a process at the node's memory limit
    NODE_LOST = "node_lost"  # the node disappeared without an exit report
    PREEMPTED = "preempted"  # its infrastructure gave its host to others
    CANCELED = "canceled"  # somebody canceled it in its infrastructure
    STARTUP_TIMEOUT = "startup_timeout"  # it did not become ready in time
    DEADLINE = "deadline"  # its replica, or the attempt, exceeded its time limit
    HANG = "hang"  # it wrote no output for longer than `hang_timeout`
    UNHEALTHY = "unhealthy"  # its liveness probe failed too often
    PREFLIGHT = "preflight"  # its host did not pass the checks before the program
    OUTPUT_LOST = "output_lost"  # its output could not be written to its destination


class NodeRef(NamedTuple):
    """One incarnation of one node: one start of the node's programs."""

    rank: int
    #: The number of the restart that started it, see `RunStatus.last_incarnation`; 0 for the first.
    incarnation: int


class NodeStatus(Struct, frozen=True, gc=False, cache_hash=True):
    """Status of one node, in its current incarnation.

    Thousands of nodes share one object, and are grouped by it: its hash is kept.
    """

    state: NodeState = NodeState.PENDING
    incarnation: int = 0
    exit_code: int | None = None
    """0..255."""
    signal: int = 0
    """Number of the signal that ended the program; 0 if none did."""
    started_at: float | None = None
    """When its processes started to run."""
    finished_at: float | None = None
    since: float | None = None
    """When it was given to the engine; of one that has waited (QUEUED), when it was scheduled."""
    term_at: float | None = None
    """Set when it was signaled to save (`Policy.checkpoint`): when SIGTERM follows. While it cannot
    be reached, this and `kill_at` count from `unreachable_since`; when it can be again, they are
    moved by the time that it was away."""
    kill_at: float | None = None
    """Set when it was sent SIGTERM: when SIGKILL follows."""
    killed: bool = False
    """It was sent SIGKILL."""
    fault: Reason | None = None
    """Set when it is stopped for a failure that was found while it ran, such as a missed deadline.
    However it then ends, it has failed for this reason. Also set when it has failed, unless its
    program exited."""
    next_incarnation: int | None = None
    """It is being stopped to be restarted with this number."""
    not_before: float | None = None
    """Earliest start of a pending node."""
    retries: int = 0
    """Retries that its replica has used. Only of the first node of a replica; else 0."""
    scaling_down: bool = False
    """It is being stopped because its replica is scaled down; its `next_incarnation` is kept for
    the case that the replica is scaled up again."""
    unreachable_since: float | None = None
    """Since when its agent cannot be reached; None = it can. Its processes may run or not. Only of
    a node that is alive."""
    unreachable_why: str = ""
    """Why it cannot be reached, for people; "" if it can."""
    waits_for: str = ""
    """What it waits for while it is QUEUED: a phrase of the engine's; else empty."""
    away: float = 0.0
    """Seconds since `since` that do not count towards its `ready_timeout`: its agent could not be
    reached."""
    host: str = ""
    """Where it is, for people; "" if the engine has not said so."""
    address: str = ""
    """Its address there; "" if it is that of the plan."""
    host_id: str = ""
    """What the engine's infrastructure calls the place that it has there, for programs: the name of
    its pod or container, the id of its job of Slurm, or the OCID of its job run. Nodes may share
    it, and it may be the place of an earlier incarnation. "" if the engine has not said so."""

    @property
    def alive(self) -> bool:
        """Processes of the node may be running."""
        return self.state in ALIVE

    @property
    def scaled_down(self) -> bool:
        """Its replica was scaled down; processes of the node may still be running."""
        return self.scaling_down or self.state is NodeState.SCALED_DOWN

    @property
    def leaving(self) -> bool:
        """It is alive, and was signaled to save or to end."""
        return self.alive and (self.kill_at is not None or self.term_at is not None)


def ended_node(node: NodeStatus, state: NodeState, now: float | None) -> NodeStatus:
    """The node when it has ended, without what is only known of one that is alive."""
    return replace(
        node,
        state=state,
        finished_at=now,
        # no clock of its replica counts time in a queue
        since=None if node.state is NodeState.QUEUED else node.since,
        unreachable_since=None,
        unreachable_why="",
        waits_for="",
        away=0.0,
    )


def unstarted(node: NodeStatus) -> NodeStatus:
    """The node as it was before it was given to the engine, which has not started it."""
    return replace(
        node,
        state=NodeState.PENDING,
        since=None,
        unreachable_since=None,
        unreachable_why="",
        waits_for="",
        away=0.0,
    )


class Failure(Struct, frozen=True):
    """The failure of one node."""

    rank: int
    group: str
    reason: Reason
    exit_code: int | None
    signal: int
    message: str
    """The node's stderr tail, or a message from the engine."""
    at: float
    """When it was reported."""
    incarnation: int = 0
    raised_at: float | None = None
    """When the program raised the error, if it left a note (torchelastic error files)."""
    final: bool = False
    """Whether each further start of the node would fail in the same way: nothing is restarted."""


class Stopping(Struct, frozen=True):
    """The run is ending: all nodes are stopped, then the run's state becomes `outcome`."""

    outcome: RunState
    """SUSPENDED, or a terminal state."""
    details: str
    note: str = ""
    """Text that follows the cause of a failure in the run's details."""
    names_failed: bool = False
    """Whether the note names the replicas of an array that have failed."""
    failed: Mapping[str, str] = {}
    """Of a run that is being suspended, for each array: the replicas that had failed for good by
    then, such as `0-3,7`. They stay failed."""


class Spent(Struct, frozen=True):
    """Restarts that were counted towards budgets."""

    run: int = 0
    rules: Mapping[str, int] = field(default_factory=dict)
    """By name of the rule."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """By name of the group."""
    retries: Mapping[str, int] = field(default_factory=dict)
    """By name of the group, of those with `total_retries`."""
    native: int = 0
    """How many restarts by the engine itself count towards the run's budget, as reported. `run` has
    those that have not replaced a counted restart in progress."""


class RunStatus(Struct, frozen=True):
    """Everything the lifecycle knows of one run."""

    nodes: Sequence[NodeStatus]
    """In rank order: a `BlockList` or a tuple."""
    state: RunState = RunState.ACCEPTED
    details: str = ""
    attempt: int = 0
    """How often the run was started again as a whole, by a restart or a resume."""
    resumes: int = 0
    """How many of these were resumes."""
    last_incarnation: int = 0
    """Highest number given to an incarnation of a node. Restarts of any scope, suspensions and
    scalings take the next one. A restart by the engine itself begins a new block of numbers
    (`incarnations.BLOCK`)."""
    native_restarts: int = 0
    """How often the engine has restarted the run by itself, as last reported."""
    counted_restarts: tuple[int, ...] = ()
    """The incarnations that restarts give their nodes which were counted for the run's budget, at
    least of those that are in progress. Not of restarts by the engine itself, and before these."""
    exit_code: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    attempt_started_at: float | None = None
    """When the first node of the attempt ran."""
    running_since: float | None = None
    """When the first node ran since the run was accepted or resumed."""
    ran_before: float = 0.0
    """Seconds the run ran before it was last resumed."""
    groups_started: Mapping[str, float] = field(default_factory=dict)
    """For each group with a `max_runtime`: when its first node ran, in seconds of the run's own
    running time."""
    spent: Spent = Spent()
    streak: int = 0
    """Restarts in a row without a stable time (`Backoff.reset_after`) between them."""
    restarted_at: float | None = None
    """When the delay of the last restart was over."""
    failures: tuple[Failure, ...] = ()
    """Failures of the present incident, in the order in which they were reported."""
    cause: Failure | None = None
    """First cause of the last incident."""
    tolerated: Mapping[str, Failure] = field(default_factory=dict)
    """For each array: the failure of the first replica that failed while the others continued, of
    those that have not been restarted since. It is the cause if too few of the others succeed."""
    stopping: Stopping | None = None
    """Set while the run is ending; else None."""
    handed_over: str = ""
    """Why the last supervisor handed the run over, until that is taken into account; "" if it did
    not."""
    broken: bool = False
    """It has failed because it could not continue, not because a node failed."""
    alarm: float | None = None
    """When the rules have to be applied again even if nothing happens."""
    counts: NodeCounts | None = None
    """Counts of `nodes`, derived from them; None = not counted yet."""


def new_status(nodes: Sequence[NodeStatus], *, suspended: bool = False) -> RunStatus:
    """The status of a run that was just accepted. nodes: from `Policy.first_nodes`."""
    state = RunState.SUSPENDED if suspended else RunState.ACCEPTED
    return RunStatus(nodes=nodes, state=state)


def alive_nodes(status: RunStatus) -> dict[NodeRef, NodeStatus]:
    """The nodes of a run whose processes may be running, by their present incarnations."""
    return {
        NodeRef(rank, node.incarnation): node
        for rank, node in enumerate(status.nodes)
        if node.alive
    }
