"""Apply the events of nodes to the status. No rule is applied here.

An event of an old incarnation, or one that is reported twice, changes nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from msgspec.structs import replace

from muster.lifecycle import cause
from muster.lifecycle.events import (
    ControllerStarted,
    DiskExceeded,
    Event,
    NodeEnded,
    NodeReady,
    NodeStarted,
)
from muster.lifecycle.failure_details import reason_of
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason
from muster.lifecycle.transition import Transition, failure_of

#: Signals that Muster stops programs with, and the exit codes by which shells report them.
_OURS = (signal.SIGTERM, signal.SIGKILL)
_OURS_AS_CODES = tuple(128 + number for number in _OURS)


def apply(transition: Transition, events: Sequence[Event]) -> None:
    """Apply events of nodes, in order."""
    for event in events:
        match event:
            case ControllerStarted():
                _restart_startup_timeouts(transition)
            case NodeStarted():
                _set_up(transition, event, NodeState.RUNNING)
            case NodeReady():
                _set_up(transition, event, NodeState.READY)
            case DiskExceeded():
                node = transition.nodes[event.rank]
                if node.alive and node.incarnation == event.incarnation:
                    group = transition.policy.group_of(event.rank).name
                    sizes = {"used": event.used, "allowed": event.allowed}
                    transition.log("disk", rank=event.rank, group=group, **sizes)
            case NodeEnded():
                node = transition.nodes[event.rank]
                if node.alive and node.incarnation == event.incarnation:
                    end(transition, event)


def _restart_startup_timeouts(transition: Transition) -> None:
    """A new controller hands starting nodes to the engine again: restart their startup timeout."""
    for rank, node in enumerate(transition.nodes):
        if node.state is NodeState.STARTING and not node.leaving and node.since != transition.now:
            transition.set_node(rank, replace(node, since=transition.now))


def _set_up(transition: Transition, event: NodeStarted | NodeReady, state: NodeState) -> None:
    node = transition.nodes[event.rank]
    known = node.state is NodeState.READY or node.state is state
    if not node.alive or node.incarnation != event.incarnation or known:
        return
    transition.set_node(
        event.rank, replace(node, state=state, started_at=node.started_at or transition.now)
    )
    if transition.run.running_since is None:
        transition.update(running_since=transition.now)
    _start_group_clock(transition, event.rank)
    if transition.run.attempt_started_at is None and node.next_incarnation is None:
        transition.update(attempt_started_at=transition.now)
    if transition.run.state is RunState.ACCEPTED:
        transition.set_state(
            RunState.IN_PROGRESS, started_at=transition.run.started_at or transition.now
        )


def _start_group_clock(transition: Transition, rank: int) -> None:
    """Start the clock of a group with a `max_runtime` when its first node runs."""
    group, since = transition.policy.group_of(rank), transition.run.running_since
    if (
        group.max_runtime is not None
        and since is not None
        and group.name not in transition.run.groups_started
    ):
        transition.update(
            groups_started={
                **transition.run.groups_started,
                group.name: transition.run.ran_before + transition.now - since,
            }
        )


def end(transition: Transition, event: NodeEnded) -> None:
    """Apply the end of a node that was alive."""
    rank, node = event.rank, transition.nodes[event.rank]
    failure = failure_of(
        transition,
        rank,
        event.reason,
        event.message,
        exit_code=event.exit_code,
        signal=event.signal,
        raised_at=event.raised_at,
    )
    if node.scaling_down:  # a node that is scaled down cannot fail
        lost = event.reason is Reason.OUTPUT_LOST
        transition.scale_down(
            rank, node.next_incarnation, event.message if lost else _end_text(event)
        )
        return
    if node.next_incarnation is not None:
        fresh = NodeStatus(incarnation=node.next_incarnation, not_before=node.not_before)
        transition.set_node(rank, fresh, _end_text(event))
    else:
        transition.set_node(rank, _ended_node(transition, node, event), reason_of(event.message))
    if node.fault is not None or not _failed_by_itself(node, event):
        return
    if not (transition.stopping or node.leaving):
        transition.add_failure(failure)
    elif transition.run.failures or event.reason is Reason.OUTPUT_LOST:
        transition.record_failure(failure)  # a consequence, or a cause that was reported late


def _failed_by_itself(node: NodeStatus, event: NodeEnded) -> bool:
    """Whether a node failed by itself, and not because it was stopped."""
    if event.reason is not Reason.EXIT:
        return event.reason is not Reason.NODE_LOST or not node.leaving
    if event.exit_code == 0:
        return False
    if not node.leaving:
        return True
    if cause.is_end_by_signal(event.message):  # such as torchrun, which exits with 1
        return False
    ours = event.signal in _OURS or event.exit_code in _OURS_AS_CODES
    # a traceback shows that it had failed before it was stopped
    return not ours or cause.has_traceback(event.message)


def _ended_node(transition: Transition, node: NodeStatus, event: NodeEnded) -> NodeStatus:
    stopping = transition.run.stopping
    suspending = stopping is not None and stopping.outcome is RunState.SUSPENDED
    if event.reason is Reason.OUTPUT_LOST or node.fault is not None:
        state = NodeState.FAILED  # whether or not it was stopped
    elif node.leaving and (suspending or event.exit_code != 0):
        state = NodeState.STOPPED  # its exit code comes from our signal
    elif event.exit_code == 0:
        state = NodeState.SUCCEEDED
    else:
        state = NodeState.FAILED
    return replace(
        node,
        state=state,
        exit_code=event.exit_code,
        signal=event.signal,
        finished_at=transition.now,
    )


def _end_text(event: NodeEnded) -> str:
    return f"ended with exit code {event.exit_code}" if event.exit_code is not None else "ended"
