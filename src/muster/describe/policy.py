"""Sentences about a run's policy."""

from __future__ import annotations

from collections.abc import Iterator

from muster.describe.words import plural
from muster.lifecycle.policy import (
    Action,
    EarlySuccess,
    GroupFailure,
    GroupPolicy,
    Policy,
    Rule,
)
from muster.spec.quantities import format_duration

#: How a group has failed.
_GROUP_FAILURES = {
    GroupFailure.MAX_FAILED: "more than `max_failed` of its replicas",
    GroupFailure.TOTAL_RETRIES: "no `total_retries` left",
    GroupFailure.MIN_SUCCESS: "too few successes",
}


def policy_sentences(policy: Policy) -> Iterator[str]:
    """Describe startup order, success, failure and time limits; omits what is not set."""
    yield f"startup: {_startup(policy)}"
    yield f"success: {_success(policy)}"
    yield f"failure: {_failure(policy)}"
    for number, rule in enumerate(policy.rules, 1):
        yield f"  {number}. {rule.name}: {_rule(rule)}"
    for group in policy.groups:
        yield from _group(group)
    if policy.attempt_timeout is not None:
        yield f"maximum runtime of an attempt: {format_duration(policy.attempt_timeout)}"
    yield f"maximum runtime: {format_duration(policy.max_runtime)}"


def _startup(policy: Policy) -> str:
    if policy.in_order:
        return "each group when the one before it is ready"
    waits = []
    for group in policy.groups:
        for other in group.depends_on:
            until = "has succeeded" if other.complete else "is ready"
            waits.append(f"{group.name} when {policy.groups[other.group].name} {until}")
    return ", ".join(waits) or "all at once"


def _success(policy: Policy) -> str:
    rules = policy.success
    names = ", ".join(policy.groups[index].name for index in rules.groups)
    names = f"{'group' if len(rules.groups) == 1 else 'groups'} {names}"
    if rules.any_replica:
        text = f"when a replica of {names} succeeds"
    elif not any(policy.groups[index].min_success for index in rules.groups):
        text = f"when every node of {names} has ended, with any outcome"
    else:
        text = f"when {names} {'has' if len(rules.groups) == 1 else 'have'} succeeded"
    others = "may finish" if rules.wait else "are stopped"
    return f"{text}; nodes still running then {others}"


def _failure(policy: Policy) -> str:
    ends = (Action.FAIL, Action.FAIL_REPLICA)
    if not policy.max_restarts and all(rule.action in ends for rule in policy.rules):
        return "the run fails when a required node fails"
    if not policy.max_restarts:
        return "the run fails when a required node fails, unless a rule below restarts it"
    strategy = policy.strategy.replace("_", " ")
    text = f"{policy.action.replace('_', ' ')} ({strategy}), {_times(policy.max_restarts)}"
    if policy.backoff.initial:
        wait = format_duration(policy.backoff.initial)
        text += f"; the first restart is immediate, the second in a row waits {wait}"
    return text


def _rule(rule: Rule) -> str:
    conditions = [
        _one_of("group", rule.groups),
        _one_of("exit code", rule.exit_codes),
        _one_of("signal", rule.signals),
        _one_of("reason", rule.reasons),
        _one_of("message", rule.messages),
    ]
    failed = " or ".join(_GROUP_FAILURES[failure] for failure in rule.group_failed)
    conditions.append(f"the failure of a group ({failed})" if failed else "")
    condition = " and ".join(filter(None, conditions)) or "anything"
    text = f"on {condition}, {rule.action.replace('_', ' ')}"
    if rule.before_retries:
        text = f"before `retries`: {text}"
    if rule.action in (Action.FAIL, Action.FAIL_REPLICA):
        return text
    if rule.max_restarts is not None:
        text += f", {_times(rule.max_restarts)}"
    return text if rule.counted else f"{text}, not counted in max_restarts"


def _one_of(what: str, values: tuple[object, ...]) -> str:
    shown = [str(value) for value in values[:6]] + (["..."] if len(values) > 6 else [])
    return f"{what} {' or '.join(shown)}" if values else ""


def _group(group: GroupPolicy) -> Iterator[str]:
    if group.only is not None:
        yield f"group {group.name}: only replicas {group.only.replace(',', ', ')}"
    if group.parallelism is not None and group.parallelism < group.initial:
        at_once = plural(group.parallelism, "replica")
        yield f"group {group.name}: at most {at_once} at once, in order"
    if group.max_failed is not None and group.max_failed < group.initial:
        failed = f"more than {plural(group.max_failed, 'replica')}" if group.max_failed else "one"
        has = "have" if group.max_failed else "has"
        yield f"group {group.name}: the others are stopped when {failed} {has} failed"
    for enough in group.early_success:
        yield f"group {group.name}: {_early_success(enough)}"
    if group.total_retries is not None:
        failures = plural(group.total_retries, "failure")
        yield f"group {group.name}: at most {failures} in all replicas together (`total_retries`)"
    if group.retries:
        times = _times(group.retries)
        whole = group.retries_replicas
        what = "failed replica is restarted" if whole else "failed node is restarted alone"
        yield f"group {group.name}: a {what}, {times} (`retries`)"
    if group.max_restarts is not None:
        most = group.max_restarts
        number = f"at most {plural(most, 'restart')}" if most else "no restarts"
        yield f"group {group.name}: {number} after failures in this group"
    if group.ready_timeout is not None:
        limit = format_duration(group.ready_timeout)
        yield f"group {group.name}: each node must be ready within {limit}"
    if group.timeout is not None:
        yield f"group {group.name}: each replica may run {format_duration(group.timeout)}"
    if group.max_runtime is not None:
        yield f"group {group.name}: may run {format_duration(group.max_runtime)}"


def _early_success(enough: EarlySuccess) -> str:
    which = "" if enough.replicas is None else f" {enough.replicas.replace(',', ', ')}"
    if enough.count is None:
        return f"the others are stopped when replicas{which} have succeeded"
    has = "has" if enough.count == 1 else "have"
    several = f"{enough.count} of replicas{which}" if which else plural(enough.count, "replica")
    return f"the others are stopped when {several} {has} succeeded"


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"up to {number} times")
