"""Budgets: restarts allowed for a run, a group and a rule, and retries allowed for a replica.

JobSet: maxRestarts = N allows N restarts of any scope, except those that a rule does not count. A
budget of a group or a rule is an additional limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from muster.lifecycle.policy import GroupPolicy, Rule
from muster.lifecycle.status import Failure
from muster.lifecycle.transition import Transition


def exhausted(transition: Transition, rule: Rule, failure: Failure) -> str:
    """A sentence about the budget that is used up; "" if all budgets allow the restart."""
    spent, policy = transition.run.spent, transition.policy
    group = policy.group_of(failure.rank)
    if rule.counted and spent.run >= policy.max_restarts:
        return _none_left(policy.max_restarts, "failure.max_restarts")
    if rule.counted and group.max_restarts is not None:
        where = f"max_restarts of group {group.name}"
        if spent.groups.get(group.name, 0) >= group.max_restarts:
            return _none_left(group.max_restarts, where)
    if rule.max_restarts is not None and spent.rules.get(rule.name, 0) >= rule.max_restarts:
        return _none_left(rule.max_restarts, f"max_restarts of rule {rule.name}")
    return ""


def _none_left(budget: int, where: str) -> str:
    if budget == 0:
        return f"{where} allows no restart"
    if budget == 1:
        return f"the only restart is used up ({where})"
    return f"all {budget} restarts are used up ({where})"


def spend(transition: Transition, rule: Rule, failure: Failure) -> None:
    """Count a restart by a rule towards the budgets."""
    spent = transition.run.spent
    if rule.name:
        spent = replace(spent, rules=_increment(spent.rules, rule.name))
    if rule.counted:
        spent = replace(spent, run=spent.run + 1, groups=_increment(spent.groups, failure.group))
    transition.update(spent=spent)


def retry(transition: Transition, failure: Failure) -> str:
    """Use one retry of the failed node's replica. Returns its number as a phrase; "" if no
    retry is left.

    Kubernetes: backoffLimit.
    """
    group = transition.policy.group_of(failure.rank)
    key = _key(group, group.replica_of(failure.rank))
    used = transition.run.spent.retries.get(key, 0)
    if used >= group.retries:
        return ""
    spent = transition.run.spent
    transition.update(spent=replace(spent, retries=_increment(spent.retries, key)))
    return f"retry {used + 1} of {group.retries}"


def renew_retries(transition: Transition, ranks: range) -> None:
    """Reset the retries of replicas that are restarted as a whole."""
    spent = transition.run.spent
    kept = {key: used for key, used in spent.retries.items() if not _within(transition, key, ranks)}
    transition.update(spent=replace(spent, retries=kept))


def _within(transition: Transition, key: str, ranks: range) -> bool:
    name, _, replica = key.rpartition("/")
    group = next(group for group in transition.policy.groups if group.name == name)
    return group.replica_ranks(int(replica))[0] in ranks


def _key(group: GroupPolicy, replica: int) -> str:
    return f"{group.name}/{replica}"


def _increment(counts: Mapping[str, int], name: str) -> dict[str, int]:
    return {**counts, name: counts.get(name, 0) + 1}
