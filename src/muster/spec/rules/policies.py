"""Rules for success, failure and time. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any

from muster.errors import Problem
from muster.spec.models import DEFAULT_GROUP, JobSpec, NodeGroup
from muster.spec.patterns import check_together
from muster.spec.policies import FailureRule, named_rules
from muster.spec.quantities import format_duration as _time
from muster.spec.wording import Refused, short, suggestion

#: Reasons without an exit code of the program: Muster stopped the node, or lost it.
_WITHOUT_EXIT = (
    *("not_started", "node_lost", "preempted", "canceled", "startup_timeout"),
    *("deadline", "hang", "unhealthy", "preflight"),
)
_UNCATCHABLE = ("SIGKILL", "SIGSTOP")
#: Conditions of a rule; those that differ most between rules come first.
_CONDITIONS = ("messages", "groups", "exit_codes", "signals", "reasons")
_ANY = ("", None)


def policy_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Values that exclude each other."""
    yield from _times(spec)
    if spec.checkpoint is not None and spec.checkpoint.signal in _UNCATCHABLE:
        text = (
            f"{spec.checkpoint.signal} cannot be caught, so there would be no time for a checkpoint"
        )
        yield Problem("checkpoint.signal", text, "use one such as SIGUSR1")
    seen: dict[str, int] = {}
    for number, (rule, name) in enumerate(named_rules(spec.failure.rules)):
        path = f"failure.rules[{number}]"
        if name in seen:
            text = f"failure.rules[{seen[name]}] is already named {name!r}"
            yield Problem(f"{path}.name", text, "rule names are unique")
        seen.setdefault(name, number)
        yield from _rule(path, rule)


def policy_gaps(spec: JobSpec) -> Iterator[Problem]:
    """Problems of policies that could be read."""
    known = [group.name for group in spec.node_groups] or [DEFAULT_GROUP]
    yield from _groups("success.groups", spec.success.groups, known)
    least = [group.min_success for group in spec.node_groups] or [spec.min_success]
    if spec.success.when == "any" and not spec.success.groups and not any(n != 0 for n in least):
        text = "no group can succeed: each has min_success 0"
        yield Problem("success.when", text, "list groups in success.groups")
    for number, rule in enumerate(spec.failure.rules):
        yield from _groups(f"failure.rules[{number}].groups", rule.groups, known)
    yield from _unreachable(spec.failure.rules)
    try:
        check_together(text for rule in spec.failure.rules for text in rule.messages)
    except Refused as refused:
        yield Problem("failure.rules", refused.message, refused.hint)
    wait = spec.failure.backoff
    if wait.initial > wait.max:
        text = f"{_time(wait.initial)} is longer than max, {_time(wait.max)}"
        yield Problem("failure.backoff.initial", text, "make it shorter, or max longer")


def _times(spec: JobSpec) -> Iterator[Problem]:
    if spec.attempt_timeout is not None and spec.attempt_timeout > spec.max_runtime:
        text = f"{_time(spec.attempt_timeout)} is longer than max_runtime, "
        text += _time(spec.max_runtime)
        yield Problem("attempt_timeout", text, "make it shorter; a run may have several attempts")
    levels: list[tuple[str, JobSpec | NodeGroup]] = [
        ("", spec),
        *((f"node_groups[{n}].", g) for n, g in enumerate(spec.node_groups)),
    ]
    for prefix, level in levels:
        if level.hang_timeout is not None and not spec.logging.enabled:
            text = "needs the output, but logging.enabled is false"
            yield Problem(f"{prefix}hang_timeout", text, "keep only one of them")
    for number, group in enumerate(spec.node_groups):
        own = group.ready_timeout is not None
        ready = group.ready_timeout if own else spec.ready_timeout
        if group.timeout is not None and ready is not None and ready > group.timeout:
            text = f"{_time(ready)} is longer than the timeout of group {group.name}, "
            text += _time(group.timeout)
            path = f"node_groups[{number}].ready_timeout" if own else "ready_timeout"
            yield Problem(path, text, "a replica must be ready before it times out")


def _rule(path: str, rule: FailureRule) -> Iterator[Problem]:
    if rule.action in ("fail", "fail_replica"):
        text = f"has no effect with action: {rule.action}, which restarts nothing"
        if not rule.count:
            yield Problem(f"{path}.count", text, "remove it, or choose another action")
        if rule.max_restarts is not None:
            yield Problem(f"{path}.max_restarts", text, "remove it, or choose another action")
    if rule.group_failed and rule.action in ("fail_replica", "restart_node"):
        text = f"{rule.action} is too little for a group that has failed"
        yield Problem(f"{path}.action", text, "use restart_replica, or remove group_failed")
    if rule.group_failed and rule.before_retries:
        text = "conflicts with group_failed: a group fails when its retries are used up"
        yield Problem(f"{path}.before_retries", text, "remove one of them")
    for name in ("exit_codes", "signals"):
        never = [reason for reason in rule.reasons if reason in _WITHOUT_EXIT]
        if getattr(rule, name) and never:
            text = f"failures with reason {never[0]} have no {name}, so this rule never matches"
            yield Problem(f"{path}.reasons", text, f"write a separate rule for {never[0]}")


def _unreachable(rules: Sequence[FailureRule]) -> Iterator[Problem]:
    for number, before in sorted(covered(rules).items()):
        text = f"never applies: failure.rules[{before}] matches all its failures first"
        early = rules[before].before_retries and not rules[number].before_retries
        how = "give it before_retries and " if early else ""
        yield Problem(
            f"failure.rules[{number}]", text, f"{how}put it before that one, or remove it"
        )


def covered(rules: Sequence[FailureRule]) -> dict[int, int]:
    """Rules that never apply: number -> the rule that matches all their failures first."""
    ordered = sorted(range(len(rules)), key=lambda number: not rules[number].before_retries)
    # index of rules by each value of their first condition: a rule that covers another has one of
    # its values, so that few pairs of rules are compared
    earlier: defaultdict[tuple[str, Any], list[tuple[int, int]]] = defaultdict(list)
    found: dict[int, int] = {}
    for place, number in enumerate(ordered):
        rule = rules[number]
        own = [(name, values) for name in _CONDITIONS if (values := getattr(rule, name))]
        likely = [earlier[_ANY]]
        for name, values in own:
            likely.append(min((earlier[name, value] for value in values), key=len))
        before = (n for _, n in merge(*likely))
        decides = next((n for n in before if _covers(rules[n], rule)), None)
        if decides is not None:
            found[number] = decides
            continue
        for key in [(own[0][0], value) for value in own[0][1]] if own else [_ANY]:
            earlier[key].append((place, number))
    return found


def _covers(before: FailureRule, rule: FailureRule) -> bool:
    """Whether `before` matches every failure that `rule` matches."""
    if before.messages and before.text != rule.text:
        return False  # they search different texts
    if before.group_failed and not set(rule.group_failed or [""]) <= set(before.group_failed):
        return False
    if rule.group_failed and before.action in ("fail_replica", "restart_node"):
        return False  # it is about nodes
    pairs = ((getattr(before, name), getattr(rule, name)) for name in _CONDITIONS)
    return all(not wide or (narrow and set(narrow) <= set(wide)) for wide, narrow in pairs)


def _groups(path: str, names: Sequence[str], known: Sequence[str]) -> Iterator[Problem]:
    for number, name in enumerate(names):
        if name not in known:
            text = f"no group named {short(name)}"
            yield Problem(f"{path}[{number}]", text, suggestion(name, known))
        elif name in names[:number]:
            yield Problem(f"{path}[{number}]", f"{name} is listed twice", "remove one")
