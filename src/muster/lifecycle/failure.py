"""Failure: select the rule that handles a failure, and carry out its action.

JobSet: failurePolicy. Rules are tried in order, each on all failures from the earliest on; the
order of rules therefore takes precedence over the order of failures. If no rule matches, a failure
that the group tolerates (OCI: minimumSuccessReplicas) ends only its replica; any other failure
restarts the run while the budget lasts. A node that was preempted is not counted then, and one that
somebody has canceled is not restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec.structs import replace

from muster.lifecycle import budget, cause, counts, restart, stopping
from muster.lifecycle.failure_details import describe
from muster.lifecycle.policy import Action, GroupFailure, GroupPolicy, Policy, Rule
from muster.lifecycle.ranks import shortened_ranks
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, Reason
from muster.lifecycle.transition import Transition
from muster.spec import patterns
from muster.spec.placeholders import fill

_TOO_FEW = "too few replicas succeeded, and no others are left"


def apply(transition: Transition) -> None:
    """Retry, restart or end the nodes of the new failures, by the first matching rule."""
    transition.new_failures.sort(key=cause.order)
    texts = Texts(transition.policy)
    # once the run is ending, no failure is handled
    while transition.new_failures and not transition.stopping:
        if transition.policy.success.wait and counts.has_succeeded(
            transition.policy, transition.counts
        ):
            # the run has succeeded already: later failures restart nothing
            _tolerate(transition, transition.new_failures[0])
            continue
        if final := next((one for one in transition.new_failures if one.final), None):
            _give_up(transition, final, "another start would fail until this is corrected")
            continue
        rule, failure = choose(transition.policy, transition.new_failures, texts)
        if rule is not None and rule.action is Action.FAIL_REPLICA:
            _fail_replica(transition, failure, texts)
        elif rule is not None and rule.before_retries:
            _carry_out(transition, rule, failure)
        elif retry := _retry(transition, failure):
            restart.begin(transition, _retry_action(transition, failure), failure, retry)
            _drop_restarted(transition)
        elif rule is not None:
            _carry_out(transition, rule, failure)
        else:
            _fail_replica(transition, failure, texts)
    transition.new_failures.clear()


def fail_arrays(transition: Transition) -> None:
    """Handle the failures of arrays whose replicas have all ended, too few of them successfully:
    the failures of single replicas were tolerated.

    Kubernetes: a Job with backoffLimitPerIndex fails when all its indexes have ended; JobSet then
    applies its failure policy, whatever the other Jobs do.
    """
    policy = transition.policy
    if policy.success.wait and counts.has_succeeded(policy, transition.counts):
        return
    for index, group in enumerate(policy.groups):
        node_counts = transition.counts
        if group.parallelism is None or not counts.has_ended(policy, node_counts, index):
            continue
        failed = node_counts.groups[index].failed
        if failed and not (transition.stopping or counts.is_complete(policy, node_counts, index)):
            blamed = _blamed(transition, index)
            if blamed not in transition.run.failures:
                transition.update(failures=(*transition.run.failures, blamed))
            _fail_group(transition, blamed, GroupFailure.MIN_SUCCESS, ended=True)


def fall_short(transition: Transition) -> None:
    """End the run, of whose replicas too few have succeeded, and no others are left."""
    note = "" if transition.run.cause is None else _failed_replicas(transition)
    if transition.run.cause is not None:
        transition.update(failures=(transition.run.cause,))
    stopping.begin(transition, RunState.FAILED, _TOO_FEW, note=note, names_failed=bool(note))


def _blamed(transition: Transition, index: int) -> Failure:
    """The failure that is named for those of an array's replicas."""
    group, count = transition.policy.groups[index], transition.counts.groups[index]
    known = transition.run.tolerated.get(group.name)
    if known is not None and _is_current(transition, known):
        return known
    ranks = group.replica_ranks(next(count.failed_replicas()))
    rank = next(rank for rank in ranks if transition.nodes[rank].state is NodeState.FAILED)
    node = transition.nodes[rank]
    return Failure(
        rank=rank,
        group=group.name,
        reason=node.fault or Reason.EXIT,
        exit_code=node.exit_code,
        signal=node.signal,
        message="",
        at=transition.now if node.finished_at is None else node.finished_at,
        incarnation=node.incarnation,
    )


def _failed_replicas(transition: Transition, only: GroupPolicy | None = None) -> str:
    """A sentence on the replicas that failed. only: those of this group."""
    parts = []
    for group, count in zip(transition.policy.groups, transition.counts.groups, strict=True):
        failed = [*count.failed_replicas()]
        if failed and only in (None, group):
            of = f"{len(failed):,} of {group.initial:,} replicas of group {group.name}"
            parts.append(f"{of} failed: {shortened_ranks(failed)}")
    return "; ".join(parts)


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
    policy: Policy,
    failures: Sequence[Failure],
    texts: Texts | None = None,
    group_failure: GroupFailure | None = None,
) -> tuple[Rule | None, Failure]:
    """The rule that handles the failures, or None, and the failure that it matches. Rules with
    `before_retries` are tried first.

    failures: the cause first. texts: of the same step. group_failure: how the group has failed; the
    rule then handles its failure, not that of the node.
    """
    texts = texts or Texts(policy)
    for rule in sorted(policy.rules, key=lambda rule: not rule.before_retries):
        if not _is_about(rule, group_failure):
            continue
        for failure in failures:
            if fits(rule, failure, texts):
                return rule, failure
    if group_failure is None:
        for failure in failures:
            if (default := _default_rule(policy, failure)) is not None:
                return default, failure
    return None, failures[0]


def _default_rule(policy: Policy, failure: Failure) -> Rule | None:
    """The rule for a failure that no rule of the job matches, and that is not the program's."""
    match failure.reason:
        case Reason.PREEMPTED:
            return Rule("", policy.action, counted=False, before_retries=True)
        case Reason.CANCELED:
            is_array = policy.group_of(failure.rank).is_array
            action = Action.FAIL_REPLICA if is_array else Action.FAIL
            return Rule("", action, before_retries=True)
        case _:
            return None


def _is_about(rule: Rule, group_failure: GroupFailure | None) -> bool:
    """Whether a rule is about such a failure of a group; None: about failures of nodes."""
    if group_failure is None:
        return not rule.group_failed
    if rule.action in (Action.FAIL_REPLICA, Action.RESTART_NODE):
        return False  # these are about nodes
    return not rule.group_failed or group_failure in rule.group_failed


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
    group = None if policy is None else policy.group_of(failure.rank)
    if rule.text is None or group is None:
        return describe(failure, group)
    replica = group.replica_of(failure.rank)
    facts = {
        "rank": failure.rank,
        "group": failure.group,
        "replica": replica,
        "index": failure.rank - group.replica_ranks(replica).start,
        "exit_code": failure.exit_code,
    }
    return fill(rule.text, lambda name: facts.get(name, ""))


def _carry_out(
    transition: Transition,
    rule: Rule,
    failure: Failure,
    note: str = "",
    *,
    names_failed: bool = False,
    replicas: Sequence[int] = (),
) -> None:
    """Carry out the action of a rule if the budgets allow it. note, names_failed: see `Stopping`,
    for a run that fails. replicas: see `restart.scope`. A restart after a preemption is counted
    only by a rule that names this reason."""
    if failure.reason is Reason.PREEMPTED and Reason.PREEMPTED not in rule.reasons:
        rule = replace(rule, counted=False)
    name = f"rule {rule.name}" if rule.action is Action.FAIL and rule.name else ""
    why = name or budget.exhausted(transition, rule, failure)
    if why or rule.action is Action.FAIL:
        whole = "; ".join(text for text in (note, why) if text)
        _give_up(transition, failure, whole, names_failed=names_failed)
        return
    budget.spend(transition, rule, failure)
    # the action with the wider scope: `Action` lists the widest scope first
    action = min(rule.action, _narrowest_restart(transition, failure), key=list(Action).index)
    if action is not Action.RESTART_NODE:
        budget.renew_retries(transition, restart.scope(transition, action, failure, replicas))
    by = f"rule {rule.name}" if rule.name else ""
    restart.begin(transition, action, failure, by, replicas)
    _drop_restarted(transition)


def _retry(transition: Transition, failure: Failure) -> str:
    if _narrowest_restart(transition, failure) is not Action.RESTART_NODE:
        return ""
    return budget.retry(transition, failure)


def _retry_action(transition: Transition, failure: Failure) -> Action:
    """What a retry restarts (Kubernetes: a pod of a Job, whose others continue)."""
    whole = transition.policy.group_of(failure.rank).retries_replicas
    return Action.RESTART_REPLICA if whole else Action.RESTART_NODE


def _narrowest_restart(transition: Transition, failure: Failure) -> Action:
    """The narrowest allowed restart: a replica or attempt that missed its deadline is restarted as
    a whole."""
    if failure.reason is not Reason.DEADLINE:
        return Action.RESTART_NODE
    return Action.RESTART_RUN if transition.attempt_expired else Action.RESTART_REPLICA


def _fail_replica(transition: Transition, failure: Failure, texts: Texts) -> None:
    """End the replica of a failed node or, if its group does not tolerate that, handle the failure
    of the group."""
    group_failure = _limit_exceeded(transition, failure)
    if group_failure is not None:
        _fail_group(transition, failure, group_failure, texts)
        return
    group = transition.policy.group_of(failure.rank)
    budget.count_in_total(transition, group)
    tolerated = transition.run.tolerated
    if group.parallelism is not None and not _is_current(transition, tolerated.get(group.name)):
        transition.update(tolerated={**tolerated, group.name: failure})
    _tolerate(transition, failure)


def _is_current(transition: Transition, failure: Failure | None) -> bool:
    """Whether the node has not been restarted since the failure."""
    return failure is not None and (
        failure.incarnation == transition.nodes[failure.rank].incarnation
    )


def _fail_group(
    transition: Transition,
    failure: Failure,
    group_failure: GroupFailure,
    texts: Texts | None = None,
    *,
    ended: bool = False,
) -> None:
    """Handle the failure of a group, which a failure of one of its nodes has led to. If replicas of
    an array restart, all do that have failed. ended: whether all nodes of the group have ended by
    then, so that the restart of a single one is no use."""
    policy = transition.policy
    rule, _ = choose(policy, [failure], texts, group_failure)
    if rule is None and policy.max_restarts:
        rule = Rule("", policy.action)
    index = policy.group_index(failure.rank)
    note = _note(transition, index, group_failure)
    names_failed = bool(note) and group_failure is not GroupFailure.TOTAL_RETRIES
    if rule is not None and not (ended and rule.action is Action.RESTART_NODE):
        failed: Sequence[int] = ()
        if policy.groups[index].parallelism is not None:
            unhandled = _unhandled(transition, policy.groups[index], failure)
            found = transition.counts.groups[index].failed_replicas()
            failed = [number for number in found if number not in unhandled]
        _carry_out(transition, rule, failure, note, names_failed=names_failed, replicas=failed)
    elif ended:
        text = f"too few replicas of group {failure.group} succeeded"
        stopping.begin(transition, RunState.FAILED, text, note=note, names_failed=names_failed)
    else:
        _give_up(transition, failure, note, names_failed=names_failed)


def _limit_exceeded(transition: Transition, failure: Failure) -> GroupFailure | None:
    """The setting by which a group does not tolerate the failure of a replica; None if it does."""
    policy, index = transition.policy, transition.policy.group_index(failure.rank)
    group = policy.groups[index]
    if not budget.total_left(transition, group):
        return GroupFailure.TOTAL_RETRIES
    failed = transition.counts.groups[index].failed - len(_unhandled(transition, group, failure))
    if group.max_failed is not None:
        return GroupFailure.MAX_FAILED if failed > group.max_failed else None
    dispensable = counts.desired_replicas(policy, transition.counts, index)
    dispensable -= counts.required_successes(policy, transition.counts, index)
    return GroupFailure.MIN_SUCCESS if failed > dispensable else None


def _unhandled(transition: Transition, group: GroupPolicy, failure: Failure) -> set[int]:
    """See `Transition.unhandled_replicas`; without that of the failure to which the rules are
    applied now."""
    return transition.unhandled_replicas(group) - {group.replica_of(failure.rank)}


def _note(transition: Transition, index: int, group_failure: GroupFailure) -> str:
    """Why the failure of a replica is not tolerated, if the group tolerates some; else empty."""
    group = transition.policy.groups[index]
    match group_failure:
        case GroupFailure.TOTAL_RETRIES:
            return _no_retry_left(group)
        case GroupFailure.MAX_FAILED if group.max_failed:
            limit = f"group {group.name} allows {group.max_failed:,} (max_failed)"
            return f"{_failed_replicas(transition, group)}; {limit}"
        case GroupFailure.MIN_SUCCESS if group.parallelism is not None:
            return _failed_replicas(transition, group)
        case _:
            return ""


def _no_retry_left(group: GroupPolicy) -> str:
    if not group.total_retries:
        return f"group {group.name} allows no retry (total_retries)"
    if group.total_retries == 1:
        return f"the only retry of group {group.name} is used up (total_retries)"
    return f"all {group.total_retries:,} retries of group {group.name} are used up (total_retries)"


def _tolerate(transition: Transition, failure: Failure) -> None:
    """Stop the rest of the replica; the other replicas continue."""
    group = transition.policy.group_of(failure.rank)
    ranks = group.replica_ranks(group.replica_of(failure.rank))
    stopping.stop_nodes(transition, ranks, "its replica has failed")
    transition.new_failures = [
        other for other in transition.new_failures if other.rank not in ranks
    ]
    if not transition.new_failures:
        transition.update(cause=_tolerated_cause(transition), failures=())


def _tolerated_cause(transition: Transition) -> Failure:
    """The failure to blame if too few replicas succeed. Of an array, whose replicas fail
    independently, that of the first replica that has failed."""
    known, policy = transition.run.cause, transition.policy
    if known is not None and policy.group_of(known.rank).is_array:
        index = policy.group_index(known.rank)
        replica = policy.groups[index].replica_of(known.rank)
        if transition.counts.groups[index].failed_in[replica]:
            return known
    return cause.first(transition.run.failures)


def _give_up(
    transition: Transition, failure: Failure, note: str = "", *, names_failed: bool = False
) -> None:
    """Fail the run. Its details name the first cause, whichever failure the rule matched."""
    details = describe(failure, transition.policy.group_of(failure.rank))
    stopping.begin(transition, RunState.FAILED, details, note=note, names_failed=names_failed)


def _drop_restarted(transition: Transition) -> None:
    """Drop the failures of nodes that are being restarted."""
    transition.new_failures = [
        other
        for other in transition.new_failures
        if transition.nodes[other.rank].incarnation == other.incarnation
        and transition.nodes[other.rank].next_incarnation is None
    ]
