"""The heart: `decide(policy, status, events, now)` is a pure function.

Events are facts and only ever change what is known; the rules then look at the whole status and
say what follows. Each rule lives in a file of its own and is written so that applying it again
changes nothing: that is what lets a controller die anywhere and another repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.lifecycle import (
    deadline,
    failure,
    observe,
    requests,
    startup,
    stopping,
    success,
)
from muster.lifecycle.effects import Effect, Entry
from muster.lifecycle.events import Event
from muster.lifecycle.policy import Policy
from muster.lifecycle.status import RunStatus
from muster.lifecycle.turn import Turn


class Decision(Struct, frozen=True):
    """status: what the run is now. entries: lines of its event log, to be recorded with it.
    effects: what to do once both are recorded."""

    status: RunStatus
    effects: tuple[Effect, ...] = ()
    entries: tuple[Entry, ...] = ()


def decide(policy: Policy, status: RunStatus, events: Sequence[Event], now: float) -> Decision:
    """What the run's status becomes after `events` at `now` (epoch seconds), and what to do.

    A terminal status absorbs every event. Failure comes before success: a replica that failed in
    the same moment in which the run would have succeeded counts (JobSet: pass, steps 7 and 8).
    """
    if status.state.terminal:
        return Decision(status)
    turn = Turn(policy, status, now)
    observe.apply(turn, events)
    requests.apply(turn, events)
    for rule in (failure, success, deadline, startup, stopping):
        rule.apply(turn)
    return Decision(*turn.finish())


def wake_at(status: RunStatus) -> float | None:
    """When the status must be looked at again although nothing happens; None = never."""
    return None if status.state.terminal else status.alarm
