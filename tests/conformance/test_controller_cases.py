"""JobSet's integration tests of its controller, C01 to C30: success and failure.

Each reads a manifest and drives the run by hand, as those tests set the status of Jobs by hand.
docs/conformance.md has all cases.
"""

from __future__ import annotations

from typing import Any

import pytest

from muster.lifecycle.events import NodeEnded
from support.jobset import Jobs, jobset, replicated, rules

ALL = ["a-0", "b-0", "b-1", "b-2"]
RESTART = {"action": "RestartJobSet"}
FREE = {"action": "RestartJobSetAndIgnoreMaxRestarts"}
FAIL = {"action": "FailJobSet"}


def begun(**spec: Any) -> Jobs:
    """All its Jobs run."""
    return Jobs(jobset(**spec)).all_ready()


def test_C01_every_job_is_created_under_its_name() -> None:
    jobs = Jobs(jobset())
    assert jobs.current() == ALL
    names = [node.fqdn for node in jobs.plan.nodes]
    assert names == [f"demo-{job}-0.demo.default.svc.cluster.local" for job in ALL]
    assert [(n.group, n.replica) for n in jobs.plan.nodes] == [
        ("a", 0),
        ("b", 0),
        ("b", 1),
        ("b", 2),
    ]


def test_C02_it_succeeds_after_the_last_job() -> None:
    jobs = begun()
    for job in ALL:
        assert jobs.state == "IN_PROGRESS"
        jobs.complete(job)
    assert jobs.state == "SUCCEEDED"


def test_C03_what_is_not_its_own_is_ignored() -> None:
    """Nothing of another run is ever told to this one; of its own past, nothing counts."""
    jobs = begun(failurePolicy={"maxRestarts": 1}).fail("a-0")
    jobs.gone(*ALL).all_ready()
    before = jobs.status
    assert jobs.tell(*(NodeEnded(rank, 1, incarnation=0) for rank in range(4))).status is before


def test_C04_it_does_not_succeed_with_a_job_missing() -> None:
    assert begun().complete(*ALL[:-1]).state == "IN_PROGRESS"


@pytest.mark.shows("jobset/success-operators")
def test_C05_all_of_no_targets_is_all() -> None:
    jobs = begun(successPolicy={"operator": "All", "targetReplicatedJobs": []})
    assert jobs.complete(*ALL[:-1]).state == "IN_PROGRESS"
    assert jobs.complete("b-2").state == "SUCCEEDED"


@pytest.mark.shows("jobset/success-targets", "jobset/success-workers")
def test_C06_all_of_some_targets() -> None:
    jobs = begun(successPolicy={"operator": "All", "targetReplicatedJobs": ["b"]})
    assert jobs.complete("a-0", "b-0").state == "IN_PROGRESS"
    assert jobs.complete("b-1", "b-2").state == "SUCCEEDED"


@pytest.mark.shows("jobset/success-targets", "jobset/success-workers")
def test_C07_any_of_some_targets() -> None:
    jobs = begun(successPolicy={"operator": "Any", "targetReplicatedJobs": ["b"]})
    assert jobs.complete("a-0").state == "IN_PROGRESS"
    jobs.complete("b-1").gone(*ALL)
    assert jobs.state == "SUCCEEDED"


@pytest.mark.shows("jobset/success-operators")
def test_C08_any_of_all() -> None:
    jobs = begun(successPolicy={"operator": "Any", "targetReplicatedJobs": []})
    assert jobs.complete("a-0").gone(*ALL).state == "SUCCEEDED"


@pytest.mark.shows("jobset/failure-none")
def test_C09_without_a_failure_policy_the_first_failure_is_final() -> None:
    jobs = begun().fail("b-1", code=7)
    assert jobs.leaving() == ["a-0", "b-0", "b-2"]
    assert jobs.gone(*ALL).state == "FAILED"
    assert jobs.status.details == "node-2 (group b, rank 2) failed with exit code 7"


def test_C10_names_need_no_service() -> None:
    """Every node knows all others by name from its start; there is nothing to create first."""
    jobs = begun(network={"enableDNSHostnames": True})
    assert jobs.plan.subdomain == "demo"
    assert jobs.complete(*ALL).state == "SUCCEEDED"


@pytest.mark.parametrize("way", ["succeeds", "fails"])
def test_C11_it_ends_from_its_first_attempt(way: str) -> None:
    jobs = begun()
    if way == "succeeds":
        assert jobs.complete(*ALL).state == "SUCCEEDED"
    else:
        assert jobs.fail("a-0").gone(*ALL).state == "FAILED"
    assert (jobs.status.attempt, jobs.status.restarts) == (0, 0)


@pytest.mark.shows("jobset/failure-max-restarts")
def test_C12_it_fails_after_all_its_restarts() -> None:
    jobs = begun(failurePolicy={"maxRestarts": 1}).fail("a-0").gone(*ALL)
    assert (jobs.state, jobs.status.attempt, jobs.current()) == ("IN_PROGRESS", 1, ALL)
    jobs.all_ready().fail("b-0").gone(*ALL)
    assert jobs.state == "FAILED"
    assert jobs.status.details.endswith("the one restart is used up (failure.max_restarts)")


def test_C13_a_rule_fails_it_although_restarts_are_left() -> None:
    jobs = begun(**rules({**FAIL, "name": "Fatal"}, most=5)).fail("b-0").gone(*ALL)
    assert (jobs.state, jobs.status.restarts) == ("FAILED", 0)
    assert jobs.status.details.endswith("rule Fatal")


DEADLINE = {"onJobFailureReasons": ["DeadlineExceeded"]}
LIMIT = {"onJobFailureReasons": ["BackoffLimitExceeded"]}
#: Of what the Job controller says, which is the same for all that reached their limit.
CUDA = {"onJobFailureMessagePatterns": ["CUDA (error|fault)"]}
REACHED = {"onJobFailureMessagePatterns": ["^Job has reached the specified backoff limit$"]}


@pytest.mark.shows("jobset/failure-rules")
@pytest.mark.parametrize(
    ("rule", "message", "fails"),
    [
        pytest.param(DEADLINE, "", False, id="C14 reason not matched"),
        pytest.param(CUDA, "CUDA error", False, id="C15 message not matched"),
        pytest.param(LIMIT | CUDA, "CUDA error", False, id="C16 only the reason matched"),
        pytest.param(LIMIT | REACHED, "", True, id="C17 reason and message matched"),
        pytest.param(
            {"onJobFailureMessagePatterns": ["reached .* (back|run)off"]},
            "",
            True,
            id="C18 somewhere in the message",
        ),
    ],
)
def test_rules_that_fail_it(rule: dict[str, Any], message: str, fails: bool) -> None:
    """Where the rule does not fit, it is the default: start again."""
    jobs = begun(**rules({**FAIL, **rule}, most=1)).fail("b-0", message=message).gone(*ALL)
    assert jobs.state == ("FAILED" if fails else "IN_PROGRESS")
    assert jobs.attempts() == ([0] * 4 if fails else [1] * 4)
    assert jobs.status.spent.run == (0 if fails else 1)


@pytest.mark.shows("jobset/failure-recreates-all")
def test_C19_a_rule_starts_it_again() -> None:
    """Nodes know the attempt they are in; MUSTER_RUN_RESTARTS is the label's value."""
    jobs = begun(**rules(RESTART, most=1)).complete("b-0").fail("a-0").gone(*ALL)
    assert (jobs.status.restarts, jobs.status.spent.run) == (1, 1)
    assert (jobs.current(), jobs.attempts()) == (ALL, [1] * 4)
    assert [effect.attempt for effect in jobs.effects if hasattr(effect, "attempt")] == [1]


def test_C20_the_log_says_that_it_restarts_and_that_it_is_back() -> None:
    jobs = begun(**rules({**RESTART, "name": "Rule1"}, most=1)).fail("a-0")
    assert jobs.notes("restart")[0]["why"].endswith("; rule Rule1")
    jobs.gone(*ALL).all_ready()
    back = [note for note in jobs.notes("nodes") if note["state"] == "READY"]
    assert back[-1] == {"ranks": "0-3", "state": "READY", "restart": 1}


def test_C21_a_rule_starts_one_job_again() -> None:
    jobs = begun(**rules({"action": "RestartJob"}, most=1)).fail("b-1")
    assert jobs.current() == ALL
    assert jobs.attempts() == [0, 0, 1, 0]
    assert (jobs.status.attempt, jobs.status.spent.run) == (0, 1)


def test_C22_a_rule_starts_one_job_again_for_nothing() -> None:
    action = {"action": "RestartJobAndIgnoreMaxRestarts"}
    jobs = begun(**rules(action, most=0)).fail("b-1").all_ready().fail("b-1")
    assert (jobs.attempts(), jobs.status.spent.run) == ([0, 0, 2, 0], 0)


def test_C23_recreate_waits_for_each_by_itself() -> None:
    jobs = begun(**rules(RESTART, most=1, restartStrategy="Recreate")).fail("a-0")
    jobs.gone("b-0", "b-2")
    assert (jobs.current(), jobs.leaving()) == (["a-0", "b-0", "b-2"], ["b-1"])
    assert jobs.gone("b-1").current() == ALL


def test_C24_blocking_recreate_waits_for_all() -> None:
    jobs = begun(**rules(RESTART, most=1, restartStrategy="BlockingRecreate")).fail("a-0")
    jobs.gone("b-0", "b-2")
    assert (jobs.current(), jobs.missing()) == ([], ["a-0", "b-0", "b-2"])
    assert jobs.gone("b-1").current() == ALL


def test_C25_a_rule_starts_it_again_for_nothing() -> None:
    jobs = begun(**rules(FREE, most=1))
    for _ in range(3):
        jobs.fail("b-0").gone(*ALL).all_ready()
    assert (jobs.status.restarts, jobs.status.spent.run, jobs.state) == (3, 0, "IN_PROGRESS")


@pytest.mark.shows("jobset/failure-rules")
@pytest.mark.parametrize(
    ("job", "restarts"),
    [
        pytest.param("b-0", 0, id="C26 of its replicated Job"),
        pytest.param("a-0", 1, id="C27 of another"),
    ],
)
def test_rules_have_targets(job: str, restarts: int) -> None:
    jobs = begun(**rules({**FAIL, "targetReplicatedJobs": ["b"]}, most=1)).fail(job).gone(*ALL)
    assert jobs.state == ("IN_PROGRESS" if restarts else "FAILED")
    assert jobs.status.restarts == restarts


@pytest.mark.shows("jobset/failure-rules")
@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [
        pytest.param(FAIL, RESTART, None, id="C28 the first fails it"),
        pytest.param(FREE, FAIL, 0, id="C28 the first starts it again"),
    ],
)
def test_the_first_rule_that_matches_wins(
    first: dict[str, Any], second: dict[str, Any], counted: int | None
) -> None:
    jobs = begun(**rules({**first, **LIMIT}, second, most=1)).fail("b-0").gone(*ALL)
    assert jobs.state == ("FAILED" if counted is None else "IN_PROGRESS")
    assert jobs.status.restarts == (0 if counted is None else 1)
    assert jobs.status.spent.run == 0


def test_C29_rules_for_each_replicated_job() -> None:
    of_a, of_b = {"targetReplicatedJobs": ["a"]}, {"targetReplicatedJobs": ["b"]}
    jobs = begun(**rules({**FREE, **of_a}, {**FAIL, **of_b}, most=0))
    for _ in range(3):
        jobs.fail("a-0").gone(*ALL).all_ready()
    assert (jobs.state, jobs.status.restarts) == ("IN_PROGRESS", 3)
    assert jobs.fail("b-2").gone(*ALL).state == "FAILED"


def test_C30_a_failure_beats_a_success() -> None:
    jobs = begun(failurePolicy={"maxRestarts": 1})
    jobs.tell(*(jobs.ended(rank) for rank in range(3)), jobs.ended(3, 1))
    assert (jobs.state, jobs.status.restarts) == ("IN_PROGRESS", 1)
    assert jobs.all_ready().complete(*ALL).state == "SUCCEEDED"


def test_several_failures_in_one_step_are_all_dealt_with() -> None:
    """JobSet deals with one Job a pass, and with the others in the passes that follow."""
    jobs = begun(**rules({"action": "RestartJob"}, most=2)).fail("b-0", "b-2")
    assert (jobs.attempts(), jobs.status.spent.run) == ([0, 1, 0, 2], 2)
    over = begun(**rules({"action": "RestartJob"}, most=1)).fail("b-0", "b-2")
    assert over.gone(*ALL).state == "FAILED"


def test_a_failure_is_seen_with_the_first_pod() -> None:
    """Kubernetes calls a Job failed when all its pods have ended, grace periods and all."""
    jobs = Jobs(jobset([replicated("a", 2, 3)], failurePolicy={"maxRestarts": 1})).all_ready()
    jobs.fail("a-1")
    assert (jobs.status.attempt, jobs.leaving()) == (1, ["a-0"])
    assert [node.again for node in jobs.status.nodes] == [1, 1, 1, None, 1, 1]
