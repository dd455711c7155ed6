"""What the heart knows: the policy a run is held to and the status it is in.

Both are plain frozen data. A status holds facts and the intention they led to, never a way to act.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from muster.lifecycle.states import NodeState, RunState


class GroupPolicy(Struct, frozen=True):
    """One node group: `replicas` units of `nodes` nodes each, ranks `first_rank` onwards.

    min_success: replicas that must succeed (OCI: minimumSuccessReplicas; absent there = all).
    """

    name: str
    first_rank: int
    replicas: int
    nodes: int
    min_success: int

    @property
    def size(self) -> int:
        return self.replicas * self.nodes

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.size)

    def replica_ranks(self, replica: int) -> range:
        first = self.first_rank + replica * self.nodes
        return range(first, first + self.nodes)


class Policy(Struct, frozen=True):
    """What the owner said about the run's life. Times in seconds."""

    groups: tuple[GroupPolicy, ...]
    in_order: bool
    max_runtime: float
    grace_period: float

    @property
    def size(self) -> int:
        return sum(group.size for group in self.groups)

    def group_of(self, rank: int) -> GroupPolicy:
        for group in self.groups:
            if rank in group.ranks:
                return group
        raise IndexError(rank)


class Reason(StrEnum):
    """Why a node ended, when its exit code does not say it all."""

    EXIT = "exit"  # its processes ended by themselves
    NOT_STARTED = "not_started"  # the engine could not start it
    OUT_OF_MEMORY = "out_of_memory"  # the kernel ended it at its memory limit
    NODE_LOST = "node_lost"  # the node went away without a word
    STARTUP_TIMEOUT = "startup_timeout"  # its startup probe never succeeded
    OUTPUT_LOST = "output_lost"  # what it wrote could not be brought to where it belongs


class NodeStatus(Struct, frozen=True):
    """One node. exit_code: 0..255; signal: the number that ended it, 0 if none did.

    kill_at: it was told to end (SIGTERM) and has until then; killed: it was not heard.
    """

    state: NodeState = NodeState.PENDING
    exit_code: int | None = None
    signal: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    kill_at: float | None = None
    killed: bool = False


class Failure(Struct, frozen=True):
    """The first node to fail, which is the cause until something better is known."""

    rank: int
    group: str
    reason: Reason
    exit_code: int | None
    signal: int
    message: str  # last lines of its stderr, or what the engine said
    at: float


class Stopping(Struct, frozen=True):
    """Every node is to end; then the run takes `outcome`."""

    outcome: RunState
    details: str


class RunStatus(Struct, frozen=True):
    """Everything the heart remembers of one run."""

    nodes: tuple[NodeStatus, ...]
    state: RunState = RunState.ACCEPTED
    details: str = ""
    attempt: int = 0
    exit_code: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    failure: Failure | None = None
    stopping: Stopping | None = None


def new_status(policy: Policy) -> RunStatus:
    """The status of a run that was just accepted."""
    return RunStatus(nodes=(NodeStatus(),) * policy.size)
