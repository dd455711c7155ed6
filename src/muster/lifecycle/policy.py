"""The policy of a run: what the lifecycle rules need to know of its spec. Times in seconds."""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from functools import cached_property

from msgspec import Struct, field

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
    """How nodes are restarted (JobSet: failurePolicy.restartStrategy)."""

    IN_PLACE = "in_place"  # nodes stay; processes start when all old processes have ended
    RECREATE = "recreate"  # each replica starts as soon as its own old nodes have ended
    BLOCKING_RECREATE = "blocking_recreate"  # nodes start when all old nodes have ended


class Dependency(Struct, frozen=True):
    """A group that another group waits for."""

    group: int
    """Index in `Policy.groups`."""
    complete: bool
    """Wait until it has succeeded, and not only until it is up."""


class GroupPolicy(Struct, frozen=True):
    """One node group: up to `replicas` replicas of `nodes` nodes each, ranks from `first_rank`
    on.

    A field with the name of a group's setting is copied from it, unless the setting is a record.
    """

    name: str
    first_rank: int
    replicas: int
    """Maximum number of replicas."""
    nodes: int
    """Nodes of one replica."""
    min_success: int
    """Replicas that must succeed (OCI: minimumSuccessReplicas; absent there = all). If fewer are
    desired, all of them must."""
    depends_on: tuple[Dependency, ...] = ()
    max_restarts: int | None = None
    retries: int = 0
    """Node restarts allowed before the replica has failed (Kubernetes: backoffLimit)."""
    timeout: float | None = None
    """Time limit of a replica, from its start to its end."""
    ready_timeout: float | None = None
    desired: int | None = field(default=None, name="wanted")
    """Replicas desired at the start; None = all."""
    serves: bool = False
    """Its nodes run no program of the user's: they have nothing to save, and are stopped when all
    other nodes have ended."""
    max_runtime: float | None = None
    """Time limit of the group over all attempts; the run is then canceled."""

    @property
    def size(self) -> int:
        return self.replicas * self.nodes

    @property
    def initial(self) -> int:
        """Replicas desired at the start."""
        return self.replicas if self.desired is None else self.desired

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.size)

    def replica_of(self, rank: int) -> int:
        return (rank - self.first_rank) // self.nodes

    def replica_ranks(self, replica: int) -> range:
        first = self.first_rank + replica * self.nodes
        return range(first, first + self.nodes)


class Rule(Struct, frozen=True):
    """An action for the failures that meet all conditions; an empty condition is met by any failure
    (JobSet: failurePolicy.rules)."""

    name: str
    action: Action
    groups: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    reasons: tuple[Reason, ...] = ()
    messages: tuple[str, ...] = ()
    """Regular expressions."""
    text: str | None = None
    """The text that `messages` search, with placeholders; None = the description of the failure."""
    counted: bool = True
    """Its restarts count towards the budgets of the run and the group."""
    max_restarts: int | None = None
    """Budget of the rule itself."""
    before_retries: bool = False
    """It is tried before the group's retries are used (Kubernetes: podFailurePolicy)."""


class Backoff(Struct, frozen=True):
    """Delays of restarts; see `spec.policies.Backoff`."""

    initial: float = 0.0
    factor: float = 2.0
    longest: float = 300.0
    jitter: float = 0.0
    reset_after: float = 600.0
    seed: int = 0
    """Seed of the jitter."""


class Success(Struct, frozen=True):
    """When the run has succeeded."""

    groups: tuple[int, ...]
    """Indices in `Policy.groups`."""
    any_replica: bool = False
    """One succeeded replica of any of the groups is enough."""
    wait: bool = False
    """Nodes that still run then may finish."""


class Checkpoint(Struct, frozen=True):
    """How nodes are signaled to save before they are stopped."""

    signal: int
    grace: float
    """Seconds until SIGTERM follows."""


class Policy(Struct, frozen=True, dict=True):
    """The policy of a run."""

    groups: tuple[GroupPolicy, ...]
    success: Success
    max_runtime: float
    grace_period: float
    in_order: bool = False
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
        """Nodes desired at the start."""
        return sum(group.initial * group.nodes for group in self.groups)

    @property
    def initial_replicas(self) -> dict[str, int]:
        """Group -> replicas desired at the start."""
        return {group.name: group.initial for group in self.groups}

    def first_nodes(self) -> tuple[NodeStatus, ...]:
        """The nodes of a run that was just accepted."""
        pending, scaled_down = NodeStatus(), NodeStatus(NodeState.SCALED_DOWN)
        nodes: list[NodeStatus] = []
        for group in self.groups:
            desired = group.initial * group.nodes
            nodes += [pending] * desired + [scaled_down] * (group.size - desired)
        return tuple(nodes)

    def min_replicas(self, index: int) -> int:
        """The lowest number of replicas a group can be scaled to: 1 if the run waits for the
        success of the group, else 0."""
        counts = index in self.success.groups and self.groups[index].min_success > 0
        return int(counts)

    @cached_property
    def first_ranks(self) -> tuple[int, ...]:
        return tuple(group.first_rank for group in self.groups)

    @property
    def restarts(self) -> bool:
        """Whether the policy allows any restart after a failure."""
        return (
            self.max_restarts > 0
            or any(group.retries for group in self.groups)
            or any(rule.action is not Action.FAIL for rule in self.rules)
        )

    def group_index(self, rank: int) -> int:
        """The index of the group that a rank belongs to."""
        return bisect_right(self.first_ranks, rank) - 1

    def group_of(self, rank: int) -> GroupPolicy:
        return self.groups[self.group_index(rank)]
