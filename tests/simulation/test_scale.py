"""Runs of many nodes, over days, under the real controller."""

from __future__ import annotations

from typing import Any

from muster.lifecycle.policy import Policy, Strategy
from muster.lifecycle.states import RunState
from muster.simulation.scale import Conditions, Timeline, simulate_run
from support.life import policy

DAY = 86400.0
NODES = 1000


def training(**more: Any) -> Policy:
    return policy((NODES // 8, 8, None), max_restarts=1000, **more)


def world(**more: Any) -> Conditions:
    return Conditions(**{"mtbf": 365 * DAY, "start": 120.0, **more})


def up(timeline: Timeline, horizon: float) -> float:
    """The share of time in which all nodes were ready."""
    moments = [*timeline.moments]
    ends = [moment.at for moment in moments[1:]] + [horizon]
    whole = (end - m.at for m, end in zip(moments, ends, strict=True) if m.ready == NODES)
    return sum(whole) / horizon


def test_a_week_of_failures() -> None:
    timeline = simulate_run(training(), world(), 1, 7 * DAY)
    assert 10 < timeline.failures < 35, "19 are to be expected"
    assert timeline.final.restarts == timeline.final.attempt == timeline.failures
    assert timeline.final.state is RunState.IN_PROGRESS
    assert up(timeline, 7 * DAY) > 0.99
    assert timeline.steps < 200 * (1 + timeline.failures)


def test_what_stays_in_place_is_back_sooner() -> None:
    kept, new = (
        simulate_run(training(strategy=strategy), world(start=600.0, again=2.0), 2, 3 * DAY)
        for strategy in (Strategy.IN_PLACE, Strategy.BLOCKING_RECREATE)
    )
    assert up(kept, 3 * DAY) > up(new, 3 * DAY)


def test_work_is_done_at_last() -> None:
    timeline = simulate_run(training(), world(work=5 * DAY, checkpoint=3600.0), 3, 30 * DAY)
    assert timeline.final.state is RunState.SUCCEEDED
    assert timeline.failures
    assert 5 * DAY < timeline.moments[-1].at < 5.5 * DAY


def test_the_same_seed_is_the_same_run() -> None:
    runs = [simulate_run(training(), world(), 4, DAY) for _ in range(2)]
    assert runs[0] == runs[1]


def test_a_budget_ends_it() -> None:
    few = policy((NODES // 8, 8, None), max_restarts=2)
    timeline = simulate_run(few, world(), 5, 30 * DAY)
    assert timeline.final.state is RunState.FAILED
    assert timeline.final.restarts == 2
