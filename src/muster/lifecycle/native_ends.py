"""The end of the run as the engine's infrastructure has decided it.

JobSet: the conditions Completed and Failed of a JobSet that a cluster runs as it is. No rule of the
run's policy is applied to what has led to it: failures that are reported with the end restart
nothing, and the first cause of the run is chosen among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster.lifecycle import cause, stopping
from muster.lifecycle.events import Event, ResourcesLeft, RunEnded
from muster.lifecycle.failure_details import describe
from muster.lifecycle.states import RunState
from muster.lifecycle.transition import Transition


def apply(transition: Transition, events: Sequence[Event]) -> None:
    """Begin to end the run as its infrastructure has. A run that is ending already, such as one
    that is being canceled, keeps its own outcome; what its infrastructure keeps is added to it."""
    _add_left(transition, events)
    ended = next((event for event in events if isinstance(event, RunEnded)), None)
    if ended is None or transition.run.state.at_rest:
        return
    if ended.outcome is RunState.FAILED and transition.run.failures:
        first = cause.first(transition.run.failures)
        why = describe(first, transition.policy.group_of(first.rank))
        stopping.begin(transition, RunState.FAILED, why, note=ended.why)
    else:
        why = ended.why if ended.outcome is RunState.FAILED else ""
        stopping.begin(transition, ended.outcome, why)


def _add_left(transition: Transition, events: Sequence[Event]) -> None:
    """Add what is left of a run that is ending to its details."""
    for event in events:
        ending = transition.run.stopping
        if isinstance(event, ResourcesLeft) and ending is not None:
            if event.why in ending.details:  # an earlier session has said so
                continue
            note = f"{ending.note}\n{event.why}" if ending.note else event.why
            details = f"{ending.details}\n{event.why}" if ending.details else event.why
            transition.update(stopping=replace(ending, details=details, note=note))
            transition.log("left", why=event.why)
