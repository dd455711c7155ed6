"""Budgets: restarts allowed for a run, a group and a rule, and retries allowed for a replica.

JobSet: maxRestarts = N allows N restarts of any scope, except those that a rule does not count. A
budget of a group or a rule is an additional limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from muster.lifecycle.policy import GroupPolicy, Rule
from muster.lifecycle.states import UNSTARTED, NodeState
from muster.lifecycle.status import Failure
from muster.lifecycle.transition import Transition


def exhausted(transition: Transition, rule: Rule, failure: Failure) -> str:
    """A sentence about the budget that is used up; "" if all budgets allow the restart."""
    spent, policy = transition.run.spent, transition.policy
    group = policy.group_of(failure.rank)
    if rule.counted and spent.run >= policy.max_restarts:
        return none_left(policy.max_restarts, "failure.max_restarts")
    if rule.counted and group.max_restarts is not None:
        where = f"max_restarts of group {group.name}"
        if spent.groups.get(group.name, 0) >= group.max_restarts:
            return none_left(group.max_restarts, where)
    if rule.max_restarts is not None and spent.rules.get(rule.name, 0) >= rule.max_restarts:
        return none_left(rule.max_restarts, f"max_restarts of rule {rule.name}")
    return ""


def none_left(budget: int, where: str) -> str:
    """A sentence about a budget that is used up. where: its name."""
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
        groups = _increment(spent.groups, failure.group)
        spent = replace(spent, run=spent.run + 1, groups=groups)
        number = transition.run.last_incarnation + 1
        transition.update(counted_restarts=(*_counted_so_far(transition), number))
    transition.update(spent=spent)


def _counted_so_far(transition: Transition) -> tuple[int, ...]:
    """The restarts that were counted, without many that are over. Thousands of nodes may restart
    one by one, so not each time all nodes are looked at."""
    counted = transition.run.counted_restarts
    is_power_of_two = len(counted) & (len(counted) - 1) == 0
    return restarts_in_progress(transition) if is_power_of_two else counted


def restarts_in_progress(transition: Transition) -> tuple[int, ...]:
    """The restarts that were counted for the run and whose nodes have not all run yet, by their
    incarnations."""
    counted = transition.run.counted_restarts
    if not counted:
        return ()
    awaited = {
        node.incarnation if node.next_incarnation is None else node.next_incarnation
        for node, _ in transition.alike(transition.all_ranks)
        if not node.scaled_down and (node.next_incarnation is not None or node.state in _NOT_RUN)
    }
    return tuple(number for number in counted if number in awaited)


_NOT_RUN = UNSTARTED | {NodeState.PENDING}


def retry(transition: Transition, failure: Failure) -> str:
    """Use one retry of the failed node's replica, and of its group if its replicas share theirs.
    Returns its number as a phrase; "" if no retry is left.

    Kubernetes: backoffLimit, backoffLimitPerIndex.
    """
    group = transition.policy.group_of(failure.rank)
    first = group.replica_ranks(group.replica_of(failure.rank))[0]
    node = transition.nodes[first]
    if node.retries >= group.retries or not total_left(transition, group):
        return ""
    transition.set_node(first, replace(node, retries=node.retries + 1))
    count_in_total(transition, group)
    if group.total_retries is None:
        return f"retry {node.retries + 1} of {group.retries}"
    used = transition.run.spent.retries[group.name]
    return f"retry {used} of {group.total_retries} of group {group.name}"


def total_left(transition: Transition, group: GroupPolicy) -> bool:
    """Whether the group's `total_retries` allow another failure."""
    if group.total_retries is None:
        return True
    return transition.run.spent.retries.get(group.name, 0) < group.total_retries


def count_in_total(transition: Transition, group: GroupPolicy) -> None:
    """Count a failure towards the group's `total_retries`."""
    if group.total_retries is not None:
        spent = transition.run.spent
        retries = _increment(spent.retries, group.name)
        transition.update(spent=replace(spent, retries=retries))


def renew_retries(transition: Transition, restarted: Iterable[range]) -> None:
    """Reset the retries of replicas, and of groups, that are restarted as a whole. restarted: their
    ranks, consecutive ones as one range."""
    for ranks in restarted:
        _renew_retries(transition, ranks)


def _renew_retries(transition: Transition, ranks: range) -> None:
    spent = transition.run.spent
    for group in transition.policy.groups:
        whole = group.size and group.ranks.start in ranks and group.ranks[-1] in ranks
        if whole and group.name in spent.retries:
            kept = {name: used for name, used in spent.retries.items() if name != group.name}
            spent = replace(spent, retries=kept)
        if group.retries:
            firsts = group.ranks[:: group.nodes]
            for first in firsts[bisect_left(firsts, ranks.start) : bisect_left(firsts, ranks.stop)]:
                node = transition.nodes[first]
                if node.retries:
                    transition.set_node(first, replace(node, retries=0))
    if spent is not transition.run.spent:
        transition.update(spent=spent)


def _increment(counts: Mapping[str, int], name: str) -> dict[str, int]:
    return {**counts, name: counts.get(name, 0) + 1}
