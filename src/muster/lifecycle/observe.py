"""Events into facts about nodes. No rule is applied here."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster.lifecycle.events import Event, NodeEnded, NodeReady, NodeStarted
from muster.lifecycle.model import Failure, NodeStatus, Policy, Reason, RunStatus
from muster.lifecycle.states import NodeState, RunState


def observe(policy: Policy, status: RunStatus, events: Sequence[Event], now: float) -> RunStatus:
    """The status with what `events` tell written into it. A node that ended stays ended."""
    nodes = list(status.nodes)
    failure = status.failure
    for event in events:
        if not isinstance(event, (NodeStarted, NodeReady, NodeEnded)):
            continue
        node = nodes[event.rank]
        if node.state.ended:
            continue  # an engine may report the same end twice
        if isinstance(event, NodeEnded):
            nodes[event.rank] = _ended(node, event, now)
            if failure is None and nodes[event.rank].state is NodeState.FAILED:
                failure = _failure(policy, event, now)
        else:
            up = NodeState.READY if isinstance(event, NodeReady) else NodeState.RUNNING
            nodes[event.rank] = replace(node, state=up, started_at=node.started_at or now)
    status = replace(status, nodes=tuple(nodes), failure=failure)
    if status.state is RunState.ACCEPTED and any(node.started_at for node in nodes):
        status = replace(status, state=RunState.IN_PROGRESS, started_at=now, details="")
    return status


def _ended(node: NodeStatus, event: NodeEnded, now: float) -> NodeStatus:
    if event.reason is Reason.OUTPUT_LOST:
        state = NodeState.FAILED  # whoever told it to end, that was not part of it
    elif event.exit_code == 0:
        state = NodeState.SUCCEEDED
    elif node.kill_at is not None:
        state = NodeState.STOPPED  # its exit code tells of our signal, not of a fault of its own
    else:
        state = NodeState.FAILED
    return replace(
        node, state=state, exit_code=event.exit_code, signal=event.signal, finished_at=now
    )


def _failure(policy: Policy, event: NodeEnded, now: float) -> Failure:
    return Failure(
        rank=event.rank,
        group=policy.group_of(event.rank).name,
        reason=event.reason,
        exit_code=event.exit_code,
        signal=event.signal,
        message=event.message,
        at=now,
    )
