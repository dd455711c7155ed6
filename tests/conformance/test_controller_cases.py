"""JobSet's integration tests of its controller, C01 to C30: success and failure.

Each test reads a manifest and drives the run by hand, as JobSet's tests set the status of Jobs.
docs/internals/conformance.md has all cases.
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


def running(**spec: Any) -> Jobs:
    """A run with all Jobs running."""
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


def test_C02_the_run_succeeds_after_the_last_job() -> None:
    jobs = running()
    for job in ALL:
        assert jobs.state == "IN_PROGRESS"
        jobs.complete(job)
    assert jobs.state == "SUCCEEDED"


def test_C03_events_of_other_incarnations_are_ignored() -> None:
    """A run gets no events of other runs, and ignores those of earlier incarnations."""
    jobs = running(failurePolicy={"maxRestarts": 1}).fail("a-0")
    jobs.finish_stopping(*ALL).all_ready()
    before = jobs.status
    assert jobs.step(*(NodeEnded(rank, 1, incarnation=0) for rank in range(4))).status is before


def test_C04_the_run_does_not_succeed_with_a_job_missing() -> None:
    assert running().complete(*ALL[:-1]).state == "IN_PROGRESS"


@pytest.mark.shows("jobset/success-operators")
def test_C05_all_without_targets_means_all_jobs() -> None:
    jobs = running(successPolicy={"operator": "All", "targetReplicatedJobs": []})
    assert jobs.complete(*ALL[:-1]).state == "IN_PROGRESS"
    assert jobs.complete("b-2").state == "SUCCEEDED"


@pytest.mark.shows("jobset/success-targets", "jobset/success-workers")
def test_C06_all_of_the_targets() -> None:
    jobs = running(successPolicy={"operator": "All", "targetReplicatedJobs": ["b"]})
    assert jobs.complete("a-0", "b-0").state == "IN_PROGRESS"
    assert jobs.complete("b-1", "b-2").state == "SUCCEEDED"


@pytest.mark.shows("jobset/success-targets", "jobset/success-workers")
def test_C07_any_of_the_targets() -> None:
    jobs = running(successPolicy={"operator": "Any", "targetReplicatedJobs": ["b"]})
    assert jobs.complete("a-0").state == "IN_PROGRESS"
    jobs.complete("b-1").finish_stopping(*ALL)
    assert jobs.state == "SUCCEEDED"


@pytest.mark.shows("jobset/success-operators")
def test_C08_any_of_all_jobs() -> None:
    jobs = running(successPolicy={"operator": "Any", "targetReplicatedJobs": []})
    assert jobs.complete("a-0").finish_stopping(*ALL).state == "SUCCEEDED"


@pytest.mark.shows("jobset/failure-none")
def test_C09_without_a_failure_policy_the_first_failure_is_final() -> None:
    jobs = running().fail("b-1", code=7)
    assert jobs.stopping() == ["a-0", "b-0", "b-2"]
    assert jobs.finish_stopping(*ALL).state == "FAILED"
    assert jobs.status.details == "node-2 (group b, rank 2) failed with exit code 7"


def test_C10_names_need_no_service() -> None:
    """Every node can resolve the names of all others from its start, without a service."""
    jobs = running(network={"enableDNSHostnames": True})
    assert jobs.plan.subdomain == "demo"
    assert jobs.complete(*ALL).state == "SUCCEEDED"


@pytest.mark.parametrize("outcome", ["succeeds", "fails"])
def test_C11_the_run_ends_in_its_first_attempt(outcome: str) -> None:
    jobs = running()
    if outcome == "succeeds":
        assert jobs.complete(*ALL).state == "SUCCEEDED"
    else:
        assert jobs.fail("a-0").finish_stopping(*ALL).state == "FAILED"
    assert (jobs.status.attempt, jobs.status.last_incarnation) == (0, 0)


@pytest.mark.shows("jobset/failure-max-restarts")
def test_C12_the_run_fails_after_all_its_restarts() -> None:
    jobs = running(failurePolicy={"maxRestarts": 1}).fail("a-0").finish_stopping(*ALL)
    assert (jobs.state, jobs.status.attempt, jobs.current()) == ("IN_PROGRESS", 1, ALL)
    jobs.all_ready().fail("b-0").finish_stopping(*ALL)
    assert jobs.state == "FAILED"
    assert jobs.status.details.endswith("the only restart is used up (failure.max_restarts)")


def test_C13_a_rule_fails_the_run_with_restarts_left() -> None:
    jobs = running(**rules({**FAIL, "name": "Fatal"}, most=5)).fail("b-0").finish_stopping(*ALL)
    assert (jobs.state, jobs.status.last_incarnation) == ("FAILED", 0)
    assert jobs.status.details.endswith("rule Fatal")


DEADLINE = {"onJobFailureReasons": ["DeadlineExceeded"]}
LIMIT = {"onJobFailureReasons": ["BackoffLimitExceeded"]}
#: Patterns for the Job controller's message, which is the same for all Jobs at their limit.
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
def test_rules_that_fail_the_run(rule: dict[str, Any], message: str, fails: bool) -> None:
    """If the rule does not match, the default applies: a restart."""
    jobs = (
        running(**rules({**FAIL, **rule}, most=1))
        .fail("b-0", message=message)
        .finish_stopping(*ALL)
    )
    assert jobs.state == ("FAILED" if fails else "IN_PROGRESS")
    assert jobs.attempts() == ([0] * 4 if fails else [1] * 4)
    assert jobs.status.spent.run == (0 if fails else 1)


@pytest.mark.shows("jobset/failure-recreates-all")
def test_C19_a_rule_restarts_the_run() -> None:
    """Nodes get the number of the attempt; MUSTER_RUN_RESTARTS has the label's value."""
    jobs = running(**rules(RESTART, most=1)).complete("b-0").fail("a-0").finish_stopping(*ALL)
    assert (jobs.status.last_incarnation, jobs.status.spent.run) == (1, 1)
    assert (jobs.current(), jobs.attempts()) == (ALL, [1] * 4)
    assert [effect.attempt for effect in jobs.effects if hasattr(effect, "attempt")] == [1]


def test_C20_the_log_has_the_restart_and_the_recovery() -> None:
    jobs = running(**rules({**RESTART, "name": "Rule1"}, most=1)).fail("a-0")
    assert jobs.notes("restart")[0]["why"].endswith("; rule Rule1")
    jobs.finish_stopping(*ALL).all_ready()
    ready = [note for note in jobs.notes("nodes") if note["state"] == "READY"]
    assert ready[-1] == {"ranks": "0-3", "state": "READY", "restart": 1}


def test_C21_a_rule_restarts_one_job() -> None:
    jobs = running(**rules({"action": "RestartJob"}, most=1)).fail("b-1")
    assert jobs.current() == ALL
    assert jobs.attempts() == [0, 0, 1, 0]
    assert (jobs.status.attempt, jobs.status.spent.run) == (0, 1)


def test_C22_a_rule_restarts_one_job_uncounted() -> None:
    action = {"action": "RestartJobAndIgnoreMaxRestarts"}
    jobs = running(**rules(action, most=0)).fail("b-1").all_ready().fail("b-1")
    assert (jobs.attempts(), jobs.status.spent.run) == ([0, 0, 2, 0], 0)


def test_C23_recreate_waits_for_each_job_alone() -> None:
    jobs = running(**rules(RESTART, most=1, restartStrategy="Recreate")).fail("a-0")
    jobs.finish_stopping("b-0", "b-2")
    assert (jobs.current(), jobs.stopping()) == (["a-0", "b-0", "b-2"], ["b-1"])
    assert jobs.finish_stopping("b-1").current() == ALL


def test_C24_blocking_recreate_waits_for_all_jobs() -> None:
    jobs = running(**rules(RESTART, most=1, restartStrategy="BlockingRecreate")).fail("a-0")
    jobs.finish_stopping("b-0", "b-2")
    assert (jobs.current(), jobs.missing()) == ([], ["a-0", "b-0", "b-2"])
    assert jobs.finish_stopping("b-1").current() == ALL


def test_C25_a_rule_restarts_the_run_uncounted() -> None:
    jobs = running(**rules(FREE, most=1))
    for _ in range(3):
        jobs.fail("b-0").finish_stopping(*ALL).all_ready()
    assert (jobs.status.last_incarnation, jobs.status.spent.run, jobs.state) == (
        3,
        0,
        "IN_PROGRESS",
    )


@pytest.mark.shows("jobset/failure-rules")
@pytest.mark.parametrize(
    ("job", "restarts"),
    [
        pytest.param("b-0", 0, id="C26 a Job of the target"),
        pytest.param("a-0", 1, id="C27 a Job of another group"),
    ],
)
def test_rules_have_targets(job: str, restarts: int) -> None:
    jobs = (
        running(**rules({**FAIL, "targetReplicatedJobs": ["b"]}, most=1))
        .fail(job)
        .finish_stopping(*ALL)
    )
    assert jobs.state == ("IN_PROGRESS" if restarts else "FAILED")
    assert jobs.status.last_incarnation == restarts


@pytest.mark.shows("jobset/failure-rules")
@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [
        pytest.param(FAIL, RESTART, None, id="C28 the first fails it"),
        pytest.param(FREE, FAIL, 0, id="C28 the first restarts it"),
    ],
)
def test_the_first_rule_that_matches_wins(
    first: dict[str, Any], second: dict[str, Any], counted: int | None
) -> None:
    jobs = running(**rules({**first, **LIMIT}, second, most=1)).fail("b-0").finish_stopping(*ALL)
    assert jobs.state == ("FAILED" if counted is None else "IN_PROGRESS")
    assert jobs.status.last_incarnation == (0 if counted is None else 1)
    assert jobs.status.spent.run == 0


def test_C29_rules_for_each_replicated_job() -> None:
    of_a, of_b = {"targetReplicatedJobs": ["a"]}, {"targetReplicatedJobs": ["b"]}
    jobs = running(**rules({**FREE, **of_a}, {**FAIL, **of_b}, most=0))
    for _ in range(3):
        jobs.fail("a-0").finish_stopping(*ALL).all_ready()
    assert (jobs.state, jobs.status.last_incarnation) == ("IN_PROGRESS", 3)
    assert jobs.fail("b-2").finish_stopping(*ALL).state == "FAILED"


def test_C30_a_failure_takes_precedence_over_a_success() -> None:
    jobs = running(failurePolicy={"maxRestarts": 1})
    jobs.step(*(jobs.ended(rank) for rank in range(3)), jobs.ended(3, 1))
    assert (jobs.state, jobs.status.last_incarnation) == ("IN_PROGRESS", 1)
    assert jobs.all_ready().complete(*ALL).state == "SUCCEEDED"


def test_all_failures_in_one_step_are_handled() -> None:
    """JobSet handles one failed Job in each reconciliation."""
    jobs = running(**rules({"action": "RestartJob"}, most=2)).fail("b-0", "b-2")
    assert (jobs.attempts(), jobs.status.spent.run) == ([0, 1, 0, 2], 2)
    failed = running(**rules({"action": "RestartJob"}, most=1)).fail("b-0", "b-2")
    assert failed.finish_stopping(*ALL).state == "FAILED"


def test_a_job_fails_with_its_first_failed_pod() -> None:
    """In Kubernetes, a Job has failed only after all its pods have ended."""
    jobs = Jobs(jobset([replicated("a", 2, 3)], failurePolicy={"maxRestarts": 1})).all_ready()
    jobs.fail("a-1")
    assert (jobs.status.attempt, jobs.stopping()) == (1, ["a-0"])
    assert [node.next_incarnation for node in jobs.status.nodes] == [1, 1, 1, None, 1, 1]
