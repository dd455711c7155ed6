"""Invariants of decisions about failures, which are recomputed from the event log and the
policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.lifecycle import cause
from muster.lifecycle.policy import Action, GroupPolicy, Policy, Rule
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason
from simulation.harness.invariants.restarts import fits
from simulation.harness.invariants.scaling import complete, desired_replicas
from simulation.harness.trace import Step
from simulation.harness.view import Restart, View

_SLOW = (Reason.DEADLINE, Reason.STARTUP_TIMEOUT)


class _Decision(Struct, frozen=True):
    """A restart due to a rank, or the end of the run."""

    what: str
    rank: int = -1
    ranks: range = range(0)


class _Budgets(Struct):
    """The used budgets, from the event log."""

    run: int
    groups: Counter[str]
    rules: Counter[str]
    retries: Counter[tuple[str, int]]


def the_policy_decides(view: View) -> Iterator[str]:
    """Which rule, retry or budget decides about failures, in which order, what restarts, what is
    tolerated, and when the run gives up follows from the policy. The decisions are recomputed from
    the event log."""
    budgets = _Budgets(0, Counter(), Counter(), Counter())
    restarts: dict[int, list[Restart]] = {}
    for restart in view.restarts:
        restarts.setdefault(restart.step.number, []).append(restart)
    for step in view.steps:
        done = [_decision(restart) for restart in restarts.get(step.number, ())]
        if _gave_up(step):
            done.append(_Decision("the end"))
        if view.policy.success.wait:
            if done and _reached(view.policy, step):
                yield f"step {step.number}: {done}, though the run had succeeded"
            continue  # a success and a failure in one step are not recomputed
        expected = _Step(view.policy, step, budgets).decide()
        if done != expected:
            yield f"step {step.number}: {done}, not {expected}"


def _decision(restart: Restart) -> _Decision:
    if restart.retry:
        what = "a retry"
    else:
        what = "the policy's action" if restart.rule is None else restart.rule.name
    return _Decision(what, restart.rank, restart.ranks)


def _gave_up(step: Step) -> bool:
    """Whether the step ends the run because of a failure."""
    return any(
        entry.kind == "stopping"
        and entry.data["towards"] == RunState.FAILED
        and str(entry.data["why"]).startswith(("node-", "the files that node-"))
        for entry in step.entries
    )


def _end_requested(step: Step) -> bool:
    """Whether a request or a broken run ends the run, which comes before decisions about
    failures."""
    if step.before.stopping is not None:
        return True
    return any(
        entry.kind == "stopping"
        and (
            entry.data["towards"] in (RunState.SUSPENDED, RunState.CANCELED)
            or str(entry.data["why"]).startswith("its supervisor")
        )
        and not str(entry.data["why"]).startswith("maximum runtime")
        for entry in step.entries
    )


def _reached(policy: Policy, step: Step) -> bool:
    """Whether the run had succeeded before the step, and no more replicas were requested in it."""
    rules, before = policy.success, step.before
    if before.state is RunState.SUSPENDED:
        return False
    scaled = [entry.data for entry in step.entries if entry.kind == "scaled"]
    grown = {data["group"] for data in scaled if data["to"] > data["from"]}
    if any(policy.groups[index].name in grown for index in rules.groups):
        return False
    if not rules.any_replica:
        return all(complete(before, policy.groups[index]) for index in rules.groups)
    return any(
        all(before.nodes[rank].state is NodeState.SUCCEEDED for rank in group.replica_ranks(r))
        for group in (policy.groups[index] for index in rules.groups)
        for r in range(group.replicas)
    )


class _Step:
    """The decisions of one step: first about reported failures, then about timeouts."""

    def __init__(self, policy: Policy, step: Step, budgets: _Budgets) -> None:
        self._policy, self._step, self._budgets = policy, step, budgets
        self._made: list[_Decision] = []
        reported = [entry.data for entry in step.entries if entry.kind == "failure"]
        self._failures = [data for data in reported if self._counts(data)]
        self._over = any(str(data["message"]).startswith("the attempt") for data in reported)
        before = step.before.nodes
        self._failed = {rank for rank, node in enumerate(before) if _failed(node)}
        lost = (d["rank"] for d in reported if d["reason"] == Reason.OUTPUT_LOST)
        self._failed |= {rank for rank in lost if before[rank].next_incarnation is None}

    def decide(self) -> list[_Decision]:
        """The decisions, in order. Updates the budgets."""
        if _end_requested(self._step):
            return []
        for slow in (False, True):
            fresh = [d for d in self._failures if (d["reason"] in _SLOW) is slow]
            self._failed |= {data["rank"] for data in fresh}
            fresh.sort(key=lambda data: cause.order(self._failure(data)))
            while fresh and not self._ended:
                fresh = self._one(fresh)
        return self._made

    @property
    def _ended(self) -> bool:
        return bool(self._made) and self._made[-1].what == "the end"

    def _counts(self, data: Mapping[str, Any]) -> bool:
        """Whether the node failed by itself, and was not being removed."""
        before, after = self._step.before.nodes, self._step.after.nodes
        rank = data["rank"]
        return not (before[rank].leaving or before[rank].scaled_down or after[rank].scaled_down)

    def _failure(self, data: Mapping[str, Any]) -> Failure:
        names = ("rank", "group", "reason", "exit_code", "signal", "message")
        known = {name: data[name] for name in names}
        return Failure(**known, at=self._step.now, raised_at=data.get("raised_at"))

    def _one(self, fresh: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Make one decision. Returns the failures that are left."""
        rules = sorted(self._policy.rules, key=lambda rule: not rule.before_retries)
        rule, data = next(
            ((rule, data) for rule in rules for data in fresh if fits(rule, data)),
            (None, fresh[0]),
        )
        group = self._policy.group_of(data["rank"])
        replica = group.replica_of(data["rank"])
        early = rule is not None and rule.before_retries
        used = self._budgets.retries[group.name, replica]
        if not early and data["reason"] != Reason.DEADLINE and used < group.retries:
            self._budgets.retries[group.name, replica] += 1
            return self._again(fresh, "a retry", data, Action.RESTART_NODE)
        if rule is not None:
            return self._follow(fresh, rule, data)
        if self._tolerable(group):
            return [d for d in fresh if d["rank"] not in group.replica_ranks(replica)]
        if not self._policy.max_restarts:
            return self._give_up()
        return self._follow(fresh, Rule("", self._policy.action), data)

    def _follow(
        self, fresh: list[Mapping[str, Any]], rule: Rule, data: Mapping[str, Any]
    ) -> list[Mapping[str, Any]]:
        budgets, group = self._budgets, self._policy.group_of(data["rank"])
        limits = [(budgets.rules[rule.name], rule.max_restarts)]
        if rule.counted:
            limits.append((budgets.run, self._policy.max_restarts))
            limits.append((budgets.groups[group.name], group.max_restarts))
        if rule.action is Action.FAIL or any(m is not None and n >= m for n, m in limits):
            return self._give_up()
        budgets.rules[rule.name] += 1
        if rule.counted:
            budgets.run += 1
            budgets.groups[group.name] += 1
        least = Action.RESTART_NODE
        if data["reason"] == Reason.DEADLINE:
            least = Action.RESTART_RUN if self._over else Action.RESTART_REPLICA
        action = min(rule.action, least, key=list(Action).index)
        return self._again(fresh, rule.name or "the policy's action", data, action)

    def _again(
        self, fresh: list[Mapping[str, Any]], what: str, data: Mapping[str, Any], action: Action
    ) -> list[Mapping[str, Any]]:
        rank = data["rank"]
        group = self._policy.group_of(rank)
        ranks = {
            Action.RESTART_NODE: range(rank, rank + 1),
            Action.RESTART_REPLICA: group.replica_ranks(group.replica_of(rank)),
            Action.RESTART_GROUP: group.ranks,
            Action.RESTART_RUN: range(self._policy.size),
        }[action]
        self._made.append(_Decision(what, rank, ranks))
        self._failed -= set(ranks)
        if action is not Action.RESTART_NODE:
            self._renew(ranks)
        return [other for other in fresh if other["rank"] not in ranks]

    def _renew(self, ranks: range) -> None:
        for group in self._policy.groups:
            for replica in range(group.replicas):
                if group.replica_ranks(replica)[0] in ranks:
                    del self._budgets.retries[group.name, replica]

    def _give_up(self) -> list[Mapping[str, Any]]:
        self._made.append(_Decision("the end"))
        return []

    def _tolerable(self, group: GroupPolicy) -> bool:
        desired = desired_replicas(self._step.after, group)
        failed = {group.replica_of(rank) for rank in self._failed if rank in group.ranks}
        least = min(group.min_success, len(desired))
        return len(failed & set(desired)) <= len(desired) - least


def _failed(node: NodeStatus) -> bool:
    """Whether the node has failed, or will have when it has ended."""
    if node.state is NodeState.FAILED:
        return True
    return node.alive and node.fault is not None and node.next_incarnation is None


def the_first_cause_is_named(view: View) -> Iterator[str]:
    """The cause of a restart or of a failed run is, of all failures of the incident, the one whose
    error was seen first; failures that look like consequences come last."""
    for step in view.steps:
        kinds = {entry.kind for entry in step.entries}
        reported = [entry.data for entry in step.entries if entry.kind == "failure"]
        reported = [data for data in reported if not step.after.nodes[data["rank"]].scaled_down]
        slow = {data["reason"] in _SLOW for data in reported}
        after = step.after
        ending = step.before.stopping
        ended = after.state is RunState.FAILED and ending is not None
        towards = {entry.data["towards"] for entry in step.entries if entry.kind == "stopping"}
        if ending is not None:
            towards.add(ending.outcome)
        if RunState.SUCCEEDED in towards:
            continue  # it can only fail because its output is lost
        if not (ended or "restart" in kinds) or after.cause is None or len(slow) > 1:
            continue
        known = [_known(failure) for failure in step.before.failures]
        known += [(data["rank"], _place(data, step.now)) for data in reported]
        if known and after.cause.rank != min(known, key=lambda item: item[1])[0]:
            yield f"step {step.number}: node-{after.cause.rank}, of (rank, (echo, time)) {known}"


def _known(failure: Failure) -> tuple[int, tuple[bool, float]]:
    seen = failure.raised_at
    return failure.rank, (cause.is_consequence(failure), failure.at if seen is None else seen)


def _place(data: Mapping[str, Any], now: float) -> tuple[bool, float]:
    names = ("rank", "group", "reason", "exit_code", "signal", "message")
    failure = Failure(**{name: data[name] for name in names}, at=now)
    return cause.is_consequence(failure), data.get("raised_at", now)
