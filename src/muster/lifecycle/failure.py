"""Failure: select the rule that handles a failure, and carry out its action.

JobSet: failurePolicy. Rules are tried in order, each on all failures from the earliest on; the
order of rules therefore takes precedence over the order of failures. If no rule matches, a failure
that the group tolerates (OCI: minimumSuccessReplicas) ends only its replica; any other failure
restarts the run while the budget lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from muster.lifecycle import budget, cause, counts, restart, stopping, success
from muster.lifecycle.failure_details import describe
from muster.lifecycle.policy import Action, Policy, Rule
from muster.lifecycle.states import RunState
from muster.lifecycle.status import Failure, Reason
from muster.lifecycle.transition import Transition
from muster.spec import patterns
from muster.spec.placeholders import fill


def apply(transition: Transition) -> None:
    """Retry, restart or end the nodes of the new failures, by the first matching rule."""
    transition.new_failures.sort(key=cause.order)
    texts = Texts(transition.policy)
    # once the run is ending, no failure is handled
    while transition.new_failures and not transition.stopping:
        if transition.policy.success.wait and success.reached(transition):
            # the run has succeeded already: later failures restart nothing
            _tolerate(transition, transition.new_failures[0])
            continue
        rule, failure = choose(transition.policy, transition.new_failures, texts)
        if rule is not None and rule.before_retries:
            _carry_out(transition, rule, failure)
        elif retry := _retry(transition, failure):
            restart.begin(transition, Action.RESTART_NODE, failure, retry)
            _drop_restarted(transition)
        elif rule is not None:
            _carry_out(transition, rule, failure)
        elif _is_tolerable(transition, failure):
            _tolerate(transition, failure)
        elif transition.policy.max_restarts:
            _carry_out(transition, Rule("", transition.policy.action), failure)
        else:
            _give_up(transition, failure)
    transition.new_failures.clear()


class Texts:
    """Searches the texts of failures for the regular expressions of rules, within one step.

    Each rule searches each text once, up to a limit of characters, so that thousands of failures do
    not block the supervisor; the first causes come first.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy
        self._found: dict[tuple[int, int, int], bool] = {}
        self._left: dict[int, int] = {}  # characters, by rule

    def find(self, rule: Rule, failure: Failure) -> bool:
        """Whether one of the rule's regular expressions matches in the failure's text."""
        key = id(rule), failure.rank, failure.incarnation
        if key not in self._found:
            self._found[key] = self._search(rule, failure)
        return self._found[key]

    def _search(self, rule: Rule, failure: Failure) -> bool:
        left = self._left.get(id(rule), self._max_characters)
        if left <= 0:
            return False
        text = _text(rule, failure, self._policy)
        self._left[id(rule)] = left - len(text)
        return patterns.any_matches(rule.messages, text)

    @cached_property
    def _max_characters(self) -> int:
        rules = () if self._policy is None else self._policy.rules
        return patterns.max_text_length(message for rule in rules for message in rule.messages)


def choose(
    policy: Policy, failures: Sequence[Failure], texts: Texts | None = None
) -> tuple[Rule | None, Failure]:
    """The rule that handles the failures, or None, and the failure that it matches. Rules with
    `before_retries` are tried first.

    failures: the cause first. texts: of the same step.
    """
    texts = texts or Texts(policy)
    for rule in sorted(policy.rules, key=lambda rule: not rule.before_retries):
        for failure in failures:
            if fits(rule, failure, texts):
                return rule, failure
    return None, failures[0]


def fits(rule: Rule, failure: Failure, texts: Texts | None = None) -> bool:
    """Whether a failure meets all conditions of a rule. texts: needed for rules with a `text`."""
    return (
        (not rule.groups or failure.group in rule.groups)
        and (not rule.exit_codes or failure.exit_code in rule.exit_codes)
        and (not rule.signals or failure.signal in rule.signals)
        and (not rule.reasons or failure.reason in rule.reasons)
        and (not rule.messages or (texts or Texts()).find(rule, failure))
    )


def _text(rule: Rule, failure: Failure, policy: Policy | None) -> str:
    """The text that the rule's regular expressions search."""
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


def _carry_out(transition: Transition, rule: Rule, failure: Failure) -> None:
    """Carry out the action of a rule if the budgets allow it."""
    if rule.action is Action.FAIL:
        _give_up(transition, failure, f"rule {rule.name}")
        return
    empty = budget.exhausted(transition, rule, failure)
    if empty:
        _give_up(transition, failure, empty)
        return
    budget.spend(transition, rule, failure)
    # the action with the wider scope: `Action` lists the widest scope first
    action = min(rule.action, _narrowest_restart(transition, failure), key=list(Action).index)
    restart.begin(transition, action, failure, f"rule {rule.name}" if rule.name else "")
    _drop_restarted(transition)


def _retry(transition: Transition, failure: Failure) -> str:
    if _narrowest_restart(transition, failure) is not Action.RESTART_NODE:
        return ""
    return budget.retry(transition, failure)


def _narrowest_restart(transition: Transition, failure: Failure) -> Action:
    """The narrowest allowed restart: a replica or attempt that missed its deadline is restarted as
    a whole."""
    if failure.reason is not Reason.DEADLINE:
        return Action.RESTART_NODE
    return Action.RESTART_RUN if transition.attempt_expired else Action.RESTART_REPLICA


def _is_tolerable(transition: Transition, failure: Failure) -> bool:
    index = transition.policy.group_index(failure.rank)
    dispensable = counts.desired_replicas(transition.policy, transition.counts, index)
    dispensable -= counts.required_successes(transition.policy, transition.counts, index)
    return transition.counts.groups[index].failed <= dispensable


def _tolerate(transition: Transition, failure: Failure) -> None:
    """Stop the rest of the replica; the other replicas continue."""
    ranks = restart.scope(transition, Action.RESTART_REPLICA, failure)
    stopping.stop_nodes(transition, ranks, "its replica has failed")
    transition.new_failures = [
        other for other in transition.new_failures if other.rank not in ranks
    ]
    if not transition.new_failures:
        transition.update(cause=cause.first(transition.run.failures), failures=())


def _give_up(transition: Transition, failure: Failure, note: str = "") -> None:
    """Fail the run. Its details name the first cause, whichever failure the rule matched."""
    stopping.begin(transition, RunState.FAILED, describe(failure), note=note)


def _drop_restarted(transition: Transition) -> None:
    """Drop the failures of nodes that are being restarted."""
    transition.new_failures = [
        other
        for other in transition.new_failures
        if transition.nodes[other.rank].incarnation == other.incarnation
        and transition.nodes[other.rank].next_incarnation is None
    ]
