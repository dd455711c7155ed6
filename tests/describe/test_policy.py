"""Policies in sentences."""

from __future__ import annotations

import pytest

from muster.describe.policy import policy_sentences
from muster.lifecycle.policy import (
    Action,
    Backoff,
    Dependency,
    Policy,
    Rule,
    Strategy,
    Success,
)
from muster.lifecycle.status import Reason
from support.run_driver import policy

TWO = ((1, 2, None), (4, 1, None))


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (policy(*TWO), "startup: all at once"),
        (policy(*TWO, in_order=True), "startup: each group when the one before it is ready"),
        (
            policy(TWO[0], (4, 1, None, {"depends_on": (Dependency(0, complete=True),)})),
            "startup: g1 when g0 has succeeded",
        ),
        (
            policy(TWO[0], (4, 1, None, {"depends_on": (Dependency(0, complete=False),)})),
            "startup: g1 when g0 is ready",
        ),
        (
            policy(*TWO),
            "success: when groups g0, g1 have succeeded; nodes still running then are stopped",
        ),
        (
            policy(*TWO, success=Success((1,), any_replica=True, wait=True)),
            "success: when a replica of group g1 succeeds; nodes still running then may finish",
        ),
        (
            policy(*TWO),
            "failure: the run fails when a required node fails",
        ),
        (
            policy(*TWO, max_restarts=1, backoff=Backoff(initial=60)),
            "failure: restart run (in place), once; the first restart is immediate, "
            "the second in a row waits 1m",
        ),
        (
            policy(
                *TWO,
                max_restarts=3,
                action=Action.RESTART_GROUP,
                strategy=Strategy.BLOCKING_RECREATE,
            ),
            "failure: restart group (blocking recreate), up to 3 times",
        ),
        (
            policy(*TWO, rules=(Rule("x", Action.FAIL, exit_codes=(2, 3)),)),
            "  1. x: on exit code 2 or 3, fail",
        ),
        (
            policy(*TWO, rules=(Rule("x", Action.RESTART_NODE, exit_codes=tuple(range(1, 9))),)),
            "  1. x: on exit code 1 or 2 or 3 or 4 or 5 or 6 or ..., restart node",
        ),
        (
            policy(
                *TWO,
                rules=(
                    Rule(
                        "x",
                        Action.RESTART_RUN,
                        groups=("g0",),
                        signals=(9,),
                        reasons=(Reason.HANG,),
                        messages=("ECC",),
                        counted=False,
                        max_restarts=2,
                    ),
                ),
            ),
            "  1. x: on group g0 and signal 9 and reason hang and message ECC, restart run, "
            "up to 2 times, not counted in max_restarts",
        ),
        (
            policy(*TWO, rules=(Rule("x", Action.RESTART_REPLICA),)),
            "  1. x: on anything, restart replica",
        ),
        (
            policy(*TWO, rules=(Rule("x", Action.FAIL, exit_codes=(2,), before_retries=True),)),
            "  1. x: before `retries`: on exit code 2, fail",
        ),
        (
            policy((1, 2, None, {"retries": 2})),
            "group g0: a failed node is restarted alone, up to 2 times (`retries`)",
        ),
        (
            policy((1, 2, None, {"max_restarts": 2})),
            "group g0: at most 2 restarts after failures in this group",
        ),
        (
            policy((1, 2, None, {"ready_timeout": 90.0})),
            "group g0: each node must be ready within 1m30s",
        ),
        (policy((1, 2, None, {"timeout": 90.0})), "group g0: each replica may run 1m30s"),
        (policy(*TWO, attempt_timeout=3600.0), "maximum runtime of an attempt: 1h"),
        (policy(*TWO), "maximum runtime: 30d"),
    ],
)
def test_a_policy_is_described(chosen: Policy, sentence: str) -> None:
    assert sentence in list(policy_sentences(chosen))
