"""Replicas: their states, how far an array is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from muster.describe.times import span
from muster.errors import Problem
from muster.lifecycle.states import ALIVE, UNSTARTED, NodeState

#: States of a replica. One whose program runs is RUNNING, ready or not.
STATES = ("PENDING", "QUEUED", "STARTING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED")
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_DONE = ENDED[:2]


def state_problems(states: Iterable[str]) -> list[Problem]:
    """The problem of states that no replica has."""
    if not (unknown := [state for state in states if state not in STATES]):
        return []
    text = f"unknown state {', '.join(repr(state.lower()) for state in unknown)}"
    return [Problem("state", text, f"use {', '.join(STATES).lower()}")]


def replica_state(states: Collection[str]) -> str:
    """The state of a replica from those of its nodes."""
    if NodeState.FAILED in states:
        return "FAILED"
    if not ALIVE.isdisjoint(states):
        if set(states) == {NodeState.QUEUED}:
            return "QUEUED"
        return "STARTING" if UNSTARTED.issuperset(states) else "RUNNING"
    for state in (NodeState.PENDING, NodeState.STOPPED, NodeState.SCALED_DOWN):
        if state in states:
            return str(state)
    return "SUCCEEDED"


def states_of_replicas(counted: Mapping[str, int]) -> dict[str, int]:
    """State -> number of replicas, without those that are scaled down. counted: as of
    `store.protocols.runs.Runs.replica_states`."""
    found: dict[str, int] = {}
    for states, number in counted.items():
        state = replica_state(states.split(","))
        if state != NodeState.SCALED_DOWN:
            found[state] = found.get(state, 0) + number
    return found


def progress(
    states: Mapping[str, int],
    total: int,
    per_second: float | None = None,
    *,
    at_rest: bool = False,
) -> str:
    """How far an array is: `412 of 10,000 done, 3 failed, 8 running, ~4 min left, 41/s`.

    states: state -> number of replicas that have started. per_second: replicas that end in a
    second; None if unknown. at_rest: whether the run has ended or is suspended, so that it also
    counts those that have not started.
    """
    done = sum(states.get(state, 0) for state in _DONE)
    running = sum(states.get(state, 0) for state in ("STARTING", "RUNNING"))
    parts = [f"{done:,} of {total:,} done"]
    pending = "interrupted" if at_rest else "waiting for a restart"
    counted = (
        ("failed", "FAILED"),
        ("stopped", "STOPPED"),
        (pending, "PENDING"),
        ("queued", "QUEUED"),
    )
    numbers = [*((word, states.get(state, 0)) for word, state in counted), ("running", running)]
    if at_rest:
        started = sum(states.get(state, 0) for state in STATES)
        numbers.append(("not started", total - started))
    parts += [f"{number:,} {word}" for word, number in numbers if number]
    if per_second and done < total:
        parts += [f"~{left((total - done) / per_second)} left", rate(per_second)]
    return ", ".join(parts)


def rate(per_second: float) -> str:
    """How many end in which time: 41/s, 2.5/s, 7/min, 12/h."""
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        number = per_second * factor
        if number >= 10:
            return f"{number:,.0f}/{unit}"
        if number >= 1:
            return f"{number:.1f}".removesuffix(".0") + f"/{unit}"
    return f"{per_second * 3600:.1g}/h"


def left(seconds: float) -> str:
    """A time that is only known roughly: 20 s, 4 min, 3h20m, 2d5h."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return span(seconds)
