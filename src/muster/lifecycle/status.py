"""What the heart remembers of a run: facts, and the intentions they led to. Frozen data.

Intentions are part of the status, so that whoever takes over a run can see what was meant to be
done and do it again (`outstanding.effects`). Times in epoch seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from muster.lifecycle.states import ALIVE, NodeState, RunState

if TYPE_CHECKING:
    from muster.lifecycle.census import Census


class Reason(StrEnum):
    """Why a node failed, when its exit code does not say it all."""

    EXIT = "exit"  # its processes ended by themselves
    NOT_STARTED = "not_started"  # the engine could not start it
    OUT_OF_MEMORY = "out_of_memory"  # the kernel ended it at its memory limit
    NODE_LOST = "node_lost"  # the node went away without a word
    STARTUP_TIMEOUT = "startup_timeout"  # it did not become ready in time
    DEADLINE = "deadline"  # its replica, or the attempt, took too long
    HANG = "hang"  # it gave no sign of life for too long
    OUTPUT_LOST = "output_lost"  # what it wrote could not be brought to where it belongs


class NodeRef(NamedTuple):
    """One life of one node. incarnation: the number of the restart that began it, 0 the first."""

    rank: int
    incarnation: int


class NodeStatus(Struct, frozen=True):
    """One node. exit_code: 0..255; signal: the number that ended it, 0 if none did. since: when
    it was handed to the engine; started_at: when its processes ran.

    Of a node that is to end: term_at: it was told to save (`Policy.checkpoint`) and is told to
    end then; kill_at: it was told to end (SIGTERM) and has until then; killed: it was not heard.
    fault: it was found at fault while alive, which is what it will have failed of.
    again: the incarnation it is to have when this one has ended; parking: its replica is not wanted
    any more, so that one will not be started. not_before: a pending node starts no earlier.
    """

    state: NodeState = NodeState.PENDING
    incarnation: int = 0
    exit_code: int | None = None
    signal: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    since: float | None = None
    term_at: float | None = None
    kill_at: float | None = None
    killed: bool = False
    fault: Reason | None = None
    again: int | None = None
    not_before: float | None = None
    parking: bool = False

    @property
    def alive(self) -> bool:
        """Something of it may be running."""
        return self.state in ALIVE

    @property
    def parked(self) -> bool:
        """Its replica is not wanted, whether or not something of it is still running."""
        return self.parking or self.state is NodeState.PARKED

    @property
    def leaving(self) -> bool:
        """Alive, and told to end."""
        return self.alive and (self.kill_at is not None or self.term_at is not None)


class Failure(Struct, frozen=True):
    """A node that failed.

    message: last lines of its stderr, or what the engine said. raised_at: when its program saw
    the error, where it left a note of that (torchelastic error files); at: when we were told.
    """

    rank: int
    group: str
    reason: Reason
    exit_code: int | None
    signal: int
    message: str
    at: float
    incarnation: int = 0
    raised_at: float | None = None


class Stopping(Struct, frozen=True):
    """Every node is to end; then the run takes `outcome` (SUSPENDED among them).

    note: what `details` say after the cause of a failure.
    """

    outcome: RunState
    details: str
    note: str = ""


class Spent(Struct, frozen=True):
    """Restarts that were used up. rules, groups: by name. retries: by `group/replica`."""

    run: int = 0
    rules: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)


class RunStatus(Struct, frozen=True):
    """Everything the heart remembers of one run.

    attempt: how often it was started again as a whole, by a restart or a resume.
    resumes: how many of these were resumes.
    restarts: how often anything of it was started again, suspended or scaled away; the newest
    incarnation of any node.
    attempt_at: when the first node of the attempt ran.
    going_since: when the first ran since the run was accepted or resumed; ran: seconds before.
    begun: when each group with a time limit of its own first ran, in seconds of the run's own time.
    spent: of the budgets. streak: restarts in a row with no stable time between; restarted_at:
    when the last of them had waited long enough.
    failures: of the present incident, in the order they were told; cause: of the last incident.
    stopping: every node is to end.
    alarm: when to look again although nothing happens.
    census: of `nodes`; it follows from them.
    """

    nodes: tuple[NodeStatus, ...]
    state: RunState = RunState.ACCEPTED
    details: str = ""
    attempt: int = 0
    resumes: int = 0
    restarts: int = 0
    exit_code: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    attempt_at: float | None = None
    going_since: float | None = None
    ran: float = 0.0
    begun: Mapping[str, float] = field(default_factory=dict)
    spent: Spent = Spent()
    streak: int = 0
    restarted_at: float | None = None
    failures: tuple[Failure, ...] = ()
    cause: Failure | None = None
    stopping: Stopping | None = None
    alarm: float | None = None
    census: Census | None = None


def new_status(nodes: tuple[NodeStatus, ...], *, suspended: bool = False) -> RunStatus:
    """The status of a run that was just accepted. nodes: `Policy.first_nodes`."""
    state = RunState.SUSPENDED if suspended else RunState.ACCEPTED
    return RunStatus(nodes=nodes, state=state)
