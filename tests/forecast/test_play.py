"""Simulated runs against what can be worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.forecast.compare import Variant, as_it_begins, best_interval, forecast, variants
from muster.forecast.play import play
from muster.forecast.world import Use, World
from muster.lifecycle.policy import Action, Backoff, Policy, Strategy
from support.life import policy

HOUR = 3600.0
NEVER = 1e15
WORLD = World(mtbf=NEVER, horizon=24 * HOUR)
MANY = 1_000_000


def gang(nodes: int = 8, **more: object) -> Policy:
    return policy((1, nodes, None), **{"max_restarts": MANY, **more})


def test_without_failures_only_starting_and_checkpoints_cost() -> None:
    outcome = play(gang(), WORLD, 0)
    begin = WORLD.node_start + WORLD.load
    rounds = int((WORLD.horizon - begin) / (WORLD.checkpoint_every + WORLD.checkpoint_cost))
    assert outcome.uses[Use.STARTING] == pytest.approx(8 * begin)
    assert outcome.uses[Use.CHECKPOINTS] == pytest.approx(8 * rounds * WORLD.checkpoint_cost)
    assert (outcome.failures, outcome.restarts, outcome.state) == (0, 0, "IN_PROGRESS")
    assert outcome.ended_at is None


def test_a_program_that_is_done_ends_the_run() -> None:
    world = replace(WORLD, work=10 * HOUR)
    outcome = play(gang(), world, 0)
    assert outcome.state == "SUCCEEDED"
    assert outcome.uses[Use.USEFUL] == pytest.approx(8 * 10 * HOUR)
    assert outcome.ended_at == pytest.approx(world.node_start + world.load + 10 * HOUR + 10 * 30.0)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([(1, 6, None), (6, 1, None), (3, 2, None), (2, 3, 1)]),
    action=st.sampled_from([a for a in Action if a is not Action.FAIL]),
    strategy=st.sampled_from(list(Strategy)),
    hours=st.floats(1, 200),
    lost=st.floats(0, 1),
    work=st.sampled_from([None, 5 * HOUR]),
    seed=st.integers(0, 1000),
)
def test_every_second_of_every_node_is_accounted_for(
    shape: tuple[int, int, int | None],
    action: Action,
    strategy: Strategy,
    hours: float,
    lost: float,
    work: float | None,
    seed: int,
) -> None:
    world = replace(WORLD, mtbf=hours * HOUR, lost=lost, work=work)
    chosen = policy(shape, max_restarts=20, action=action, strategy=strategy, backoff=Backoff(10.0))
    outcome = play(chosen, world, seed)
    until = world.horizon if outcome.state in ("IN_PROGRESS", "FAILED") else outcome.ended_at
    assert until is not None
    assert sum(outcome.uses.values()) == pytest.approx(6 * until)
    assert all(spent >= -1e-6 for spent in outcome.uses.values())
    assert outcome.restarts <= 20
    assert 0 <= outcome.goodput <= 1
    assert play(chosen, world, seed) == outcome, "the same seed, the same run"


def test_a_spent_budget_wastes_the_rest() -> None:
    outcome = play(gang(max_restarts=1), replace(WORLD, mtbf=8 * HOUR), 0)
    assert (outcome.state, outcome.restarts) == ("FAILED", 1)
    assert outcome.ended_at is not None
    assert outcome.uses[Use.OVER] == pytest.approx(8 * (WORLD.horizon - outcome.ended_at))
    assert "restart is used up" in outcome.details


def test_a_node_that_stays_starts_faster() -> None:
    world = replace(WORLD, mtbf=40 * HOUR, lost=0.0, horizon=1000 * HOUR)
    kept, made = (play(gang(strategy=s), world, 3) for s in (Strategy.IN_PLACE, Strategy.RECREATE))
    assert kept.failures > 100
    assert kept.uses[Use.STARTING] == pytest.approx(
        8 * (world.node_start + (kept.restarts + 1) * world.load), rel=0.02
    )
    assert made.uses[Use.STARTING] == pytest.approx(
        8 * (made.restarts + 1) * (world.node_start + world.load), rel=0.02
    )


def test_a_lost_node_is_noticed_later_and_replaced() -> None:
    world = replace(WORLD, mtbf=40 * HOUR, lost=1.0, horizon=1000 * HOUR)
    outcome = play(gang(), world, 3)
    assert outcome.uses[Use.NOTICING] == pytest.approx(
        8 * outcome.failures * world.loss_noticed, rel=0.02
    )


def test_young_s_interval_does_better_than_others() -> None:
    world = replace(WORLD, mtbf=100 * HOUR, horizon=2000 * HOUR)
    best = best_interval(gang(), world)
    tried = [
        Variant(str(factor), gang(), replace(world, checkpoint_every=best * factor))
        for factor in (0.2, 1.0, 5.0)
    ]
    low, right, high = forecast(tried, runs=3, seed=0, workers=1)
    assert right.goodput > low.goodput
    assert right.goodput > high.goodput


def test_what_if_has_the_question_first_and_each_answer_once() -> None:
    asked = variants(policy((4, 2, None), max_restarts=3), replace(WORLD, mtbf=100 * HOUR))
    names = [variant.name for variant in asked]
    assert names[0] == "as it is"
    assert len(set(names)) == len(names)
    assert "action: restart_replica" in names
    assert "strategy: in_place" not in names, "that is what it is"


def test_two_processors_see_the_same_as_one() -> None:
    asked = variants(gang(), replace(WORLD, mtbf=100 * HOUR))[:2]
    assert forecast(asked, 3, 7, workers=2) == forecast(asked, 3, 7, workers=1)


def test_what_may_be_added_later_costs_nothing() -> None:
    elastic = policy((1, 1, None), (5, 2, None, {"wanted": 3}), (4, 1, 2, {"wanted": 4}))
    fixed = policy((1, 1, None), (3, 2, None), (4, 1, 2))
    assert as_it_begins(elastic) == fixed
    assert as_it_begins(fixed) == fixed
