"""Apply the events of nodes to the status. No rule is applied here.

An event of an old incarnation, or one that is reported twice, changes nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from muster.lifecycle import cause, contact, native_restarts, node_queue, start_order
from muster.lifecycle.events import (
    ControllerStarted,
    DiskExceeded,
    Event,
    NodeEnded,
    NodeLocated,
    NodeQueued,
    NodeReachable,
    NodeReady,
    NodeScheduled,
    NodeStarted,
    NodeUnreachable,
    RunRestarted,
)
from muster.lifecycle.failure_details import reason_of
from muster.lifecycle.states import ALIVE, NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason, ended_node
from muster.lifecycle.transition import Transition, failure_of

#: Signals that Muster stops programs with, and the exit codes by which shells report them.
_OURS = (signal.SIGTERM, signal.SIGKILL)
_OURS_AS_CODES = tuple(128 + number for number in _OURS)


def apply(transition: Transition, events: Sequence[Event]) -> None:
    """Apply events of nodes, in order, and that all of them were restarted."""
    by_kind: Iterable[tuple[type, Iterator[Any]]] = groupby(events, type)
    contacts = contact.no_changes()
    for kind, alike in by_kind:  # thousands of nodes may start together
        if kind is ControllerStarted:
            if any(event.attaches for event in alike):
                contact.attach(transition)
            else:
                _restart_startup_timeouts(transition)
        elif kind is NodeStarted:
            _set_up(transition, _current(transition, alike), NodeState.RUNNING)
        elif kind is NodeReady:
            _set_up(transition, _current(transition, alike), NodeState.READY)
        elif kind is NodeEnded:
            end(transition, alike)
        elif kind is RunRestarted:
            native_restarts.adopt(transition, alike)
        elif kind in _OF_SURROUNDINGS:
            _apply_surroundings(transition, kind, _current(transition, alike), contacts)
    contact.log(transition, contacts)


#: Events of what is around a node.
_OF_SURROUNDINGS = (
    *(NodeQueued, NodeScheduled, NodeLocated),
    *(NodeUnreachable, NodeReachable, DiskExceeded),
)


def _apply_surroundings(
    transition: Transition, kind: type, events: list[Any], contacts: contact.Changes
) -> None:
    """Apply events of one kind of `_OF_SURROUNDINGS`, of incarnations that are alive."""
    if kind is NodeQueued:
        node_queue.wait(transition, events)
    elif kind is NodeScheduled:
        node_queue.schedule(transition, events)
    elif kind is NodeLocated:
        _locate(transition, events)
    elif kind is NodeUnreachable:
        contact.lose(transition, events, contacts)
    elif kind is NodeReachable:
        contact.find(transition, {event.rank for event in events}, contacts)
    else:
        for event in events:
            group = transition.policy.group_of(event.rank).name
            sizes = {"used": event.used, "allowed": event.allowed}
            transition.log("disk", rank=event.rank, group=group, **sizes)


def _locate(transition: Transition, events: Iterable[NodeLocated]) -> None:
    """Record where nodes are. events: of incarnations that are alive."""
    for event in events:
        node = transition.nodes[event.rank]
        place = {"host": event.host, "address": event.address, "host_id": event.host_id}
        transition.set_node(event.rank, replace(node, **place))


def _current(transition: Transition, events: Iterable[Any]) -> list[Any]:
    """The events of incarnations that are alive."""
    given = list(events)
    nodes = transition.nodes.at([event.rank for event in given])
    return [
        event
        for event, node in zip(given, nodes, strict=True)
        if node.incarnation == event.incarnation and node.state in ALIVE
    ]


def _restart_startup_timeouts(transition: Transition) -> None:
    """A new controller hands starting nodes to the engine again: restart their startup timeout."""
    for rank in transition.alive_ranks(transition.all_ranks):
        node = transition.nodes[rank]
        if node.state is NodeState.STARTING and not node.leaving and node.since != transition.now:
            transition.set_node(rank, replace(node, since=transition.now, away=0.0))


def _set_up(
    transition: Transition, events: Iterable[NodeStarted | NodeReady], state: NodeState
) -> None:
    """Apply that nodes are up. events: of incarnations that are alive."""
    for node, ranks in transition.alike({event.rank for event in events}):
        if node.state is not NodeState.READY and node.state is not state:
            started_at = node.started_at or transition.now
            up = replace(node, state=state, started_at=started_at)
            if node.state is NodeState.QUEUED:
                up = node_queue.scheduled(transition, ranks, up)
            transition.set_alike(ranks, node, up)
            if node.state is NodeState.QUEUED:
                start_order.schedule_deadlines(transition, ranks)
            _start_clocks(transition, node, ranks)


def _start_clocks(transition: Transition, node: NodeStatus, ranks: Sequence[int]) -> None:
    """Start the clocks that count from the first node that runs. node: the status of these nodes
    before."""
    if transition.run.running_since is None:
        transition.update(running_since=transition.now)
    for index, _ in transition.policy.by_group(ranks):
        if transition.policy.groups[index].max_runtime is not None:
            _start_group_clock(transition, transition.policy.groups[index].name)
    if transition.run.attempt_started_at is None and node.next_incarnation is None:
        transition.update(attempt_started_at=transition.now)
    if transition.run.state is RunState.ACCEPTED:
        transition.set_state(
            RunState.IN_PROGRESS, started_at=transition.run.started_at or transition.now
        )


def _start_group_clock(transition: Transition, group: str) -> None:
    """Start the clock of a group with a `max_runtime`, unless it runs."""
    run = transition.run
    if run.running_since is not None and group not in run.groups_started:
        since_start = run.ran_before + transition.now - run.running_since
        transition.update(groups_started={**run.groups_started, group: since_start})


def end(transition: Transition, events: Iterable[NodeEnded]) -> None:
    """Apply the ends of nodes, in order. Of thousands that are stopped, most end alike."""
    for event, alike in groupby(events, lambda event: replace(event, rank=0)):
        ranks = list(dict.fromkeys(each.rank for each in _current(transition, alike)))
        failed: dict[int, NodeStatus] = {}
        for node, same in transition.alike(ranks):
            _end_nodes(transition, same, node, event)
            if _has_failed(node, event):
                failed |= dict.fromkeys(same, node)
        for rank in ranks if failed else ():
            if rank in failed:
                _fail(transition, rank, failed[rank], event)


def _end_nodes(
    transition: Transition, ranks: list[int], node: NodeStatus, event: NodeEnded
) -> None:
    """Set the status of nodes that have ended. node: their status before. event: how each of them
    has ended, whatever its rank."""
    if node.scaling_down:
        lost = event.reason is Reason.OUTPUT_LOST
        why = event.message if lost else _end_text(event)
        for rank in ranks:
            transition.scale_down(rank, node.next_incarnation, why)
    elif node.next_incarnation is not None:
        fresh = NodeStatus(
            incarnation=node.next_incarnation, not_before=node.not_before, retries=node.retries
        )
        transition.set_alike(ranks, node, fresh, _end_text(event))
    else:
        ended = _ended_node(transition, node, event)
        transition.set_alike(ranks, node, ended, reason_of(event.message))
        if event.metrics:
            transition.metrics.update(dict.fromkeys(ranks, event.metrics))


def _fail(transition: Transition, rank: int, node: NodeStatus, event: NodeEnded) -> None:
    """Handle the failure of a node that has ended. node: its status before."""
    failure = failure_of(
        transition,
        rank,
        event.reason,
        event.message,
        incarnation=node.incarnation,
        exit_code=event.exit_code,
        signal=event.signal,
        raised_at=event.raised_at,
        final=event.final,
    )
    if not (transition.stopping or node.leaving):
        transition.add_failure(failure)
    elif transition.run.failures or event.reason is Reason.OUTPUT_LOST:
        transition.record_failure(failure)  # a consequence, or a cause that was reported late


def _has_failed(node: NodeStatus, event: NodeEnded) -> bool:
    """Whether the end of a node is a failure that was not known before. A node that is scaled down
    cannot fail."""
    return not node.scaling_down and node.fault is None and failed_by_itself(node, event)


def failed_by_itself(node: NodeStatus, event: NodeEnded) -> bool:
    """Whether a node failed by itself, and not because it was stopped. node: its status before."""
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
    failed = state is NodeState.FAILED and event.reason is not Reason.EXIT
    return replace(
        ended_node(node, state, transition.now),
        fault=node.fault or (event.reason if failed else None),
        exit_code=event.exit_code,
        signal=event.signal,
    )


def _end_text(event: NodeEnded) -> str:
    return f"ended with exit code {event.exit_code}" if event.exit_code is not None else "ended"
