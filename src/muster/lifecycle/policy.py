"""What the owner said about a run's life, as the heart needs it. Times in seconds."""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus, Reason


class Action(StrEnum):
    """What to do about a failure."""

    FAIL = "fail"
    RESTART_RUN = "restart_run"
    RESTART_GROUP = "restart_group"
    RESTART_REPLICA = "restart_replica"
    RESTART_NODE = "restart_node"


class Strategy(StrEnum):
    """How nodes are started again (JobSet: failurePolicy.restartStrategy)."""

    IN_PLACE = "in_place"  # nodes stay, processes start again when the old ones of all are gone
    RECREATE = "recreate"  # each replica as soon as its own old nodes are gone
    BLOCKING_RECREATE = "blocking_recreate"  # when the old nodes of all are gone


class Dependency(Struct, frozen=True):
    """group: which one (its place in `Policy.groups`); complete: it must have succeeded, else it
    is enough that it is up."""

    group: int
    complete: bool


class GroupPolicy(Struct, frozen=True):
    """One node group: at most `replicas` units of `nodes` nodes each, ranks `first_rank` onwards.

    min_success: replicas that must succeed (OCI: minimumSuccessReplicas; absent there = all); of
    fewer that are wanted, all of those. wanted: replicas that are at first; None = all.
    retries: failed nodes of a replica that are started again alone before the replica has failed
    (Kubernetes: backoffLimit). timeout: of a replica, from its start to its end. max_runtime: of
    the group, over all attempts; then the run is canceled. serves: its nodes run no program of the
    owner's: they have nothing to save, and end when all others have.
    """

    name: str
    first_rank: int
    replicas: int
    nodes: int
    min_success: int
    depends_on: tuple[Dependency, ...] = ()
    max_restarts: int | None = None
    retries: int = 0
    timeout: float | None = None
    ready_timeout: float | None = None
    wanted: int | None = None
    serves: bool = False
    max_runtime: float | None = None

    @property
    def size(self) -> int:
        return self.replicas * self.nodes

    @property
    def initial(self) -> int:
        """Replicas that are wanted at first."""
        return self.replicas if self.wanted is None else self.wanted

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.size)

    def replica_of(self, rank: int) -> int:
        return (rank - self.first_rank) // self.nodes

    def replica_ranks(self, replica: int) -> range:
        first = self.first_rank + replica * self.nodes
        return range(first, first + self.nodes)


class Rule(Struct, frozen=True):
    """What to do about some failures; empty = any (JobSet: failurePolicy.rules).

    text: what `messages` look at, with placeholders; None = what the failure is described with.
    counted: its restarts use up the run's and the group's budget. max_restarts: its own.
    before_retries: it is asked before the group's retries are used (Kubernetes: podFailurePolicy).
    """

    name: str
    action: Action
    groups: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    reasons: tuple[Reason, ...] = ()
    messages: tuple[str, ...] = ()
    text: str | None = None
    counted: bool = True
    max_restarts: int | None = None
    before_retries: bool = False


class Backoff(Struct, frozen=True):
    """How long a restart waits; see `spec.policies.Backoff`. seed: of the jitter."""

    initial: float = 0.0
    factor: float = 2.0
    longest: float = 300.0
    jitter: float = 0.0
    reset_after: float = 600.0
    seed: int = 0


class Success(Struct, frozen=True):
    """groups: places in `Policy.groups`; any_replica: one of any of them is enough.
    wait: nodes that still run then may finish."""

    groups: tuple[int, ...]
    any_replica: bool = False
    wait: bool = False


class Checkpoint(Struct, frozen=True):
    """signal: what says "save now"; grace: seconds until SIGTERM follows."""

    signal: int
    grace: float


class Policy(Struct, frozen=True, dict=True):
    """What the owner said about the run's life."""

    groups: tuple[GroupPolicy, ...]
    success: Success
    in_order: bool = False
    max_runtime: float = 30 * 86400.0
    grace_period: float = 10.0
    attempt_timeout: float | None = None
    max_restarts: int = 0
    action: Action = Action.RESTART_RUN
    rules: tuple[Rule, ...] = ()
    strategy: Strategy = Strategy.IN_PLACE
    backoff: Backoff = Backoff()
    checkpoint: Checkpoint | None = None

    @cached_property
    def size(self) -> int:
        return sum(group.size for group in self.groups)

    @cached_property
    def initial_size(self) -> int:
        """Nodes that are wanted at first."""
        return sum(group.initial * group.nodes for group in self.groups)

    def first_nodes(self) -> tuple[NodeStatus, ...]:
        """The nodes of a run that was just accepted."""
        pending, parked = NodeStatus(), NodeStatus(NodeState.PARKED)
        nodes: list[NodeStatus] = []
        for group in self.groups:
            begin = group.initial * group.nodes
            nodes += [pending] * begin + [parked] * (group.size - begin)
        return tuple(nodes)

    def fewest(self, index: int) -> int:
        """So many replicas of a group are always wanted: where none can succeed, a run that waits
        for that would have nothing left to do."""
        counts = index in self.success.groups and self.groups[index].min_success > 0
        return int(counts)

    @cached_property
    def first_ranks(self) -> tuple[int, ...]:
        return tuple(group.first_rank for group in self.groups)

    @property
    def restarts(self) -> bool:
        """Whether anything may ever be started again after a failure."""
        return (
            self.max_restarts > 0
            or any(group.retries for group in self.groups)
            or any(rule.action is not Action.FAIL for rule in self.rules)
        )

    def group_index(self, rank: int) -> int:
        """The place of the group a rank belongs to."""
        return bisect_right(self.first_ranks, rank) - 1

    def group_of(self, rank: int) -> GroupPolicy:
        return self.groups[self.group_index(rank)]
