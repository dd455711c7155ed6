"""Ending: SIGTERM, a grace period, SIGKILL; the outcome is taken when every node has ended.

The first reason to end wins: a cancel that arrives while a run ends for another reason leaves
that reason in place, since what happened, happened.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from muster.lifecycle.describe import describe
from muster.lifecycle.effects import Effect, KillNodes, StopNodes
from muster.lifecycle.model import NodeStatus, Policy, Reason, RunStatus, Stopping
from muster.lifecycle.states import NodeState, RunState

Outcome = tuple[RunStatus, tuple[Effect, ...]]


def begin(
    policy: Policy, status: RunStatus, outcome: RunState, details: str, now: float
) -> Outcome:
    """Start ending the run towards `outcome`; nothing if it is ending already."""
    if status.stopping is not None:
        return status, ()
    status = replace(status, stopping=Stopping(outcome, details))
    if outcome is RunState.CANCELED:
        status = replace(status, state=RunState.CANCELING, details=details)
    elif outcome is RunState.FAILED and status.failure is not None:
        status = replace(status, exit_code=status.failure.exit_code)
    return stop_nodes(policy, status, range(policy.size), now)


def stop_nodes(policy: Policy, status: RunStatus, ranks: Iterable[int], now: float) -> Outcome:
    """Tell the living among `ranks` to end; those never started simply never are."""
    nodes = list(status.nodes)
    told: list[int] = []
    for rank in ranks:
        node = nodes[rank]
        if node.state is NodeState.PENDING:
            nodes[rank] = replace(node, state=NodeState.STOPPED)
        elif not node.state.ended and node.kill_at is None:
            nodes[rank] = replace(node, kill_at=now + policy.grace_period)
            told.append(rank)
    status = replace(status, nodes=tuple(nodes))
    return status, ((StopNodes(tuple(told)),) if told else ())


def apply(policy: Policy, status: RunStatus, now: float) -> Outcome:
    """Kill what outlived its grace period; take the outcome when nothing is left."""
    del policy
    nodes = list(status.nodes)
    overdue = [rank for rank, node in enumerate(nodes) if _overdue(node, now)]
    for rank in overdue:
        nodes[rank] = replace(nodes[rank], killed=True)
    status = replace(status, nodes=tuple(nodes)) if overdue else status
    ending = status.stopping
    if ending is not None and all(node.state.ended for node in nodes):
        return _finish(status, ending, now), ()
    return status, ((KillNodes(tuple(overdue)),) if overdue else ())


def _finish(status: RunStatus, ending: Stopping, now: float) -> RunStatus:
    lost = status.failure
    if ending.outcome is RunState.SUCCEEDED:
        if lost is not None and lost.reason is Reason.OUTPUT_LOST:
            ending = Stopping(RunState.FAILED, describe(lost))
            status = replace(status, exit_code=lost.exit_code)
        else:
            status = replace(status, exit_code=0)
    return replace(status, state=ending.outcome, details=ending.details, finished_at=now)


def next_kill(status: RunStatus) -> float | None:
    """When the next grace period is over; None when nothing was told to end."""
    return min(
        (
            node.kill_at
            for node in status.nodes
            if node.kill_at is not None and not node.killed and not node.state.ended
        ),
        default=None,
    )


def _overdue(node: NodeStatus, now: float) -> bool:
    return (
        node.kill_at is not None
        and node.kill_at <= now
        and not node.killed
        and not node.state.ended
    )


def lost(status: RunStatus, why: str, now: float) -> RunStatus:
    """The end of a run whose supervisor is gone: its nodes went with it."""
    nodes = tuple(node if node.state.ended else _gone(node, now) for node in status.nodes)
    ending = status.stopping
    if ending is not None and ending.outcome is not RunState.SUCCEEDED:
        outcome, details = ending.outcome, ending.details  # a cancel is final, a cause is a cause
    else:
        outcome, details = RunState.FAILED, why
    return replace(status, nodes=nodes, state=outcome, details=details, finished_at=now)


def _gone(node: NodeStatus, now: float) -> NodeStatus:
    finished = now if node.started_at is not None else None
    return replace(node, state=NodeState.STOPPED, finished_at=finished)
