"""Failure: which rule decides, and what follows.

JobSet: failurePolicy. Rules are looked at in order; within a rule the earliest failure counts, so
the order of rules beats the order of failures. Where none fits, a failure that its group can do
without (OCI: minimumSuccessReplicas) ends its replica alone; any other starts the run again while
the budget lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from muster.lifecycle import budget, cause, census, restart, stopping, success
from muster.lifecycle.describe import describe
from muster.lifecycle.policy import Action, Policy, Rule
from muster.lifecycle.states import RunState
from muster.lifecycle.status import Failure, Reason
from muster.lifecycle.turn import Turn
from muster.spec import patterns
from muster.spec.placeholders import fill


def apply(turn: Turn) -> None:
    """Do something about every failure that nothing was done about yet."""
    turn.fresh.sort(key=cause.order)
    texts = Texts(turn.policy)
    # of a run that was asked to end in this very step, every node is ending as it should
    while turn.fresh and not turn.stopping:
        if turn.policy.success.wait and success.reached(turn):
            # the run has what it was for, so nothing starts again because of what comes after
            _tolerate(turn, turn.fresh[0])
            continue
        rule, failure = choose(turn.policy, turn.fresh, texts)
        if rule is not None and rule.before_retries:
            _follow(turn, rule, failure)
        elif retry := _retry(turn, failure):
            restart.begin(turn, Action.RESTART_NODE, failure, retry)
            _handled(turn)
        elif rule is not None:
            _follow(turn, rule, failure)
        elif _tolerable(turn, failure):
            _tolerate(turn, failure)
        elif turn.policy.max_restarts:
            _follow(turn, Rule("", turn.policy.action), failure)
        else:
            _give_up(turn, failure)
    turn.fresh.clear()


class Texts:
    """The texts of failures, for the rules of one step. Each rule looks at each text once, and at
    no more of them than a supervisor has time for: those of the first causes."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy
        self._found: dict[tuple[int, int, int], bool] = {}
        self._left: dict[int, int] = {}  # characters, by rule

    def find(self, rule: Rule, failure: Failure) -> bool:
        """Whether one of the rule's regular expressions is found in the failure's text."""
        key = id(rule), failure.rank, failure.incarnation
        if key not in self._found:
            self._found[key] = self._search(rule, failure)
        return self._found[key]

    def _search(self, rule: Rule, failure: Failure) -> bool:
        left = self._left.get(id(rule), self._allowance)
        if left <= 0:
            return False
        text = _text(rule, failure, self._policy)
        self._left[id(rule)] = left - len(text)
        return patterns.found(rule.messages, text)

    @cached_property
    def _allowance(self) -> int:
        rules = () if self._policy is None else self._policy.rules
        return patterns.allowance(message for rule in rules for message in rule.messages)


def choose(
    policy: Policy, failures: Sequence[Failure], texts: Texts | None = None
) -> tuple[Rule | None, Failure]:
    """The rule that decides, None if none fits, and the failure it decides on. Those that come
    before retries come before the others.

    failures: the cause first. texts: of the same step.
    """
    texts = texts or Texts(policy)
    for rule in sorted(policy.rules, key=lambda rule: not rule.before_retries):
        for failure in failures:
            if fits(rule, failure, texts):
                return rule, failure
    return None, failures[0]


def fits(rule: Rule, failure: Failure, texts: Texts | None = None) -> bool:
    """Whether everything the rule says is true of the failure. texts: of the run's policy, for
    rules with a `text`."""
    return (
        (not rule.groups or failure.group in rule.groups)
        and (not rule.exit_codes or failure.exit_code in rule.exit_codes)
        and (not rule.signals or failure.signal in rule.signals)
        and (not rule.reasons or failure.reason in rule.reasons)
        and (not rule.messages or (texts or Texts()).find(rule, failure))
    )


def _text(rule: Rule, failure: Failure, policy: Policy | None) -> str:
    """What the rule's regular expressions look at."""
    if rule.text is None or policy is None:
        return describe(failure)
    group = policy.group_of(failure.rank)
    replica = group.replica_of(failure.rank)
    facts = {
        "rank": failure.rank,
        "group": failure.group,
        "replica": replica,
        "index": failure.rank - group.replica_ranks(replica).start,
        "exit_code": failure.exit_code,
    }
    return fill(rule.text, lambda name: facts.get(name, ""))


def _follow(turn: Turn, rule: Rule, failure: Failure) -> None:
    """Do what a rule says, as far as the budgets go."""
    if rule.action is Action.FAIL:
        _give_up(turn, failure, f"rule {rule.name}")
        return
    empty = budget.exhausted(turn, rule, failure)
    if empty:
        _give_up(turn, failure, empty)
        return
    budget.spend(turn, rule, failure)
    # the wider of both: actions are listed from the widest on
    action = min(rule.action, _least(turn, failure), key=list(Action).index)
    restart.begin(turn, action, failure, f"rule {rule.name}" if rule.name else "")
    _handled(turn)


def _retry(turn: Turn, failure: Failure) -> str:
    if _least(turn, failure) is not Action.RESTART_NODE:
        return ""
    return budget.retry(turn, failure)


def _least(turn: Turn, failure: Failure) -> Action:
    """What has to start again at least: what was too slow as a whole has failed as a whole."""
    if failure.reason is not Reason.DEADLINE:
        return Action.RESTART_NODE
    return Action.RESTART_RUN if turn.over else Action.RESTART_REPLICA


def _tolerable(turn: Turn, failure: Failure) -> bool:
    index = turn.policy.group_index(failure.rank)
    dispensable = census.wanted(turn.policy, turn.census, index)
    dispensable -= census.least(turn.policy, turn.census, index)
    return turn.census.groups[index].failed <= dispensable


def _tolerate(turn: Turn, failure: Failure) -> None:
    """End what is left of the replica; the others go on."""
    ranks = restart.scope(turn, Action.RESTART_REPLICA, failure)
    stopping.stop_nodes(turn, ranks, "its replica has failed")
    turn.fresh = [other for other in turn.fresh if other.rank not in ranks]
    if not turn.fresh:
        turn.update(cause=cause.first(turn.run.failures), failures=())


def _give_up(turn: Turn, failure: Failure, note: str = "") -> None:
    """The run fails; what it failed of is the first cause, whichever failure the rule saw."""
    stopping.begin(turn, RunState.FAILED, describe(failure), note=note)


def _handled(turn: Turn) -> None:
    """Forget those that the restart has dealt with: their nodes are to start again."""
    turn.fresh = [
        other
        for other in turn.fresh
        if turn.nodes[other.rank].incarnation == other.incarnation
        and turn.nodes[other.rank].again is None
    ]
