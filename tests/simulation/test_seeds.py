"""Simulated runs keep every invariant: runs with fixed seeds, and a thousand with new ones.

MUSTER_SEEDS=start:stop tries these seeds instead. A failure shows the command that replays the run,
and the smallest plan of faults that breaks the invariant.
"""

from __future__ import annotations

import os

import pytest

from simulation.harness.batch import Tally, explain, fresh, run_seeds, total
from simulation.harness.coverage import EXPECTED
from simulation.harness.faults import from_json, to_json
from simulation.harness.invariants import check
from simulation.harness.render import render
from simulation.harness.seeds import case_of, play

DEFAULT = range(10_000, 12_500)
MORE = range(10_000)  # in slow tests
NEW = 1000
EXPLAINED = 3  # findings
default_seeds = pytest.mark.skipif(
    "MUSTER_SEEDS" in os.environ, reason="MUSTER_SEEDS sets the seeds"
)

pytestmark = pytest.mark.timeout(900)


def seeds_to_try() -> range:
    first, _, last = os.environ.get("MUSTER_SEEDS", "").partition(":")
    return range(int(first), int(last)) if last else DEFAULT


def explanation(tally: Tally) -> str:
    lines = (line for finding in tally.findings[:EXPLAINED] for line in explain(finding))
    return "\n".join([f"{len(tally.findings)} seeds", *lines])


def test_every_run_keeps_every_invariant() -> None:
    """The runs cover every expected situation."""
    seeds = seeds_to_try()
    tally = total(run_seeds(seeds))
    assert not tally.findings, explanation(tally)
    if seeds is DEFAULT:
        assert not [what for what in EXPECTED if not tally.seen[what]]


@default_seeds
@pytest.mark.slow
def test_more_runs_keep_every_invariant() -> None:
    tally = total(run_seeds(MORE))
    assert not tally.findings, explanation(tally)


@default_seeds
def test_runs_with_new_seeds_keep_every_invariant(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = fresh(NEW)
    with capsys.disabled():
        command = f"make seeds SEEDS={seeds.start}:{seeds.stop}"
        request.config.get_terminal_writer().line(f"\nnew simulated runs; again: {command}")
    tally = total(run_seeds(seeds))
    assert tally.seen["runs"] == NEW
    assert not tally.findings, explanation(tally)


@pytest.mark.parametrize("seed", [4711, 100, 8])
def test_a_seed_gives_the_same_run_each_time(seed: int) -> None:
    first, second = (list(render(play(case_of(seed)))) for _ in range(2))
    assert first == second
    assert len(first) > 10


def test_plans_survive_json() -> None:
    for seed in range(300):
        plan = case_of(seed).plan
        assert from_json(to_json(plan)) == plan


def test_a_succeeded_replica_that_restarts_may_be_kept() -> None:
    """Of two succeeded replicas one is removed, in the step in which the whole run restarts."""
    plan = from_json(
        '[{"fault":"ControllerDies","step":21,"moment":"before_record","aftermath":"die",'
        '"down":15.0,"jump":-20.0},{"fault":"UserScales","group":"g2","replicas":0,"at":20.14}]'
    )
    assert check(play(case_of(82994394, plan))) == []


@pytest.mark.parametrize("seed", [83291946, 83348117])
def test_a_run_that_succeeds_in_the_step_of_a_failure_fails_only_of_lost_output(seed: int) -> None:
    assert check(play(case_of(seed))) == []


@pytest.mark.parametrize("seed", [83060741, 83124251])
def test_a_failure_counts_if_a_group_is_scaled_up_in_its_step(seed: int) -> None:
    """The run had succeeded, until one of its required groups was scaled up."""
    assert check(play(case_of(seed))) == []


def test_a_replica_that_succeeds_and_restarts_in_one_step_may_be_kept() -> None:
    assert check(play(case_of(83470343))) == []
