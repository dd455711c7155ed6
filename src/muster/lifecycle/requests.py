"""Requests to cancel, suspend, resume and scale a run, and the loss of its supervisor.

`suspension` has the rules of suspending and resuming, `scaling` those of scaling.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster.lifecycle import observe, scaling, stopping, suspension
from muster.lifecycle.events import (
    CancelRequested,
    Event,
    NodeEnded,
    NodeEvent,
    ResumeRequested,
    RunBroken,
    ScaleRequested,
    SupervisorLost,
    SuspendRequested,
)
from muster.lifecycle.states import UNSTARTED, NodeState, RunState
from muster.lifecycle.status import Reason, ended_node, unstarted
from muster.lifecycle.transition import Transition


def apply(transition: Transition, events: Sequence[Event]) -> None:
    """Apply requests in order. Of several scale requests for one group only the last is applied: a
    replica that it keeps must not be stopped because of an earlier one."""
    others = [event for event in events if not isinstance(event, NodeEvent)]  # nearly all are
    sizes = {event.group: event for event in others if isinstance(event, ScaleRequested)}
    for event in others:
        match event:
            case CancelRequested():
                stopping.begin(transition, RunState.CANCELED, event.why)
            case SuspendRequested():
                if transition.run.state is not RunState.SUSPENDED:
                    stopping.begin(transition, RunState.SUSPENDED, event.why)
            case ResumeRequested():
                suspension.resume(transition, event.why)
            case ScaleRequested() if event.group in sizes:
                scaling.apply(transition, sizes.pop(event.group))
            case SupervisorLost():
                _lose(transition, event)
            case RunBroken():
                _break(transition, event.why)


def _lose(transition: Transition, event: SupervisorLost) -> None:
    """Every node that had started is lost. A node whose program never ran is pending again."""
    why = transition.run.handed_over or event.why
    transition.update(handed_over="")
    transition.log("supervisor_lost", why=why)
    lost: list[NodeEnded] = []
    for rank in transition.alive_ranks(transition.all_ranks):
        node = transition.nodes[rank]
        untouched = node.state in UNSTARTED and not node.leaving
        if untouched and event.started is not None and rank not in event.started:
            # it has no process that could be stopped
            transition.set_node(rank, unstarted(node))
            continue
        lost.append(NodeEnded(rank, None, 0, Reason.NODE_LOST, why, node.incarnation))
    observe.end(transition, lost)


def _break(transition: Transition, why: str) -> None:
    """Fail the run under any policy; none of its processes is left."""
    for rank, node in enumerate(transition.nodes):
        if node.scaling_down:
            transition.scale_down(rank, node.next_incarnation, why)
        elif not node.state.ended and node.state is not NodeState.SCALED_DOWN:
            finished = transition.now if node.started_at is not None else None
            stopped = ended_node(node, NodeState.STOPPED, finished)
            stopped = replace(stopped, next_incarnation=None)
            transition.set_node(rank, stopped, why)
    ending = transition.run.stopping
    final = ending is not None and ending.outcome in (RunState.FAILED, RunState.CANCELED)
    if not final:  # a failure or cancel that was decided before stays
        transition.update(stopping=None, broken=not transition.run.failures)
        stopping.begin(transition, RunState.FAILED, why)
