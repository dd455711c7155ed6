"""The core of the lifecycle: `decide(policy, status, events, now)`, a pure function.

Events are facts: applying them only updates the status. The rules, one per module, then look at the
whole status and decide what follows. Every rule is idempotent: a controller may be killed at any
point, and its successor repeats the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.lifecycle import (
    deadlines,
    failure,
    native_ends,
    native_restarts,
    observe,
    queueing,
    requests,
    start_order,
    stopping,
    success,
)
from muster.lifecycle.effects import Effect, Entry
from muster.lifecycle.events import Event
from muster.lifecycle.policy import Policy
from muster.lifecycle.status import RunStatus
from muster.lifecycle.transition import Transition


class Decision(Struct, frozen=True):
    """The result of one evaluation of `decide`."""

    status: RunStatus
    """The new status."""
    effects: tuple[Effect, ...] = ()
    """Carried out once status and entries are recorded."""
    entries: tuple[Entry, ...] = ()
    """Entries for the event log, recorded together with the status."""
    metrics: Mapping[int, str] = {}
    """What the programs of nodes that ended left as their results, as JSON by rank. Recorded
    together with the status."""


def decide(
    policy: Policy,
    status: RunStatus,
    events: Sequence[Event],
    now: float,
    *,
    outcome_apart: bool = False,
) -> Decision:
    """The status of a run after `events` at `now` (epoch seconds), and the effects that follow.

    outcome_apart: whether the run takes its outcome in a step of its own, at once after the one in
    which its last node has ended: so that the end is recorded before anything follows from it.

    A terminal status does not change. Failure is decided before success: the failure of a replica
    counts if it is reported in the step in which the run would succeed (JobSet: pass, steps 7 and
    8).
    """
    if status.state.terminal:
        return Decision(status)
    transition = Transition(policy, status, now)
    observe.apply(transition, events)
    requests.apply(transition, events)
    native_ends.apply(transition, events)
    for rule in (native_restarts, failure, success, deadlines):
        rule.apply(transition)
    queueing.apply(transition, events)
    start_order.apply(transition)
    stopping.apply(transition, outcome_apart=outcome_apart)
    return Decision(*transition.finish(), transition.metrics)


def wake_at(status: RunStatus) -> float | None:
    """When `decide` has to be called again even if nothing happens; None = never."""
    return None if status.state.terminal else status.alarm
