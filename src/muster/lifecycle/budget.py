"""Budgets: how many restarts a run, a group and a rule may have, and what a replica may retry.

JobSet: maxRestarts = N allows N restarts, of whatever scope; those that a rule does not count are
free. A budget of a group or a rule comes on top and never allows more.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from muster.lifecycle.policy import GroupPolicy, Rule
from muster.lifecycle.status import Failure
from muster.lifecycle.turn import Turn


def exhausted(turn: Turn, rule: Rule, failure: Failure) -> str:
    """Which budget has nothing left for another restart, in words; "" if all have."""
    spent, policy = turn.run.spent, turn.policy
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
        return f"the one restart is used up ({where})"
    return f"all {budget} restarts are used up ({where})"


def spend(turn: Turn, rule: Rule, failure: Failure) -> None:
    """Count a restart by a rule."""
    spent = turn.run.spent
    if rule.name:
        spent = replace(spent, rules=_plus(spent.rules, rule.name))
    if rule.counted:
        spent = replace(spent, run=spent.run + 1, groups=_plus(spent.groups, failure.group))
    turn.update(spent=spent)


def retry(turn: Turn, failure: Failure) -> str:
    """Take one of the retries the failed node's replica has; in words, "" if it has none left.

    Kubernetes: backoffLimit.
    """
    group = turn.policy.group_of(failure.rank)
    key = _key(group, group.replica_of(failure.rank))
    used = turn.run.spent.retries.get(key, 0)
    if used >= group.retries:
        return ""
    spent = turn.run.spent
    turn.update(spent=replace(spent, retries=_plus(spent.retries, key)))
    return f"retry {used + 1} of {group.retries}"


def renew_retries(turn: Turn, ranks: range) -> None:
    """Replicas that start again as a whole have all their retries again."""
    spent = turn.run.spent
    kept = {key: used for key, used in spent.retries.items() if not _within(turn, key, ranks)}
    turn.update(spent=replace(spent, retries=kept))


def _within(turn: Turn, key: str, ranks: range) -> bool:
    name, _, replica = key.rpartition("/")
    group = next(group for group in turn.policy.groups if group.name == name)
    return group.replica_ranks(int(replica))[0] in ranks


def _key(group: GroupPolicy, replica: int) -> str:
    return f"{group.name}/{replica}"


def _plus(counts: Mapping[str, int], name: str) -> dict[str, int]:
    return {**counts, name: counts.get(name, 0) + 1}
