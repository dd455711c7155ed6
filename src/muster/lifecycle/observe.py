"""Events of nodes into facts. No rule is applied here.

An event of an incarnation that is no more, or one told twice, changes nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from msgspec.structs import replace

from muster.lifecycle import cause
from muster.lifecycle.describe import reason_of
from muster.lifecycle.events import (
    DiskExceeded,
    Event,
    NodeEnded,
    NodeReady,
    NodeStarted,
    RunBegan,
)
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason
from muster.lifecycle.turn import Turn, failure_of

#: What a program ends with that was told to, by signal or by a shell's word for it.
_OURS = (signal.SIGTERM, signal.SIGKILL)
_OURS_AS_CODES = tuple(128 + number for number in _OURS)


def apply(turn: Turn, events: Sequence[Event]) -> None:
    """Write what the events tell into the status."""
    for event in events:
        match event:
            case RunBegan():
                _handed_over(turn)
            case NodeStarted():
                _up(turn, event, NodeState.RUNNING)
            case NodeReady():
                _up(turn, event, NodeState.READY)
            case DiskExceeded():
                node = turn.nodes[event.rank]
                if node.alive and node.incarnation == event.incarnation:
                    group = turn.policy.group_of(event.rank).name
                    sizes = {"used": event.used, "allowed": event.allowed}
                    turn.note("disk", rank=event.rank, group=group, **sizes)
            case NodeEnded():
                node = turn.nodes[event.rank]
                if node.alive and node.incarnation == event.incarnation:
                    end(turn, event)


def _handed_over(turn: Turn) -> None:
    """Whoever takes a run up hands nodes that were starting over once more: only now, for all that
    is known, do they have the time to get ready."""
    for rank, node in enumerate(turn.nodes):
        if node.state is NodeState.STARTING and not node.leaving and node.since != turn.now:
            turn.set(rank, replace(node, since=turn.now))


def _up(turn: Turn, event: NodeStarted | NodeReady, state: NodeState) -> None:
    node = turn.nodes[event.rank]
    known = node.state is NodeState.READY or node.state is state
    if not node.alive or node.incarnation != event.incarnation or known:
        return
    turn.set(event.rank, replace(node, state=state, started_at=node.started_at or turn.now))
    if turn.run.going_since is None:
        turn.update(going_since=turn.now)
    _group_up(turn, event.rank)
    if turn.run.attempt_at is None and node.again is None:
        turn.update(attempt_at=turn.now)
    if turn.run.state is RunState.ACCEPTED:
        turn.become(RunState.IN_PROGRESS, started_at=turn.run.started_at or turn.now)


def _group_up(turn: Turn, rank: int) -> None:
    """The clock of a group that may run only so long starts with the first of its nodes."""
    group, since = turn.policy.group_of(rank), turn.run.going_since
    if group.max_runtime is not None and since is not None and group.name not in turn.run.begun:
        turn.update(begun={**turn.run.begun, group.name: turn.run.ran + turn.now - since})


def end(turn: Turn, event: NodeEnded) -> None:
    """No process of a node that was alive is left."""
    rank, node = event.rank, turn.nodes[event.rank]
    told = failure_of(
        turn,
        rank,
        event.reason,
        event.message,
        exit_code=event.exit_code,
        signal=event.signal,
        raised_at=event.raised_at,
    )
    if node.parking:  # how it ends is nobody's concern any more
        lost = event.reason is Reason.OUTPUT_LOST
        turn.park(rank, node.again, event.message if lost else _ended_with(event))
        return
    if node.again is not None:
        fresh = NodeStatus(incarnation=node.again, not_before=node.not_before)
        turn.set(rank, fresh, _ended_with(event))
    else:
        turn.set(rank, _ended(turn, node, event), reason_of(event.message))
    if node.fault is not None or not _failed(node, event):
        return
    if not (turn.stopping or node.leaving):
        turn.fail(told)
    elif turn.run.failures or event.reason is Reason.OUTPUT_LOST:
        turn.remember(told)  # a consequence, or a cause that was told of late


def _failed(node: NodeStatus, event: NodeEnded) -> bool:
    """Whether it failed of its own, and not of being told to end."""
    if event.reason is not Reason.EXIT:
        return event.reason is not Reason.NODE_LOST or not node.leaving
    if event.exit_code == 0:
        return False
    ours = event.signal in _OURS or event.exit_code in _OURS_AS_CODES
    # one that had failed already, and was still coming down when it was told to end, says so
    return not (node.leaving and ours) or cause.raised(event.message)


def _ended(turn: Turn, node: NodeStatus, event: NodeEnded) -> NodeStatus:
    stopping = turn.run.stopping
    suspending = stopping is not None and stopping.outcome is RunState.SUSPENDED
    if event.reason is Reason.OUTPUT_LOST or node.fault is not None:
        state = NodeState.FAILED  # whoever told it to end, that was not part of it
    elif node.leaving and (suspending or event.exit_code != 0):
        state = NodeState.STOPPED  # its exit code tells of our signal, not of an end of its own
    elif event.exit_code == 0:
        state = NodeState.SUCCEEDED
    else:
        state = NodeState.FAILED
    return replace(
        node,
        state=state,
        exit_code=event.exit_code,
        signal=event.signal,
        finished_at=turn.now,
    )


def _ended_with(event: NodeEnded) -> str:
    return f"ended with exit code {event.exit_code}" if event.exit_code is not None else "ended"
