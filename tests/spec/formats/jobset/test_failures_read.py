"""Failure policies of a JobSet and of its Jobs read as failure rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from muster.spec.policies import Backoff, FailurePolicy, FailureRule
from support.jobset_manifests import JOB, Make, Read

LIMIT = (
    "exit",
    "out_of_memory",
    "node_lost",
    "preempted",
    "canceled",
    "startup_timeout",
    "hang",
    "unhealthy",
    "preflight",
    "not_started",
    "output_lost",
)


CODES = ("exit", "out_of_memory")


REACHED = "Job has reached the specified backoff limit"


LOST = ("node_lost", "preempted")


NEITHER_CODES_NOR_LOST = (
    "canceled",
    "startup_timeout",
    "hang",
    "unhealthy",
    "preflight",
    "not_started",
    "output_lost",
)


#: A rule, the pod failure rules of the workers -> Muster's rules.
RULES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[FailureRule]]] = {
    "without a condition": (
        {"action": "FailJobSet"},
        [],
        [FailureRule(action="fail", name="failurePolicyRule0")],
    ),
    "for some Jobs": (
        {"name": "some", "action": "RestartJob", "targetReplicatedJobs": ["workers", "workers"]},
        [],
        [FailureRule(action="restart_replica", name="some", groups=("workers",))],
    ),
    "without counting": (
        {"name": "free", "action": "RestartJobAndIgnoreMaxRestarts"},
        [],
        [FailureRule(action="restart_replica", name="free", count=False)],
    ),
    "restart of all without counting": (
        {"name": "free", "action": "RestartJobSetAndIgnoreMaxRestarts"},
        [],
        [FailureRule(action="restart_run", name="free", count=False)],
    ),
    "a deadline": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
        [],
        [FailureRule(action="fail", name="r.deadline", reasons=("deadline",))],
    ),
    "too many failed pods": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]},
        [],
        [FailureRule(action="fail", name="r.limit", reasons=LIMIT)],
    ),
    "a pod failure policy": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        [
            {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2, 3]}},
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        [
            FailureRule(
                action="fail",
                name="r.pods.workers",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(2, 3),
            ),
            FailureRule(
                action="fail",
                name="r.pods.workers.lost",
                groups=("workers",),
                reasons=LOST,
            ),
        ],
    ),
    "failures without a pod failure rule": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]},
        [
            {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [7]}},
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        [
            FailureRule(action="fail", name="r.limit", groups=("driver",), reasons=LIMIT),
            FailureRule(
                action="fail",
                name="r.limit.workers",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(7,),
            ),
            FailureRule(
                action="fail",
                name="r.limit.workers.others",
                groups=("workers",),
                reasons=NEITHER_CODES_NOR_LOST,
            ),
        ],
    ),
    "everything but a deadline": (
        {
            "name": "r",
            "action": "FailJobSet",
            "onJobFailureReasons": ["BackoffLimitExceeded", "PodFailurePolicy"],
        },
        [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}],
        [FailureRule(action="fail", name="r.pods.limit", reasons=LIMIT)],
    ),
    "failures that cannot happen": (
        {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["FailedIndexes"]},
        [],
        [],
    ),
    "messages": (
        {"name": "r", "action": "FailJobSet", "onJobFailureMessagePatterns": ["exit code 3"]},
        [
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        [
            FailureRule(
                action="restart_node",
                name="workers.ignored",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(7,),
                count=False,
                before_retries=True,
            ),
            FailureRule(
                action="fail",
                name="r.deadline",
                reasons=("deadline",),
                messages=("exit code 3",),
                text="Job was active longer than specified deadline",
            ),
            FailureRule(
                action="fail",
                name="r.pods.workers.1",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(3,),
                messages=("exit code 3",),
                text="Container main for pod default/demo-workers-${replica}-${index}-xxxxx failed "
                "with exit code ${exit_code} matching FailJob rule at index 1",
            ),
            FailureRule(
                action="fail",
                name="r.pods.workers.lost",
                groups=("workers",),
                reasons=LOST,
                messages=("exit code 3",),
                text="Pod default/demo-workers-${replica}-${index}-xxxxx has condition "
                "DisruptionTarget matching FailJob rule at index 2",
            ),
            FailureRule(
                action="fail",
                name="r.limit",
                groups=("driver",),
                reasons=LIMIT,
                messages=("exit code 3",),
                text=REACHED,
            ),
            FailureRule(
                action="fail",
                name="r.limit.workers",
                groups=("workers",),
                reasons=CODES,
                exit_codes=tuple(code for code in range(1, 256) if code not in (3, 7)),
                messages=("exit code 3",),
                text=REACHED,
            ),
            FailureRule(
                action="fail",
                name="r.limit.workers.others",
                groups=("workers",),
                reasons=NEITHER_CODES_NOR_LOST,
                messages=("exit code 3",),
                text=REACHED,
            ),
        ],
    ),
    "pods replaced without counting": (
        {"name": "r", "action": "FailJobSet"},
        [
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        [
            FailureRule(
                action="restart_node",
                name="workers.ignored",
                groups=("workers",),
                reasons=CODES,
                exit_codes=(3,),
                count=False,
                before_retries=True,
            ),
            FailureRule(
                action="restart_node",
                name="workers.ignored-lost",
                groups=("workers",),
                reasons=LOST,
                count=False,
                before_retries=True,
            ),
            FailureRule(action="fail", name="r"),
        ],
    ),
}


@pytest.mark.parametrize("case", RULES)
def test_failure_rules(case: str, make: Make, read: Read) -> None:
    rule, pods, expected = RULES[case]
    changes: dict[str, Any] = {"spec.failurePolicy": {"maxRestarts": 2, "rules": [rule]}}
    if pods:
        changes[f"{JOB}.podFailurePolicy.rules"] = pods
    failure = read(make(changes)).spec.failure
    assert failure == FailurePolicy(
        max_restarts=2,
        rules=tuple(expected),
        strategy="recreate",
        backoff=Backoff(initial=0, jitter=0),
    )


FAIL_JOB = [
    {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2, 3]}},
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
]


def at_once(action: str, name: str, **more: Any) -> tuple[FailureRule, FailureRule]:
    """Rules that end a Job of the workers before its retries are used up."""
    what: dict[str, Any] = {"groups": ("workers",), "before_retries": True, **more}
    return (
        FailureRule(action=action, name=name, reasons=CODES, exit_codes=(1, 2), **what),  # type: ignore[arg-type]
        FailureRule(action=action, name=f"{name}.lost", reasons=LOST, **what),  # type: ignore[arg-type]
    )


def at_once_by_message() -> tuple[FailureRule, FailureRule]:
    """The same for a rule with a pattern: each with the text of the Job controller."""
    codes, lost = at_once("fail", "s.pods.workers", messages=("x",))
    pod = "default/demo-workers-${replica}-${index}-xxxxx"
    by_code = f"Container main for pod {pod} failed with exit code ${{exit_code}}"
    by_condition = f"Pod {pod} has condition DisruptionTarget"
    number = [i for i, r in enumerate(FAIL_JOB) if "onExitCodes" in r and r["action"] == "FailJob"]
    end = " matching FailJob rule at index"
    return (
        replace(codes, name=f"s.pods.workers.{number[0]}", text=f"{by_code}{end} {number[0]}"),
        replace(lost, text=f"{by_condition}{end} {len(FAIL_JOB) - 1}"),
    )


#: A failure policy -> Muster's rules for retried Jobs, after the rule about ignored failures.
RETRIED: dict[str, tuple[dict[str, Any] | None, list[FailureRule]]] = {
    "no policy": (None, [*at_once("fail", "workers.at-once")]),
    "no restarts": ({"maxRestarts": 0}, [*at_once("fail", "workers.at-once")]),
    "restarts": ({"maxRestarts": 1}, [*at_once("restart_run", "workers.at-once")]),
    "a rule about everything": (
        {"rules": [{"name": "r", "action": "RestartJob"}]},
        [
            *at_once("restart_replica", "r.at-once.workers"),
            FailureRule(action="restart_replica", name="r"),
        ],
    ),
    "a rule about these failures": (
        {
            "maxRestarts": 1,
            "rules": [
                {
                    "name": "r",
                    "action": "RestartJobAndIgnoreMaxRestarts",
                    "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
                }
            ],
        },
        [
            FailureRule(
                action="restart_replica", name="r.deadline", reasons=("deadline",), count=False
            ),
            *at_once("restart_replica", "r.pods.workers", count=False),
        ],
    ),
    "a rule about both": (
        {
            "rules": [
                {
                    "name": "r",
                    "action": "RestartJob",
                    "onJobFailureReasons": ["PodFailurePolicy", "BackoffLimitExceeded"],
                }
            ]
        },
        [
            *at_once("restart_replica", "r.at-once.workers"),
            FailureRule(action="restart_replica", name="r.pods.limit", reasons=LIMIT),
        ],
    ),
    "a rule about others": (
        {
            "maxRestarts": 2,
            "rules": [
                {"name": "r", "action": "FailJobSet", "targetReplicatedJobs": ["driver"]},
                {
                    "name": "s",
                    "action": "FailJobSet",
                    "onJobFailureReasons": ["PodFailurePolicy"],
                    "onJobFailureMessagePatterns": ["x"],
                },
            ],
        },
        [
            FailureRule(action="fail", name="r", groups=("driver",)),
            *at_once_by_message(),
            *at_once("restart_run", "workers.at-once"),
        ],
    ),
}


@pytest.mark.parametrize("case", RETRIED)
def test_pod_failure_policies_come_before_retries(case: str, make: Make, read: Read) -> None:
    policy, expected = RETRIED[case]
    changes: dict[str, Any] = {
        f"{JOB}.podFailurePolicy.rules": FAIL_JOB,
        f"{JOB}.backoffLimit": None,
    }
    if policy is not None:
        changes["spec.failurePolicy"] = policy
    manifest = read(make(changes))
    ignored, *rules = manifest.spec.failure.rules
    assert (ignored.name, ignored.before_retries) == ("workers.ignored", True)
    assert rules == expected
    assert manifest.spec.node_groups[1].retries == 6


def test_split_rules_can_exceed_the_length_of_a_name(make: Make, read: Read) -> None:
    rule = {"name": "n" * 128, "action": "FailJobSet"}
    changes = {
        f"{JOB}.podFailurePolicy.rules": FAIL_JOB,
        f"{JOB}.backoffLimit": 1,
        "spec.failurePolicy.rules": [rule],
    }
    names = [rule.name for rule in read(make(changes)).spec.failure.rules]
    assert f"{'n' * 128}.at-once.workers.lost" in names


def test_unreachable_rules_are_left_out(make: Make, read: Read) -> None:
    rules = [
        {"action": "RestartJobSet", "targetReplicatedJobs": ["driver", "workers"]},
        {"action": "FailJobSet", "targetReplicatedJobs": ["workers"]},
    ]
    manifest = read(make({"spec.failurePolicy.rules": rules}))
    assert len(manifest.spec.failure.rules) == 1
    assert manifest.notes == (
        "rule failurePolicyRule1 is left out: earlier rules match all of its failures",
    )


def test_the_deadline_of_a_job_is_final(make: Make, read: Read) -> None:
    changes = {"spec.activeDeadlineSeconds": 60, "spec.failurePolicy.maxRestarts": 3}
    (rule,) = read(make(changes)).spec.failure.rules
    assert (rule.action, rule.reasons) == ("fail", ("deadline",))
