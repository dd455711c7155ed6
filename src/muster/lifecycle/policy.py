"""The policy of a run: what the lifecycle rules need to know of its spec. Times in seconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property, lru_cache

from msgspec import Struct, field

from muster.lifecycle.blocks import BlockList
from muster.lifecycle.ranks import parse_ranges
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeStatus, Reason


class Action(StrEnum):
    """What to do about a failure."""

    FAIL = "fail"
    FAIL_REPLICA = "fail_replica"  # without retries (Kubernetes: FailIndex)
    RESTART_RUN = "restart_run"
    RESTART_GROUP = "restart_group"
    RESTART_REPLICA = "restart_replica"
    RESTART_NODE = "restart_node"


class GroupFailure(StrEnum):
    """Why a group has failed, though the failure of one replica alone was tolerated: the name of
    the setting that was violated."""

    MAX_FAILED = "max_failed"  # more replicas failed (Kubernetes: MaxFailedIndexesExceeded)
    TOTAL_RETRIES = "total_retries"  # none was left (Kubernetes: BackoffLimitExceeded)
    MIN_SUCCESS = "min_success"  # too few can succeed, or have (Kubernetes: FailedIndexes)


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


class EarlySuccess(Struct, frozen=True):
    """Replicas whose success is that of their group, so that its others are stopped (Kubernetes: a
    Job's successPolicy.rules)."""

    replicas: str | None = None
    """The replicas that count, such as `0-3,7`; None = all."""
    count: int | None = None
    """How many of them must succeed; None = all."""

    def among(self, replicas: Sequence[int]) -> int:
        """How many of these replicas count."""
        if self.replicas is None:
            return len(replicas)
        return sum(map(_ranges(self.replicas).has, replicas))

    def is_met(self, succeeded: int) -> bool:
        """Whether that many of the replicas that count are enough."""
        if self.count is not None:
            return succeeded >= self.count
        return self.replicas is not None and succeeded >= _ranges(self.replicas).size


class _Ranges:
    """Disjoint ranges in ascending order, in which numbers are looked up."""

    def __init__(self, text: str) -> None:
        self._parts = parse_ranges(text)
        self._starts = [part.start for part in self._parts]
        self.size = sum(map(len, self._parts))

    def has(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number in self._parts[index]


@lru_cache(maxsize=32)
def _ranges(text: str) -> _Ranges:
    return _Ranges(text)


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
    parallelism: int | None = None
    """Replicas that run at once, started in the order of their numbers; None = all (Kubernetes:
    completions and parallelism). A group that has it is an array: its replicas are independent."""
    only: str | None = None
    """The replicas that run, such as `3,17,40-42`; None = all. The others are SCALED_DOWN."""
    max_failed: int | None = None
    """Replicas that may fail while the others continue (Kubernetes: maxFailedIndexes); None = as
    many as need not succeed."""
    total_retries: int | None = None
    """Failures allowed in all replicas together: each uses one of its replica's `retries` or, if
    none is left, fails the replica (Kubernetes: backoffLimit of a Job). None = only `retries` and
    `max_failed` apply."""
    early_success: tuple[EarlySuccess, ...] = ()
    """Each of them alone is enough."""

    @property
    def size(self) -> int:
        return self.replicas * self.nodes

    @property
    def initial(self) -> int:
        """Replicas desired at the start."""
        if self.only is not None:
            return sum(map(len, self.numbers))
        return self.replicas if self.desired is None else self.desired

    @property
    def retries_replicas(self) -> bool:
        """Whether a retry restarts the whole replica, whose nodes run one program together, and not
        the failed node alone."""
        return self.is_array and self.nodes > 1

    @property
    def numbers(self) -> list[range]:
        """The replicas that run, or could be scaled up."""
        return [range(self.replicas)] if self.only is None else parse_ranges(self.only)

    @property
    def is_array(self) -> bool:
        """Whether its replicas are independent, and run a few at a time."""
        return self.parallelism is not None

    @property
    def at_once(self) -> int:
        """Replicas that run at once, of those desired at the start."""
        return self.initial if self.parallelism is None else min(self.parallelism, self.initial)

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
    group_failed: tuple[GroupFailure, ...] = ()
    """It applies only when the group has failed in one of these ways, not when a single node has
    (JobSet: rules match failed Jobs); empty = when a node has failed."""


#: Actions that restart nothing.
_ENDS = (Action.FAIL, Action.FAIL_REPLICA)


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
    """One succeeded replica of any of the groups is enough; of an array, its success."""
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

    @cached_property
    def size_at_once(self) -> int:
        """Nodes that run at once, of those desired at the start."""
        return sum(group.at_once * group.nodes for group in self.groups)

    @property
    def replicas_at_once(self) -> dict[str, int]:
        """Group -> replicas that run at once, of those desired at the start."""
        return {group.name: group.at_once for group in self.groups}

    def first_nodes(self) -> Sequence[NodeStatus]:
        """The nodes of a run that was just accepted."""
        pending, scaled_down = NodeStatus(), NodeStatus(NodeState.SCALED_DOWN)
        nodes: list[NodeStatus] = []
        for group in self.groups:
            if group.only is not None:
                first = len(nodes)
                nodes += [scaled_down] * group.size
                for part in parse_ranges(group.only):
                    start, stop = (
                        first + number * group.nodes for number in (part.start, part.stop)
                    )
                    nodes[start:stop] = [pending] * (stop - start)
                continue
            desired = group.initial * group.nodes
            nodes += [pending] * desired + [scaled_down] * (group.size - desired)
        return BlockList(nodes)

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
            or any(rule.action not in _ENDS for rule in self.rules)
        )

    def group_index(self, rank: int) -> int:
        """The index of the group that a rank belongs to."""
        return bisect_right(self.first_ranks, rank) - 1

    def by_group(self, ranks: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
        """The indices of the groups that these ranks belong to, and the ranks of each. ranks: in
        ascending order."""
        while ranks:
            index = self.group_index(ranks[0])
            end = bisect_left(ranks, self.groups[index].ranks.stop)
            yield index, ranks[:end]
            ranks = ranks[end:]

    def group_of(self, rank: int) -> GroupPolicy:
        return self.groups[self.group_index(rank)]
