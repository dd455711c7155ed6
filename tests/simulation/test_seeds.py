"""Simulated runs, the same each time, and a thousand new ones: each keeps every promise.

MUSTER_SEEDS=start:stop tries others than both. What fails is told with a command that replays it,
and with the fewest faults that it takes.
"""

from __future__ import annotations

import os

import pytest

from muster.simulation.batch import Tally, explain, fresh, run_seeds, total
from muster.simulation.coverage import EXPECTED
from muster.simulation.faults import from_json, to_json
from muster.simulation.invariants import check
from muster.simulation.seeds import case_of, play
from muster.simulation.trace import trace

DEFAULT = range(4_000)
MORE = range(4_000, 10_000)  # where there is time
NEW = 1000
TOLD = 3  # findings
elsewhere = pytest.mark.skipif("MUSTER_SEEDS" in os.environ, reason="other seeds were asked for")

pytestmark = pytest.mark.timeout(900)


def asked() -> range:
    first, _, last = os.environ.get("MUSTER_SEEDS", "").partition(":")
    return range(int(first), int(last)) if last else DEFAULT


def told(tally: Tally) -> str:
    lines = (line for finding in tally.findings[:TOLD] for line in explain(finding))
    return "\n".join([f"{len(tally.findings)} seeds", *lines])


def test_every_run_keeps_every_promise() -> None:
    """And everything that can happen has happened in one."""
    seeds = asked()
    tally = total(run_seeds(seeds))
    assert not tally.findings, told(tally)
    if seeds is DEFAULT:
        assert not [what for what in EXPECTED if not tally.seen[what]]


@elsewhere
@pytest.mark.slow
def test_more_runs_keep_every_promise() -> None:
    tally = total(run_seeds(MORE))
    assert not tally.findings, told(tally)


@elsewhere
def test_runs_that_nobody_has_seen_keep_every_promise(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = fresh(NEW)
    with capsys.disabled():
        command = f"make seeds SEEDS={seeds.start}:{seeds.stop}"
        request.config.get_terminal_writer().line(f"\nnew simulated runs; again: {command}")
    tally = total(run_seeds(seeds))
    assert tally.seen["runs"] == NEW
    assert not tally.findings, told(tally)


@pytest.mark.parametrize("seed", [4711, 100, 8])
def test_a_seed_is_the_same_each_time(seed: int) -> None:
    first, second = (list(trace(play(case_of(seed)))) for _ in range(2))
    assert first == second
    assert len(first) > 10


def test_plans_survive_json() -> None:
    for seed in range(300):
        plan = case_of(seed).plan
        assert from_json(to_json(plan)) == plan


def test_a_replica_that_had_succeeded_and_starts_again_was_rightly_kept() -> None:
    """Of two that had succeeded one is taken away, in the step in which all the run restarts."""
    plan = from_json(
        '[{"fault":"ControllerDies","step":21,"moment":"before_record","aftermath":"die",'
        '"down":15.0,"jump":-20.0},{"fault":"Scaled","group":"g2","replicas":0,"at":20.14}]'
    )
    assert check(play(case_of(82994394, plan))) == []


@pytest.mark.parametrize("seed", [83291946, 83348117])
def test_a_run_that_succeeds_in_the_step_of_a_failure_fails_of_lost_output_alone(seed: int) -> None:
    assert check(play(case_of(seed))) == []


@pytest.mark.parametrize("seed", [83060741, 83124251])
def test_a_failure_counts_again_where_more_is_asked_for_in_its_step(seed: int) -> None:
    """The run had what it was for, until one of the groups it needs was to be larger."""
    assert check(play(case_of(seed))) == []


def test_a_replica_that_succeeds_and_starts_again_in_one_step_was_rightly_kept() -> None:
    assert check(play(case_of(83470343))) == []
