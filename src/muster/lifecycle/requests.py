"""What people ask of a run: cancel, suspend, resume, scale; and what is left when its supervisor is
lost.

What suspending and resuming do to a run is in `suspension`, what scaling does in `scaling`.
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
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from muster.lifecycle.turn import Turn


def apply(turn: Turn, events: Sequence[Event]) -> None:
    """Do what was asked, in the order it was asked. Of several sizes for one group only the last
    counts: a replica that it keeps must not be ended for the sake of an earlier one."""
    asked = [event for event in events if not isinstance(event, NodeEvent)]  # nearly all are
    sizes = {event.group: event for event in asked if isinstance(event, ScaleRequested)}
    for event in asked:
        match event:
            case CancelRequested():
                stopping.begin(turn, RunState.CANCELED, event.why)
            case SuspendRequested():
                if turn.run.state is not RunState.SUSPENDED:
                    stopping.begin(turn, RunState.SUSPENDED, event.why)
            case ResumeRequested():
                suspension.resume(turn, event.why)
            case ScaleRequested() if event.group in sizes:
                scaling.ask(turn, sizes.pop(event.group))
            case SupervisorLost():
                _lose(turn, event)
            case RunBroken():
                _break(turn, event.why)


def _lose(turn: Turn, event: SupervisorLost) -> None:
    """Every node that had begun went with it. One whose program never ran is still to start."""
    turn.note("supervisor_lost", why=event.why)
    for rank, node in enumerate(turn.nodes):
        if not node.alive:
            continue
        untouched = node.state is NodeState.STARTING and not node.leaving
        if untouched and event.begun is not None and rank not in event.begun:
            # nothing is left that could be told to end, should it come to that
            turn.set(rank, replace(node, state=NodeState.PENDING, since=None))
            continue
        observe.end(turn, NodeEnded(rank, None, reason=Reason.NODE_LOST, message=event.why))


def _break(turn: Turn, why: str) -> None:
    """The run cannot go on, whatever its policy says; nothing of it is left."""
    for rank, node in enumerate(turn.nodes):
        if node.parking:
            turn.park(rank, node.again, why)
        elif not node.state.ended and node.state is not NodeState.PARKED:
            finished = turn.now if node.started_at is not None else None
            gone = replace(node, state=NodeState.STOPPED, finished_at=finished, again=None)
            turn.set(rank, gone, why)
    ending = turn.run.stopping
    final = ending is not None and ending.outcome in (RunState.FAILED, RunState.CANCELED)
    if not final:  # a cancel is final, a cause is a cause
        turn.update(stopping=None)
        stopping.begin(turn, RunState.FAILED, why)
