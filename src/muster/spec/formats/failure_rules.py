"""What is wrong with a JobSet's failurePolicy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from muster.errors import Problem
from muster.spec.formats.jobset_model import Failure, ReplicatedJob, Rule
from muster.spec.patterns import check_pattern
from muster.spec.wording import Refused, short

_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LONGEST_NAME = 128
#: JobSet keeps a counter for each Job in its status.
_MOST_SINGLE = 1024
_SINGLE = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")


def rule_name(rule: Rule, number: int) -> str:
    """JobSet: what a rule without a name is called."""
    return rule.name or f"failurePolicyRule{number}"


def failure_problems(policy: Failure | None, jobs: Sequence[ReplicatedJob]) -> Iterator[Problem]:
    """Everything that is wrong with it."""
    if policy is None:
        return
    seen: dict[str, str] = {}
    for number, rule in enumerate(policy.rules):
        path = f"spec.failurePolicy.rules[{number}]"
        name = rule_name(rule, number)
        if not _NAME.fullmatch(name):
            hint = "use letters, digits and _ , : from a letter to a letter, digit or _"
            yield Problem(f"{path}.name", f"{short(name)} cannot name a rule", hint)
        elif len(name) > _LONGEST_NAME:
            text = f"has {len(name)} characters"
            yield Problem(f"{path}.name", text, f"{_LONGEST_NAME} are allowed")
        if name in seen:
            text = f"{short(name)} is the name of {seen[name]}, too"
            yield Problem(f"{path}.name", text, "names are unique")
        seen.setdefault(name, path)
        yield from _patterns(f"{path}.onJobFailureMessagePatterns", rule)
    yield from _too_many(policy, jobs)


def _patterns(path: str, rule: Rule) -> Iterator[Problem]:
    for number, pattern in enumerate(rule.on_job_failure_message_patterns):
        try:
            check_pattern(pattern)
        except Refused as refused:
            yield Problem(f"{path}[{number}]", refused.message, refused.hint)


def _too_many(policy: Failure, jobs: Sequence[ReplicatedJob]) -> Iterator[Problem]:
    single = [rule.action for rule in policy.rules if rule.action in _SINGLE]
    for number, rj in enumerate(jobs if single else ()):
        if rj.replicas > _MOST_SINGLE:
            action = single[0]
            text = f"{rj.replicas:,} replicas, and a rule with the action {action}"
            hint = f"with such a rule, a replicated Job can have {_MOST_SINGLE}"
            yield Problem(f"spec.replicatedJobs[{number}].replicas", text, hint)
