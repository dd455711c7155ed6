"""How a cluster ends, by the rules of the lifecycle."""

from __future__ import annotations

import pytest

from muster.bootstrap.exit_reports import MemberExit
from muster.bootstrap.job import arranged_job
from muster.bootstrap.outcome import (
    Outcome,
    deciding_ranks,
    first_cause,
    outcome_of,
    policy_of,
    required_ranks,
)
from muster.bootstrap.parameters import Parameters
from muster.lifecycle.policy import Policy


def policy(framework: str, workers: int, servers: int = 0) -> Policy:
    parameters = Parameters(
        *("MAIN", "/shared", framework, "job", "m"),
        worker_count=workers,
        ps_count=servers,
        entry_point="a.py",
    )
    return policy_of(arranged_job(parameters, {}))


def ended(rank: int, code: int | None, **more: float) -> MemberExit:
    return MemberExit(rank, str(rank), f"node-{rank}", code, **more)  # type: ignore[arg-type]


def test_a_run_succeeds_when_each_node_that_runs_the_program_has_succeeded() -> None:
    rules = policy("generic", 2)
    assert deciding_ranks(rules) == required_ranks(rules) == [0, 1, 2]
    assert outcome_of(rules, []) is None
    assert outcome_of(rules, [ended(0, 0), ended(2, 0)]) is None
    assert outcome_of(rules, [ended(0, 0), ended(1, 0), ended(2, 0)]) == Outcome(True)


def test_a_run_fails_with_the_first_required_node() -> None:
    rules = policy("generic", 2)
    assert outcome_of(rules, [ended(1, 3)]) == Outcome(False, 1)
    both = [ended(1, 1, at=5.0), ended(2, 1, at=4.0)]
    assert outcome_of(rules, [ended(0, 0), *both]) == Outcome(False, 2)


def test_services_decide_nothing_and_may_be_lost() -> None:
    rules = policy("dask", 2)
    assert (deciding_ranks(rules), required_ranks(rules)) == ([0], [0])
    assert outcome_of(rules, [ended(1, None, lost=True), ended(2, 1)]) is None
    assert outcome_of(rules, [ended(0, 0)]) == Outcome(True)
    assert outcome_of(rules, [ended(0, 7)]) == Outcome(False, 0)


def test_parameter_servers_are_required_and_decide_nothing() -> None:
    rules = policy("tensorflow", 1, servers=1)
    assert (deciding_ranks(rules), required_ranks(rules)) == ([0], [0, 2])
    assert outcome_of(rules, [ended(0, 0)]) == Outcome(True)
    assert outcome_of(rules, [ended(0, 1)]) == Outcome(False, 0)
    assert outcome_of(rules, [ended(2, 1)]) == Outcome(False, 2)


@pytest.mark.parametrize(
    ("failures", "cause"),
    [
        ([ended(0, 1, at=3), ended(1, 1, at=2)], 1),
        # a killed node reports nothing, and is detected last
        ([ended(0, 1, at=3), ended(1, None, lost=True)], 1),
        # a node that was terminated, or wrote to a closed connection, is a consequence
        ([ended(0, 143, signal=15, at=1), ended(1, 141, signal=13, at=2), ended(2, 1, at=3)], 2),
        ([ended(0, 137, signal=9, at=1), ended(1, 1, at=2)], 0),
    ],
)
def test_the_first_cause_of_several_failures(failures: list[MemberExit], cause: int) -> None:
    assert first_cause(failures).rank == cause
