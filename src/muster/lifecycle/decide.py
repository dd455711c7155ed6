"""The heart: `decide(policy, status, events, now)` is a pure function.

Events are facts and only ever change what is known of nodes; the rules then look at the whole
status and say what follows. Each rule lives in a file of its own and is written so that applying
it again changes nothing: that is what lets a controller die anywhere and another repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.lifecycle import deadline, failure, startup, stopping, success
from muster.lifecycle.effects import Effect
from muster.lifecycle.events import CancelRequested, Event, SupervisorLost
from muster.lifecycle.model import Policy, RunStatus
from muster.lifecycle.observe import observe
from muster.lifecycle.states import RunState


def decide(
    policy: Policy, status: RunStatus, events: Sequence[Event], now: float
) -> tuple[RunStatus, tuple[Effect, ...]]:
    """What the run's status becomes after `events` at `now` (epoch seconds), and what to do.

    A terminal status absorbs every event.
    """
    if status.state.terminal:
        return status, ()
    status = observe(policy, status, events, now)
    effects: list[Effect] = []
    for event in events:
        if isinstance(event, SupervisorLost):
            return stopping.lost(status, event.why, now), ()
        if isinstance(event, CancelRequested):
            status, more = stopping.begin(policy, status, RunState.CANCELED, event.why, now)
            effects += more
    for rule in (failure.apply, deadline.apply, success.apply, startup.apply, stopping.apply):
        status, more = rule(policy, status, now)
        effects += more
    return status, tuple(effects)


def wake_at(policy: Policy, status: RunStatus) -> float | None:
    """When the status must be looked at again although nothing happens; None = never."""
    if status.state.terminal:
        return None
    over = deadline.at(policy, status) if status.stopping is None else None
    return min((t for t in (over, stopping.next_kill(status)) if t is not None), default=None)
