"""Check a JobSet's failurePolicy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from muster.errors import Problem
from muster.spec.formats.jobset.model import Failure, ReplicatedJob, Rule
from muster.spec.patterns import check_pattern
from muster.spec.wording import Refused, short

_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MAX_NAME = 128
#: JobSet: its status has a counter for each Job.
_MAX_REPLICAS = 1024
_SINGLE_JOB_ACTIONS = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")


def rule_name(rule: Rule, number: int) -> str:
    """The rule's name. JobSet: a rule without one gets a name from its number."""
    return rule.name or f"failurePolicyRule{number}"


def failure_problems(policy: Failure | None, jobs: Sequence[ReplicatedJob]) -> Iterator[Problem]:
    """Every problem of the policy."""
    if policy is None:
        return
    seen: dict[str, str] = {}
    for number, rule in enumerate(policy.rules):
        path = f"spec.failurePolicy.rules[{number}]"
        name = rule_name(rule, number)
        if not _NAME.fullmatch(name):
            hint = (
                "use letters, digits and _ , : start with a letter, end with a letter, digit or _"
            )
            yield Problem(f"{path}.name", f"{short(name)} cannot name a rule", hint)
        elif len(name) > _MAX_NAME:
            text = f"has {len(name)} characters"
            yield Problem(f"{path}.name", text, f"{_MAX_NAME} are allowed")
        if name in seen:
            text = f"{short(name)} is also the name of {seen[name]}"
            yield Problem(f"{path}.name", text, "names are unique")
        seen.setdefault(name, path)
        yield from _patterns(f"{path}.onJobFailureMessagePatterns", rule)
    yield from _too_many_replicas(policy, jobs)


def _patterns(path: str, rule: Rule) -> Iterator[Problem]:
    for number, pattern in enumerate(rule.on_job_failure_message_patterns):
        try:
            check_pattern(pattern)
        except Refused as refused:
            yield Problem(f"{path}[{number}]", refused.message, refused.hint)


def _too_many_replicas(policy: Failure, jobs: Sequence[ReplicatedJob]) -> Iterator[Problem]:
    single = [rule.action for rule in policy.rules if rule.action in _SINGLE_JOB_ACTIONS]
    for number, rj in enumerate(jobs if single else ()):
        if rj.replicas > _MAX_REPLICAS:
            action = single[0]
            text = f"{rj.replicas:,} replicas, and a rule with the action {action}"
            hint = f"with such a rule, a replicated Job can have {_MAX_REPLICAS}"
            yield Problem(f"spec.replicatedJobs[{number}].replicas", text, hint)
