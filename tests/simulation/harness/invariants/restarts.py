"""Invariants of restarts, budgets, backoff and deadlines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from muster.lifecycle.policy import Action, Backoff, GroupPolicy, Policy, Rule
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason, RunStatus
from simulation.harness.trace import Step
from simulation.harness.view import Restart, View

_TOLERANCE = 0.002  # seconds; waits take a little longer, and the log rounds
_BEGUN = (NodeState.STARTING, NodeState.RUNNING)


def restarts_follow_the_rules(view: View) -> Iterator[str]:
    """A restart is due to the first matching rule before retries, a retry, the first matching rule,
    or, if none matches, failure.action. It restarts what that action names, or more if more has
    failed."""
    rules = sorted(view.policy.rules, key=lambda rule: not rule.before_retries)
    for restart in view.restarts:
        failure = _failure_of(restart)
        if failure is None:
            continue
        of_nodes = (rule for rule in rules if not rule.group_failed)
        first = next((rule for rule in of_nodes if fits(rule, failure)), None)
        if not restart.retry and (first is None or first.action is Action.FAIL_REPLICA):
            # the group has failed, see `the_policy_decides`
            of_groups = (rule for rule in rules if rule.action not in ABOUT_NODES)
            fitting = [rule for rule in of_groups if fits(rule, failure)]
            first = restart.rule if restart.rule in fitting else None
        if restart.retry:
            if first is not None and first.before_retries:
                yield f"restart {restart.number} is a retry, not by {first}"
            continue
        if first is not restart.rule:
            yield f"restart {restart.number} by {restart.rule}, not {first}"
        action = view.policy.action if first is None else first.action
        if not set(_scope(view.policy, restart, action)) <= set(restart.ranks):
            yield f"restart {restart.number}: {restart.ranks}, not the scope of {action}"


#: Actions that say nothing about a group that has failed.
ABOUT_NODES = (Action.FAIL_REPLICA, Action.RESTART_NODE)


def _failure_of(restart: Restart) -> Mapping[str, Any] | None:
    failures = (entry.data for entry in restart.step.entries if entry.kind == "failure")
    return next((data for data in failures if data["rank"] == restart.rank), None)


def fits(rule: Rule, data: Mapping[str, Any]) -> bool:
    """Whether a rule matches a failure in the event log."""
    pairs: tuple[tuple[Sequence[Any], Any], ...] = (
        (rule.groups, data["group"]),
        (rule.exit_codes, data["exit_code"]),
        (rule.signals, data["signal"]),
        (rule.reasons, data["reason"]),
    )
    if any(allowed and value not in allowed for allowed, value in pairs):
        return False
    text = data["message"] + (" was lost" if data["reason"] == Reason.NODE_LOST else "")
    return not rule.messages or any(re.search(pattern, text) for pattern in rule.messages)


def _scope(policy: Policy, restart: Restart, action: Action) -> range:
    group = restart.group
    return {
        Action.RESTART_NODE: range(restart.rank, restart.rank + 1),
        Action.RESTART_REPLICA: group.replica_ranks(group.replica_of(restart.rank)),
        Action.RESTART_GROUP: group.ranks,
    }.get(action, range(policy.size))


def adoptions(view: View) -> Iterator[tuple[Step, int]]:
    """The steps in which restarts by the engine itself are adopted, and how many of these are
    counted then."""
    for step in view.steps:
        if step.after.native_restarts != step.before.native_restarts:
            own = sum(restart.counted and restart.step is step for restart in view.restarts)
            yield step, step.after.spent.run - step.before.spent.run - own


def restarts_in_progress(view: View, step: Step) -> set[int]:
    """The restarts that were counted and some of whose nodes have not run, as recorded before a
    step."""
    counted = {r.number for r in view.restarts if r.counted and r.step.number < step.number}
    nodes = [node for node in step.before.nodes if not node.scaled_down]
    awaited = {node.next_incarnation for node in nodes} | {
        node.incarnation
        for node in nodes
        if node.next_incarnation is None and node.state in _UNSTARTED
    }
    return {number for number in counted if number in awaited}


_UNSTARTED = (NodeState.PENDING, NodeState.QUEUED, NodeState.STARTING)


def nothing_else_restarts(view: View) -> Iterator[str]:
    """Only what a restart names restarts. Suspending ends the nodes of the whole run, and added
    replicas were scaled down before."""
    named: dict[int, set[int]] = {}
    for restart in view.restarts:
        named.setdefault(restart.step.number, set()).update(restart.ranks)
    for step in view.steps:
        if step.before.nodes is step.after.nodes or step.after.state is RunState.SUSPENDED:
            continue
        if step.after.native_restarts != step.before.native_restarts:
            continue  # all nodes
        for rank, (old, new) in enumerate(zip(step.before.nodes, step.after.nodes, strict=True)):
            expected = new.incarnation in (old.incarnation, old.next_incarnation)
            expected = expected and new.next_incarnation in (None, old.next_incarnation)
            scaled = old.scaled_down or new.scaled_down
            if not expected and not scaled and rank not in named.get(step.number, ()):
                yield f"step {step.number}: node-{rank}"


def budgets_are_kept(view: View) -> Iterator[str]:
    """The number of restarts stays within the budgets of the run, its groups, its rules, and
    its replicas' retries, counted from the event log."""
    policy, spent, native = view.policy, _spent(), [*adoptions(view)]
    for restart in view.restarts:
        while native and native[0][0].number <= restart.step.number:
            _adopt(spent, native.pop(0)[1])
        _spend(spent, restart)
        group, rule = restart.group, restart.rule
        if restart.counted and spent.run[""] > policy.max_restarts:
            yield f"restart {restart.number}: the run has {policy.max_restarts}"
        if group.max_restarts is not None and spent.groups[group.name] > group.max_restarts:
            yield f"restart {restart.number}: group {group.name} has {group.max_restarts}"
        maximum = None if rule is None else rule.max_restarts
        if rule is not None and maximum is not None and spent.rules[rule.name] > maximum:
            yield f"restart {restart.number}: rule {rule.name} has {maximum}"
        if spent.retries[_replica(restart)] > group.retries:
            yield f"restart {restart.number}: replicas of group {group.name} have {group.retries}"
        if group.total_retries is not None and spent.total[group.name] > group.total_retries:
            yield f"restart {restart.number}: group {group.name} has {group.total_retries} in all"


def only_counted_restarts_are_spent(view: View) -> Iterator[str]:
    """The recorded use of budgets matches the event log, and what was reported of restarts by the
    engine itself. Retries and restarts by rules that do not count are free."""
    final, spent = view.trace.final, _spent()
    for restart in view.restarts:
        _spend(spent, restart)
    if final is None:
        return
    logged = (
        spent.run[""] + sum(n for _, n in adoptions(view)),
        dict(spent.groups),
        dict(spent.rules),
    )
    kept = (final.spent.run, dict(final.spent.groups), dict(final.spent.rules))
    if logged != kept:
        yield f"by the log {logged}, recorded {kept}"


class _Spent(Struct):
    run: Counter[str]
    groups: Counter[str]
    rules: Counter[str]
    retries: Counter[str]
    #: Retries of a group since it was restarted as a whole.
    total: Counter[str]


def _spent() -> _Spent:
    return _Spent(Counter(), Counter(), Counter(), Counter(), Counter())


def _spend(spent: _Spent, restart: Restart) -> None:
    renews = restart.what != "node" and not restart.retry
    for key in list(spent.retries):  # a replica that restarts as a whole gets new retries
        name, _, replica = key.rpartition("/")
        if renews and _covers(restart, name, int(replica)):
            del spent.retries[key]
    for group in restart.policy.groups:
        if renews and set(group.ranks) <= set(restart.ranks):
            del spent.total[group.name]
    if restart.retry:
        spent.retries[_replica(restart)] += 1
        spent.total[restart.group.name] += 1
    if restart.rule is not None:
        spent.rules[restart.rule.name] += 1
    if restart.counted:
        spent.run[""] += 1
        spent.groups[restart.group.name] += 1


def _adopt(spent: _Spent, number: int) -> None:
    """Restarts by the engine itself restart the whole run."""
    spent.run[""] += number
    spent.retries.clear()
    spent.total.clear()


def _covers(restart: Restart, name: str, replica: int) -> bool:
    group = next((g for g in restart.policy.groups if g.name == name), None)
    ranks = range(0) if group is None else group.replica_ranks(replica)
    return bool(ranks) and ranks[0] in restart.ranks and ranks[-1] in restart.ranks


def _replica(restart: Restart) -> str:
    return f"{restart.group.name}/{restart.group.replica_of(restart.rank)}"


def backoff_is_kept(view: View) -> Iterator[str]:
    """No node starts before the backoff of its restart is over."""
    restarts = {restart.number: restart for restart in view.restarts}
    for command, effect in view.starts:
        for ref in effect.nodes:
            restart = restarts.get(ref.incarnation)
            if restart is not None and command.now < restart.step.now + restart.wait - _TOLERANCE:
                yield f"after step {command.step}: {ref}, which waits {restart.wait} s"


def backoff_grows(view: View) -> Iterator[str]:
    """The first restart after a stable time has no wait; each consecutive restart waits
    according to `backoff`. Replicas of an array wait according to the retries that each has
    used."""
    rules, streak, back = view.policy.backoff, 0, None
    used = _spent()
    for restart in view.restarts:
        _spend(used, restart)
        if restart.what in ("node", "replica") and restart.group.is_array:
            retries = used.retries[_replica(restart)]
            yield from _check_wait(restart, rules, max(0, retries - 1))
            continue
        stable = back is None or restart.step.now - back >= rules.reset_after - _TOLERANCE
        if back is not None and abs(restart.step.now - back - rules.reset_after) < 2 * _TOLERANCE:
            stable = not restart.wait  # the log rounds, so it may be either
        streak = 0 if stable else streak
        yield from _check_wait(restart, rules, streak)
        streak, back = streak + 1, restart.step.now + restart.wait


def _check_wait(restart: Restart, rules: Backoff, streak: int) -> Iterator[str]:
    minimum = 0.0
    if streak and rules.initial:
        minimum = min(rules.longest, rules.initial * rules.factor ** min(streak - 1, 64))
    maximum = min(rules.longest, minimum * (1 + rules.jitter)) if minimum else 0.0
    if not minimum - _TOLERANCE <= restart.wait <= maximum + _TOLERANCE:
        yield f"restart {restart.number} waits {restart.wait} s, not {minimum} to {maximum}"


def no_deadline_is_missed(view: View) -> Iterator[str]:
    """After each step there is an alarm for the next deadline."""
    for step, over in zip(view.steps, _times_up(view), strict=True):
        after = step.after
        if after.state.terminal or after.state is RunState.SUSPENDED:
            continue
        due = min(_due(view.policy, after, over), default=None)
        if due is None:
            continue
        if after.alarm is None or after.alarm > due:
            yield f"step {step.number}: due at {due}, alarm at {after.alarm}"


def _times_up(view: View) -> Iterator[float | None]:
    """When the run reaches its `max_runtime`, by the log, after each step. Time before its start
    and in suspension does not count."""
    ran, since = 0.0, None
    for step in view.steps:
        for entry in step.entries:
            state = entry.data["state"] if entry.kind == "run" else None
            if state == RunState.IN_PROGRESS and since is None:
                since = step.now
            elif state in (RunState.SUSPENDED, RunState.ACCEPTED) and since is not None:
                ran, since = ran + step.now - since, None
        yield None if since is None else since + view.policy.max_runtime - ran


def max_runtime_is_exact(view: View) -> Iterator[str]:
    """A run is canceled when it has run for its `max_runtime`, not counting suspensions, and no
    earlier."""
    over: float | None = None
    for step, after in zip(view.steps, _times_up(view), strict=True):
        why = [str(entry.data["why"]) for entry in step.entries if entry.kind == "stopping"]
        canceled = any(text.startswith("maximum runtime") for text in why)
        over = after if over is None else over
        if canceled and (over is None or step.now < over - _TOLERANCE):
            yield f"step {step.number}: canceled at {step.now}, not at {over}"
        running = step.after.state is RunState.IN_PROGRESS and step.after.stopping is None
        running = running and step.decides
        if running and over is not None and step.now > over + _TOLERANCE:
            yield f"step {step.number}: still running at {step.now}, over since {over}"
        over = after


def _due(policy: Policy, status: RunStatus, over: float | None) -> Iterator[float]:
    """The next deadlines. over: when the run reaches its `max_runtime`."""
    for node in status.nodes:
        due = node.term_at if node.kill_at is None else node.kill_at
        reachable = node.alive and node.unreachable_since is None
        if due is not None and reachable and not node.killed:
            yield due
    if status.stopping is not None:
        return
    if over is not None:
        yield over
    limit, started = policy.attempt_timeout, status.attempt_started_at
    timed = limit is not None and started is not None
    if timed and any(node.alive and not node.leaving for node in status.nodes):
        yield (started or 0.0) + (limit or 0.0)
    for group in policy.groups:
        yield from _due_in(group, status)


def _due_in(group: GroupPolicy, status: RunStatus) -> Iterator[float]:
    if group.timeout is None and group.ready_timeout is None:
        return
    for replica in range(group.replicas):
        nodes = [status.nodes[rank] for rank in group.replica_ranks(replica)]
        running = [node for node in nodes if node.alive and not node.leaving]
        counted = (node for node in nodes if node.state is not NodeState.QUEUED)
        since = [node.since for node in counted if node.since is not None]
        if group.timeout is not None and running and since:
            yield min(since) + group.timeout
        for node in running if group.ready_timeout is not None else ():
            counts = node.state in _BEGUN and node.unreachable_since is None
            if counts and node.since is not None:
                yield node.since + node.away + (group.ready_timeout or 0.0)


def timeouts_are_not_early(view: View) -> Iterator[str]:
    """A failure by timeout is due: the node had its `ready_timeout`, the replica its `timeout`, the
    attempt its `attempt_timeout`."""
    if view.trace.jumps:
        return
    for step in view.steps:
        for entry in step.entries:
            if entry.kind == "failure" and entry.data["reason"] in _SLOW:
                yield from _early(view, step, entry.data)


_SLOW = (Reason.DEADLINE, Reason.STARTUP_TIMEOUT)


def _early(view: View, step: Step, data: Mapping[str, Any]) -> Iterator[str]:
    policy, rank = view.policy, int(data["rank"])
    group = policy.group_of(rank)
    if data["reason"] == Reason.STARTUP_TIMEOUT:
        started, limit = _first(view, step, [rank]), group.ready_timeout
    elif str(data["message"]).startswith("the attempt"):
        started, limit = _first(view, step, range(policy.size), runs=True), policy.attempt_timeout
    else:
        ranks = group.replica_ranks(group.replica_of(rank))
        started, limit = _first(view, step, ranks), group.timeout
    if limit is None or (started is not None and step.at < started + limit - _TOLERANCE):
        yield f"step {step.number}: node-{rank} after {step.at - (started or 0.0):g} of {limit} s"


def _first(view: View, step: Step, ranks: range | list[int], *, runs: bool = False) -> float | None:
    """When the first of these nodes was launched in the present attempt; with `runs`, when the
    first of all programs ran."""
    started: list[float] = []
    for begun in view.steps[: step.number]:
        for ref in view.begun_by_engine(begun):
            if ref.rank not in ranks or begun.after.attempt != step.before.attempt:
                continue
            if runs:
                started += view.incarnations[ref].runs
            elif step.before.nodes[ref.rank].incarnation == ref.incarnation:
                started.append(begun.at)
    for command, effect in view.starts:
        if effect.attempt != step.before.attempt or command.at > step.at:
            continue
        for ref in effect.nodes:
            if ref.rank not in ranks:
                continue
            if runs and ref in view.incarnations:
                started += [at for at in view.incarnations[ref].runs if at <= step.at]
            elif not runs and step.before.nodes[ref.rank].incarnation == ref.incarnation:
                started.append(command.at)
    return min(started, default=None)
