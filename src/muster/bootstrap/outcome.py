"""How a cluster ends, by the rules of the lifecycle. Pure.

`decide` gets the exits of nodes that are known so far, and decides whether the run has succeeded or
failed, and from which cause. A cluster of single job runs has no restarts: the service starts each
node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.bootstrap.exit_reports import MemberExit
from muster.lifecycle import cause
from muster.lifecycle.decide import decide
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.policy import Policy
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason, RunStatus
from muster.plan.arrange import Arranged
from muster.plan.policy import build_policy


class Outcome(Struct, frozen=True):
    """The end of a run."""

    succeeded: bool
    #: The rank of the node whose failure caused the others; None if the run succeeded.
    cause: int | None = None


def policy_of(arranged: Arranged) -> Policy:
    """The policy of the cluster. All nodes of a replaceable group may fail, but for the main node:
    here it is the only one that can end the cluster."""
    policy = build_policy(arranged, seed=0, in_place=False)
    main, *others = policy.groups
    groups = (
        replace(group, min_success=0) if arranged.role(group.name).replaceable else group
        for group in others
    )
    return replace(policy, groups=(main, *groups), max_restarts=0, rules=())


def required_ranks(policy: Policy) -> list[int]:
    """The ranks of required nodes: the cluster fails if one of them fails."""
    return [rank for group in policy.groups if group.min_success for rank in group.ranks]


def deciding_ranks(policy: Policy) -> list[int]:
    """The ranks of nodes whose success the run needs."""
    return [rank for index in policy.success.groups for rank in policy.groups[index].ranks]


def outcome_of(policy: Policy, exits: Iterable[MemberExit]) -> Outcome | None:
    """The outcome of a run whose nodes are all running except those in `exits`; None if the run
    continues."""
    events = [_event(found) for found in exits]
    running = RunStatus((NodeStatus(NodeState.READY),) * policy.size, RunState.IN_PROGRESS)
    status = decide(policy, running, events, 0.0).status
    if status.stopping is None and not status.state.terminal:
        return None
    ending = status.state if status.stopping is None else status.stopping.outcome
    first = status.cause
    return Outcome(ending is RunState.SUCCEEDED, None if first is None else first.rank)


def first_cause(failures: Sequence[MemberExit]) -> MemberExit:
    """The failure that most likely caused the others; see `lifecycle.cause`."""
    return min(failures, key=lambda found: cause.order(_failure(found)))


def _event(found: MemberExit) -> NodeEnded:
    failure = _failure(found)
    return NodeEnded(
        failure.rank,
        failure.exit_code,
        failure.signal,
        failure.reason,
        failure.message,
        raised_at=failure.raised_at,
    )


def _failure(found: MemberExit) -> Failure:
    reason = Reason.NODE_LOST if found.lost else Reason.EXIT
    # a lost node is noticed last, and its failure is the oldest
    at = 0.0 if found.lost else found.at
    return Failure(
        found.rank, "", reason, found.exit_code, found.signal, found.why, at=at, raised_at=at
    )
