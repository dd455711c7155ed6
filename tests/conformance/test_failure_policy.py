"""JobSet's unit tests of its failure policy: which Job failed first, which rule applies to it, and
what an action does to the counters. JobSet's maxRestarts is one budget for all restarts.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.lifecycle import cause
from muster.lifecycle.failure import Texts, choose, fits
from muster.lifecycle.policy import Action, Rule
from muster.lifecycle.status import Failure, Reason, Spent
from support.jobset import Jobs, jobset, plan_of, replicated, rules


def failure(
    rank: int = 0,
    reason: Reason = Reason.EXIT,
    at: float = 0.0,
    message: str = "",
    group: str = "a",
) -> Failure:
    return Failure(rank, group, reason, 1, 0, message, at)


# --- the first failed Job


@pytest.mark.parametrize(
    ("times", "first"),
    [
        pytest.param([5.0], 0, id="one"),
        pytest.param([3.0, 5.0], 0, id="in order"),
        pytest.param([5.0, 3.0], 1, id="out of order"),
        pytest.param([5.0, 5.0], 0, id="at once"),
    ],
)
def test_the_earliest_failure_is_the_first(times: list[float], first: int) -> None:
    """The function is not called without failures."""
    failures = [failure(rank, at=at) for rank, at in enumerate(times)]
    assert cause.first(failures) is failures[first]


# --- rules that apply

DEADLINE = ["DeadlineExceeded"]
LIMIT = ["BackoffLimitExceeded"]


@pytest.mark.parametrize(
    ("rule", "group", "reason", "message", "applies"),
    [
        pytest.param({}, "a", LIMIT, "", True, id="any target, any reason"),
        pytest.param({"onJobFailureReasons": LIMIT}, "a", LIMIT, "", True, id="any target, reason"),
        pytest.param(
            {"onJobFailureReasons": LIMIT}, "a", DEADLINE, "", False, id="any target, other reason"
        ),
        pytest.param({"targetReplicatedJobs": ["a"]}, "a", LIMIT, "", True, id="target"),
        pytest.param(
            {"targetReplicatedJobs": ["a"], "onJobFailureReasons": LIMIT},
            "a",
            LIMIT,
            "",
            True,
            id="target, reason",
        ),
        pytest.param(
            {"targetReplicatedJobs": ["a"], "onJobFailureReasons": LIMIT},
            "a",
            DEADLINE,
            "",
            False,
            id="target, other reason",
        ),
        pytest.param({"targetReplicatedJobs": ["a"]}, "b", LIMIT, "", False, id="other target"),
        pytest.param(
            {"targetReplicatedJobs": ["a"], "onJobFailureReasons": LIMIT},
            "b",
            LIMIT,
            "",
            False,
            id="other target, reason",
        ),
        pytest.param(
            {"targetReplicatedJobs": ["a"], "onJobFailureReasons": LIMIT},
            "b",
            DEADLINE,
            "",
            False,
            id="other target, other reason",
        ),
        pytest.param(
            {"onJobFailureMessagePatterns": ["backoff.*"]},
            "a",
            LIMIT,
            "",
            True,
            id="message",
        ),
        pytest.param(
            {"onJobFailureMessagePatterns": ["bad batch.*"]},
            "a",
            LIMIT,
            "out of space",
            False,
            id="other message",
        ),
        pytest.param(
            {"onJobFailureReasons": LIMIT, "onJobFailureMessagePatterns": [".*backoff.*"]},
            "a",
            LIMIT,
            "",
            True,
            id="reason, message",
        ),
        pytest.param(
            {"onJobFailureReasons": LIMIT, "onJobFailureMessagePatterns": [".*batch.*"]},
            "a",
            LIMIT,
            "out of space",
            False,
            id="reason, other message",
        ),
    ],
)
def test_a_rule_applies(
    rule: dict[str, Any], group: str, reason: list[str], message: str, applies: bool
) -> None:
    policy = plan_of(jobset(**rules({"action": "FailJobSet", **rule}))).policy
    why = Reason.DEADLINE if reason is DEADLINE else Reason.EXIT
    failed = failure(reason=why, message=message, group=group)
    assert any(fits(rule, failed, Texts(policy)) for rule in policy.rules) is applies


CODE_3 = {
    "rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [9]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3, 4]}},
    ]
}


@pytest.mark.parametrize(
    ("pattern", "code", "applies"),
    [
        ("failed with exit code 3 matching FailJob rule at index 1$", 3, True),
        ("failed with exit code 3", 4, False),
        ("^Container main for pod default/demo-a-1-0-[a-z0-9]{5} failed", 4, True),
        ("demo-a-0-0", 3, False),
        (r"exit code \d", 5, False),
        ("^Job has reached", 5, True),
        ("^Job has reached", 3, False),
    ],
)
def test_patterns_match_the_message_of_the_job_controller(
    pattern: str, code: int, applies: bool
) -> None:
    rule = {"action": "FailJobSet", "onJobFailureMessagePatterns": [pattern]}
    job = replicated("a", 2, job={"podFailurePolicy": CODE_3})
    policy = plan_of(jobset([job], **rules(rule, most=1))).policy
    failed = replace(failure(rank=1), exit_code=code)
    assert any(fits(r, failed, Texts(policy)) for r in policy.rules if r.messages) is applies


# --- the rule and the Job that it applies to

ON_EXIT = Rule("exit", Action.RESTART_RUN, reasons=(Reason.EXIT,))
ON_DEADLINE = Rule("deadline", Action.RESTART_RUN, reasons=(Reason.DEADLINE,))
ON_LOST = Rule("lost", Action.RESTART_RUN, reasons=(Reason.NODE_LOST,))
EACH = [ON_EXIT, ON_DEADLINE, ON_LOST]
ELSEWHERE = Rule("elsewhere", Action.RESTART_RUN, groups=("nowhere",))
EXIT, LATE, LOST = (
    failure(0, at=6.0),
    failure(1, Reason.DEADLINE, at=3.0),
    failure(2, Reason.NODE_LOST, at=1.0),
)
EARLIER = failure(3, at=0.5)


@pytest.mark.parametrize(
    ("configured", "failures", "rule", "failed"),
    [
        pytest.param([], [EXIT], None, EXIT, id="no rules"),
        pytest.param([ON_DEADLINE], [EXIT], None, EXIT, id="one that does not match"),
        pytest.param(
            [ON_EXIT, ON_DEADLINE, ON_LOST], [EXIT], ON_EXIT, EXIT, id="the first of three"
        ),
        pytest.param([ON_EXIT, ON_DEADLINE, ON_LOST], [LATE], ON_DEADLINE, LATE, id="the second"),
        pytest.param([ON_EXIT, ON_DEADLINE, ON_LOST], [LOST], ON_LOST, LOST, id="the third"),
        pytest.param([], [EXIT, LATE], None, LATE, id="no rules, two Jobs"),
        pytest.param([ON_DEADLINE], [EXIT, EARLIER], None, EARLIER, id="no match, two Jobs"),
        pytest.param([ON_EXIT], [EXIT, EARLIER], ON_EXIT, EARLIER, id="the earlier of two"),
        pytest.param(
            [ELSEWHERE, ON_EXIT], [EXIT, EARLIER], ON_EXIT, EARLIER, id="the earlier, second rule"
        ),
        pytest.param([ON_EXIT, ON_LOST], [LOST, EXIT], ON_EXIT, EXIT, id="rules before Jobs"),
    ],
)
def test_the_first_matching_rule_and_its_failure_are_chosen(
    configured: list[Rule], failures: list[Failure], rule: Rule | None, failed: Failure
) -> None:
    """The function is not called without failures."""
    policy = replace(plan_of(jobset()).policy, groups=(), rules=tuple(configured))
    assert choose(policy, sorted(failures, key=cause.order)) == (rule, failed)


# --- effects of actions on the counters

ONE = {"a": 1}


@pytest.mark.parametrize(
    ("action", "most", "before", "restarts", "counted", "name"),
    [
        pytest.param("RestartJobSet", 5, 1, 2, 2, "", id="counts"),
        pytest.param("RestartJobSet", 5, 1, 2, 2, "Rule1", id="counts, by name"),
        pytest.param("RestartJobSet", 2, 2, 2, 2, "", id="none left"),
        pytest.param("RestartJobSetAndIgnoreMaxRestarts", 1, 1, 2, 1, "", id="uncounted"),
        pytest.param("RestartJob", 5, 0, 1, 1, "", id="one Job counts"),
        pytest.param("RestartJob", 2, 2, 2, 2, "", id="one Job, none left"),
        pytest.param("RestartJobAndIgnoreMaxRestarts", 1, 0, 1, 0, "", id="one Job, uncounted"),
        pytest.param("FailJobSet", 5, 0, 0, 0, "", id="fails"),
    ],
)
def test_actions_count_restarts(
    action: str, most: int, before: int, restarts: int, counted: int, name: str
) -> None:
    """`before` is the number of counted restarts before the failure."""
    named = {"name": name} if name else {}
    jobs = Jobs(jobset(ONE, **rules({"action": action, **named}, most=most))).all_ready()
    spent = Spent(run=before, groups={"a": before})
    jobs.status = replace(jobs.status, last_incarnation=before, spent=spent)
    jobs.fail("a-0")
    ends = restarts == before
    assert jobs.state == ("FAILED" if ends else "IN_PROGRESS")
    assert (jobs.status.last_incarnation, jobs.status.spent.run) == (restarts, counted)
    if name:
        assert jobs.notes("restart")[0]["why"].endswith(f"; rule {name}")


def test_one_budget_for_all_kinds_of_restarts() -> None:
    """JobSet adds restarts of the JobSet and of single Jobs."""
    of_a = {"action": "RestartJobSet", "targetReplicatedJobs": ["a"]}
    of_b = {"action": "RestartJob", "targetReplicatedJobs": ["b"]}
    jobs = Jobs(jobset(**rules(of_a, of_b, most=2))).all_ready()
    jobs.fail("a-0").finish_stopping("b-0", "b-1", "b-2").all_ready().fail("b-1").all_ready()
    assert (jobs.status.attempt, jobs.status.last_incarnation, jobs.status.spent.run) == (1, 2, 2)
    jobs.fail("a-0")
    assert jobs.status.stopping is not None
    assert jobs.status.stopping.note == "all 2 restarts are used up (failure.max_restarts)"
