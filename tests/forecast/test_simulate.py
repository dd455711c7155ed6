"""Simulated runs against results computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.forecast.compare import Variant, best_interval, forecast, initial_policy, variants
from muster.forecast.model import Assumptions, TimeUse
from muster.forecast.simulate import simulate
from muster.lifecycle.policy import Action, Backoff, Policy, Strategy
from support.run_driver import policy

HOUR = 3600.0
NEVER = 1e15
ASSUMED = Assumptions(mtbf=NEVER, horizon=24 * HOUR)
UNLIMITED = 1_000_000


def one_replica(nodes: int = 8, **more: object) -> Policy:
    return policy((1, nodes, None), **{"max_restarts": UNLIMITED, **more})


def test_without_failures_only_starts_and_checkpoints_take_time() -> None:
    outcome = simulate(one_replica(), ASSUMED, 0)
    start = ASSUMED.node_start + ASSUMED.load
    rounds = int((ASSUMED.horizon - start) / (ASSUMED.checkpoint_every + ASSUMED.checkpoint_cost))
    assert outcome.uses[TimeUse.STARTING] == pytest.approx(8 * start)
    assert outcome.uses[TimeUse.CHECKPOINTS] == pytest.approx(8 * rounds * ASSUMED.checkpoint_cost)
    assert (outcome.failures, outcome.restarts, outcome.state) == (0, 0, "IN_PROGRESS")
    assert outcome.ended_at is None


def test_the_run_ends_with_its_program() -> None:
    assumed = replace(ASSUMED, work=10 * HOUR)
    outcome = simulate(one_replica(), assumed, 0)
    assert outcome.state == "SUCCEEDED"
    assert outcome.uses[TimeUse.USEFUL] == pytest.approx(8 * 10 * HOUR)
    assert outcome.ended_at == pytest.approx(
        assumed.node_start + assumed.load + 10 * HOUR + 10 * 30.0
    )


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([(1, 6, None), (6, 1, None), (3, 2, None), (2, 3, 1)]),
    action=st.sampled_from([a for a in Action if a.startswith("restart")]),
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
    assumed = replace(ASSUMED, mtbf=hours * HOUR, lost=lost, work=work)
    chosen = policy(shape, max_restarts=20, action=action, strategy=strategy, backoff=Backoff(10.0))
    outcome = simulate(chosen, assumed, seed)
    until = assumed.horizon if outcome.state in ("IN_PROGRESS", "FAILED") else outcome.ended_at
    assert until is not None
    assert sum(outcome.uses.values()) == pytest.approx(6 * until)
    assert all(spent >= -1e-6 for spent in outcome.uses.values())
    assert outcome.restarts <= 20
    assert 0 <= outcome.goodput <= 1
    assert simulate(chosen, assumed, seed) == outcome, "the same seed, the same run"


def test_time_after_the_failure_of_a_run_is_not_useful() -> None:
    outcome = simulate(one_replica(max_restarts=1), replace(ASSUMED, mtbf=8 * HOUR), 0)
    assert (outcome.state, outcome.restarts) == ("FAILED", 1)
    assert outcome.ended_at is not None
    assert outcome.uses[TimeUse.OVER] == pytest.approx(8 * (ASSUMED.horizon - outcome.ended_at))
    assert "restart is used up" in outcome.details


def test_a_restart_in_place_is_faster() -> None:
    assumed = replace(ASSUMED, mtbf=40 * HOUR, lost=0.0, horizon=1000 * HOUR)
    in_place, recreated = (
        simulate(one_replica(strategy=s), assumed, 3)
        for s in (Strategy.IN_PLACE, Strategy.RECREATE)
    )
    assert in_place.failures > 100
    assert in_place.uses[TimeUse.STARTING] == pytest.approx(
        8 * (assumed.node_start + (in_place.restarts + 1) * assumed.load), rel=0.02
    )
    assert recreated.uses[TimeUse.STARTING] == pytest.approx(
        8 * (recreated.restarts + 1) * (assumed.node_start + assumed.load), rel=0.02
    )


def test_a_lost_node_is_detected_after_a_delay() -> None:
    assumed = replace(ASSUMED, mtbf=40 * HOUR, lost=1.0, horizon=1000 * HOUR)
    outcome = simulate(one_replica(), assumed, 3)
    assert outcome.uses[TimeUse.NOTICING] == pytest.approx(
        8 * outcome.failures * assumed.loss_noticed, rel=0.02
    )


def test_youngs_interval_gives_the_best_goodput() -> None:
    assumed = replace(ASSUMED, mtbf=100 * HOUR, horizon=2000 * HOUR)
    best = best_interval(one_replica(), assumed)
    tried = [
        Variant(str(factor), one_replica(), replace(assumed, checkpoint_every=best * factor))
        for factor in (0.2, 1.0, 5.0)
    ]
    low, right, high = forecast(tried, runs=3, seed=0, workers=1)
    assert right.goodput > low.goodput
    assert right.goodput > high.goodput


def test_the_requested_variant_is_first_and_alternatives_differ() -> None:
    requested = variants(policy((4, 2, None), max_restarts=3), replace(ASSUMED, mtbf=100 * HOUR))
    names = [variant.name for variant in requested]
    assert names[0] == "current policy"
    assert len(set(names)) == len(names)
    assert "action: restart_replica" in names
    assert "strategy: in_place" not in names, "the policy restarts in place already"


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    requested = variants(one_replica(), replace(ASSUMED, mtbf=100 * HOUR))[:2]
    assert forecast(requested, 3, 7, workers=2) == forecast(requested, 3, 7, workers=1)


def test_replicas_that_may_be_added_later_do_not_count() -> None:
    elastic = policy((1, 1, None), (5, 2, None, {"desired": 3}), (4, 1, 2, {"desired": 4}))
    fixed = policy((1, 1, None), (3, 2, None), (4, 1, 2))
    assert initial_policy(elastic) == fixed
    assert initial_policy(fixed) == fixed


def an_array(replicas: int, nodes: int, at_once: int, **more: object) -> Policy:
    group = {"parallelism": at_once, "max_failed": replicas, "retries": 20, **more}
    return policy((replicas, nodes, None, group), action=Action.RESTART_REPLICA)


def test_the_replicas_of_an_array_take_nodes_one_after_another() -> None:
    """Ten replicas of an hour, four at once: three rounds. Only the first waits for new nodes, and
    in the last, two nodes are idle."""
    assumed = replace(ASSUMED, work=HOUR / 2)
    outcome = simulate(an_array(10, 1, 4), assumed, 0)
    once = assumed.load + HOUR / 2
    assert outcome.state == "SUCCEEDED"
    assert outcome.ended_at == pytest.approx(assumed.node_start + 3 * once)
    assert outcome.uses[TimeUse.USEFUL] == pytest.approx(10 * HOUR / 2)
    assert outcome.uses[TimeUse.STARTING] == pytest.approx(4 * 120 + 10 * assumed.load)
    assert outcome.uses[TimeUse.IDLE] == pytest.approx(2 * once)
    assert max(share for _, share in outcome.productive) == 1.0


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from([(9, 1, 3), (4, 2, 1), (6, 1, 6), (5, 3, 2)]),
    strategy=st.sampled_from(list(Strategy)),
    hours=st.floats(2, 200),
    lost=st.floats(0, 1),
    retries=st.sampled_from([0, 1, 20]),
    seed=st.integers(0, 1000),
)
def test_every_second_of_an_arrays_nodes_is_accounted_for(
    shape: tuple[int, int, int],
    strategy: Strategy,
    hours: float,
    lost: float,
    retries: int,
    seed: int,
) -> None:
    assumed = replace(ASSUMED, mtbf=hours * HOUR, lost=lost, work=HOUR)
    chosen = replace(an_array(*shape, retries=retries), strategy=strategy)
    outcome = simulate(chosen, assumed, seed)
    until = assumed.horizon if outcome.state != "SUCCEEDED" else outcome.ended_at
    assert until is not None
    assert sum(outcome.uses.values()) == pytest.approx(shape[1] * shape[2] * until)
    assert all(spent >= -1e-6 for spent in outcome.uses.values())
    assert all(0 <= share <= 1 for _, share in outcome.productive)


def test_only_some_replicas_of_an_array_get_numbers_from_0() -> None:
    (group,) = initial_policy(an_array(9, 2, 3, only="3,7-8")).groups
    assert (group.replicas, group.only, group.min_success, group.size) == (3, None, 3, 6)
