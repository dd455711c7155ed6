"""Invariants of decisions about failures, which are recomputed from the event log and the
policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from muster.lifecycle import cause
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.policy import Action, GroupFailure, GroupPolicy, Policy, Rule
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason
from simulation.harness.invariants.restarts import ABOUT_NODES, adoptions, fits
from simulation.harness.invariants.scaling import complete, desired_replicas, succeeded_early
from simulation.harness.trace import Received, Step
from simulation.harness.view import Restart, View

_SLOW = (Reason.DEADLINE, Reason.STARTUP_TIMEOUT)


class _Decision(Struct, frozen=True):
    """A restart due to a rank, or the end of the run."""

    what: str
    rank: int = -1
    ranks: Sequence[int] = ()


class _Budgets(Struct):
    """The used budgets, from the event log."""

    run: int
    groups: Counter[str]
    rules: Counter[str]
    retries: Counter[tuple[str, int]]
    #: Failures that count towards `total_retries`.
    total: Counter[str]

    def adopt(self, number: int) -> None:
        """The engine has restarted the whole run by itself. number: how often that counts."""
        self.run += number
        self.retries.clear()
        self.total.clear()


def the_policy_decides(view: View) -> Iterator[str]:
    """Which rule, retry or budget decides about failures, in which order, what restarts, what is
    tolerated, and when the run gives up follows from the policy. The decisions are recomputed from
    the event log."""
    budgets = _Budgets(0, Counter(), Counter(), Counter(), Counter())
    received = _successes(view)
    restarts: dict[int, list[Restart]] = {}
    for restart in view.restarts:
        restarts.setdefault(restart.step.number, []).append(restart)
    native = {step.number: number for step, number in adoptions(view)}
    for step in view.steps:
        if step.number in native:
            budgets.adopt(native[step.number])
            step = _adopted(step)  # noqa: PLW2901  it is decided about the engine's attempt
        done = [_decision(restart) for restart in restarts.get(step.number, ())]
        if _gave_up(step):
            done.append(_Decision("the end"))
        if view.policy.success.wait:
            if done and _reached(view.policy, step):
                yield f"step {step.number}: {done}, though the run had succeeded"
            continue  # a success and a failure in one step are not recomputed
        expected = _Step(view.policy, step, budgets, received.get(step.number, set())).decide()
        if done != expected:
            yield f"step {step.number}: {done}, not {expected}"


def _successes(view: View) -> dict[int, set[tuple[int, int]]]:
    """By step: incarnations that ended with exit code 0 since the step before."""
    found: dict[int, set[tuple[int, int]]] = {}
    since: set[tuple[int, int]] = set()
    for line in view.trace.lines:
        if isinstance(line, Received) and isinstance(line.event, NodeEnded):
            if line.event.exit_code == 0:
                since.add((line.event.rank, line.event.incarnation))
        elif isinstance(line, Step):
            found[line.number] = since
            since = set()
    return found


def _adopted(step: Step) -> Step:
    """A step as if the engine's attempt, which it adopts, had been adopted before it."""
    first = of_native_restart(step.after.native_restarts)
    fresh = NodeStatus(NodeState.STARTING, first)
    nodes = [
        node if node.scaled_down or (step.before.stopping and node.state.ended) else fresh
        for node in step.before.nodes
    ]
    entries = [
        entry
        for entry in step.entries
        if entry.kind != "failure" or entry.data.get("restart", 0) >= first
    ]
    before = structs.replace(step.before, nodes=nodes)
    return structs.replace(step, before=before, entries=entries)


def _decision(restart: Restart) -> _Decision:
    if restart.retry:
        what = "a retry"
    else:
        what = "the policy's action" if restart.rule is None else restart.rule.name
    return _Decision(what, restart.rank, [*restart.ranks])


def _gave_up(step: Step) -> bool:
    """Whether the step ends the run because of a failure."""
    return any(
        entry.kind == "stopping"
        and entry.data["towards"] == RunState.FAILED
        and str(entry.data["why"]).startswith(_FAILURES)
        for entry in step.entries
    )


#: How texts about failures begin.
_FAILURES = ("node-", "replica ", "the files that ", "too few replicas of group ")


def _end_requested(step: Step) -> bool:
    """Whether a request or a broken run ends the run, which comes before decisions about
    failures."""
    if step.before.stopping is not None:
        return True
    return any(
        entry.kind == "stopping"
        and (
            entry.data["towards"] in (RunState.SUSPENDED, RunState.CANCELED)
            or str(entry.data["why"]).startswith(("its supervisor", "the engine has restarted"))
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
    groups = [policy.groups[index] for index in rules.groups]
    return any(complete(before, group) for group in groups if group.is_array) or any(
        all(before.nodes[rank].state is NodeState.SUCCEEDED for rank in group.replica_ranks(r))
        for group in groups
        if not group.is_array
        for r in range(group.replicas)
    )


class _Step:
    """The decisions of one step: first about reported failures, then about timeouts."""

    def __init__(
        self, policy: Policy, step: Step, budgets: _Budgets, successes: set[tuple[int, int]]
    ) -> None:
        self._policy, self._step, self._budgets = policy, step, budgets
        self._successes = successes
        self._made: list[_Decision] = []
        self._tolerated: dict[tuple[str, int], Mapping[str, Any]] = {}
        reported = [entry.data for entry in step.entries if entry.kind == "failure"]
        self._failures = [data for data in reported if self._counts(data)]
        self._reported = [data for data in reported if data["reason"] not in _SLOW]
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
            if not slow:
                self._short_arrays()
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
        rules = [rule for rule in self._ordered if not rule.group_failed]
        rule, data = next(
            ((rule, data) for rule in rules for data in fresh if fits(rule, data)),
            self._default(fresh),
        )
        group = self._policy.group_of(data["rank"])
        replica = group.replica_of(data["rank"])
        if rule is not None and rule.action is Action.FAIL_REPLICA:
            return self._fail_replica(fresh, data)
        early = rule is not None and rule.before_retries
        left = self._budgets.retries[group.name, replica] < group.retries
        left = left and self._total_left(group)
        if not early and data["reason"] != Reason.DEADLINE and left:
            self._budgets.retries[group.name, replica] += 1
            self._budgets.total[group.name] += 1
            together = group.is_array and group.nodes > 1
            action = Action.RESTART_REPLICA if together else Action.RESTART_NODE
            return self._again(fresh, "a retry", data, action, renew=False)
        if rule is not None:
            return self._follow(fresh, rule, data)
        return self._fail_replica(fresh, data)

    def _default(self, fresh: list[Mapping[str, Any]]) -> tuple[Rule | None, Mapping[str, Any]]:
        """What is done if no rule matches."""
        for data in fresh:
            if data["reason"] == Reason.PREEMPTED:
                return Rule("", self._policy.action, counted=False, before_retries=True), data
            if data["reason"] == Reason.CANCELED:
                alone = self._policy.group_of(data["rank"]).is_array
                action = Action.FAIL_REPLICA if alone else Action.FAIL
                return Rule("", action, before_retries=True), data
        return None, fresh[0]

    @property
    def _ordered(self) -> list[Rule]:
        return sorted(self._policy.rules, key=lambda rule: not rule.before_retries)

    def _total_left(self, group: GroupPolicy) -> bool:
        limit = group.total_retries
        return limit is None or self._budgets.total[group.name] < limit

    def _fail_replica(
        self, fresh: list[Mapping[str, Any]], data: Mapping[str, Any]
    ) -> list[Mapping[str, Any]]:
        group = self._policy.group_of(data["rank"])
        replica = group.replica_of(data["rank"])
        exceeded = self._exceeded(group, self._unhandled(fresh, group, replica))
        if exceeded is not None:
            return self._fail_group(fresh, data, exceeded)
        self._budgets.total[group.name] += 1
        self._tolerated.setdefault((group.name, replica), data)
        return [d for d in fresh if d["rank"] not in group.replica_ranks(replica)]

    def _fail_group(
        self,
        fresh: list[Mapping[str, Any]],
        data: Mapping[str, Any],
        exceeded: GroupFailure,
        *,
        ended: bool = False,
    ) -> list[Mapping[str, Any]]:
        for rule in self._ordered:
            about = not rule.group_failed or exceeded in rule.group_failed
            if about and rule.action not in ABOUT_NODES and fits(rule, data):
                return self._follow(fresh, rule, data, of_group=True)
        useless = ended and self._policy.action is Action.RESTART_NODE
        if useless or not self._policy.max_restarts:
            return self._give_up()
        return self._follow(fresh, Rule("", self._policy.action), data, of_group=True)

    def _short_arrays(self) -> None:
        """Decide about arrays whose replicas have all ended, too few of them successfully."""
        step = self._step
        if step.after.state is RunState.SUSPENDED or self._ended:
            return
        for group in self._policy.groups:
            again = any(
                (group.name, group.replica_of(rank)) not in self._tolerated
                for made in self._made
                for rank in made.ranks
                if rank in group.ranks
            )
            if not group.is_array or again or self._ended:
                continue
            desired = desired_replicas(step.after, group)
            ranks = [rank for r in desired for rank in group.replica_ranks(r)]
            if not all(map(self._has_ended, ranks)):
                continue
            done = {r for r in desired if all(map(self._has_succeeded, group.replica_ranks(r)))}
            least = min(group.min_success, len(desired))
            failed = any(rank in self._failed for rank in ranks)
            if failed and len(done) < least and not succeeded_early(group, done):
                self._fail_group([], self._blamed(group), GroupFailure.MIN_SUCCESS, ended=True)

    def _has_ended(self, rank: int) -> bool:
        """Whether the node had ended when the step decided about arrays."""
        before, after = self._step.before.nodes[rank], self._step.after.nodes[rank]
        if before.state.ended:
            return True
        group = self._policy.group_of(rank)
        tolerated = (group.name, group.replica_of(rank)) in self._tolerated
        reported = any(data["rank"] == rank for data in self._reported)
        lost = any(entry.kind == "supervisor_lost" for entry in self._step.entries)
        unstarted = before.state is NodeState.STARTING and not before.leaving and not reported
        if before.state is NodeState.PENDING or (lost and unstarted):
            return tolerated
        gone = not after.alive or after.incarnation != before.incarnation
        kept = after.incarnation == before.incarnation
        awaited = before.next_incarnation is not None and not (kept and after.state.ended)
        return gone and (tolerated or not awaited)

    def _has_succeeded(self, rank: int) -> bool:
        before, after = self._step.before.nodes[rank], self._step.after.nodes[rank]
        if before.state.ended or after.incarnation == before.incarnation:
            node = before if before.state.ended else after
            return node.state is NodeState.SUCCEEDED
        failed = any(data["rank"] == rank for data in self._reported)
        failed = failed or before.fault is not None
        return not failed and (rank, before.incarnation) in self._successes

    def _blamed(self, group: GroupPolicy) -> Mapping[str, Any]:
        """The failure that stands for all of an array."""
        known, before = self._step.before.tolerated.get(group.name), self._step.before.nodes
        if known is not None and known.incarnation == before[known.rank].incarnation:
            return structs.asdict(known)
        for (name, _), data in self._tolerated.items():
            if name == group.name:
                return data
        rank = min(rank for rank in self._failed if rank in group.ranks)
        node = before[rank]
        return {
            "rank": rank,
            "group": group.name,
            "reason": node.fault or Reason.EXIT,
            "exit_code": node.exit_code,
            "signal": node.signal,
            "message": "",
        }

    def _follow(
        self,
        fresh: list[Mapping[str, Any]],
        rule: Rule,
        data: Mapping[str, Any],
        *,
        of_group: bool = False,
    ) -> list[Mapping[str, Any]]:
        budgets, group = self._budgets, self._policy.group_of(data["rank"])
        if data["reason"] == Reason.PREEMPTED and Reason.PREEMPTED not in rule.reasons:
            rule = structs.replace(rule, counted=False)
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
        what = rule.name or "the policy's action"
        return self._again(fresh, what, data, action, of_group=of_group)

    def _again(
        self,
        fresh: list[Mapping[str, Any]],
        what: str,
        data: Mapping[str, Any],
        action: Action,
        *,
        renew: bool = True,
        of_group: bool = False,
    ) -> list[Mapping[str, Any]]:
        rank = data["rank"]
        group = self._policy.group_of(rank)
        again = {group.replica_of(rank)}
        if of_group and group.is_array:  # all that have failed get another chance
            again |= {group.replica_of(other) for other in self._failed if other in group.ranks}
            again -= self._unhandled(fresh, group, group.replica_of(rank))
        ranks: Sequence[int] = {
            Action.RESTART_NODE: range(rank, rank + 1),
            Action.RESTART_REPLICA: [r for n in sorted(again) for r in group.replica_ranks(n)],
            Action.RESTART_GROUP: group.ranks,
            Action.RESTART_RUN: range(self._policy.size),
        }[action]
        self._made.append(_Decision(what, rank, [*ranks]))
        self._failed -= set(ranks)
        if renew and action is not Action.RESTART_NODE:
            self._renew(ranks)
        return [other for other in fresh if other["rank"] not in ranks]

    def _renew(self, ranks: Sequence[int]) -> None:
        for group in self._policy.groups:
            for replica in range(group.replicas):
                if group.replica_ranks(replica)[0] in ranks:
                    del self._budgets.retries[group.name, replica]
            if set(group.ranks) <= set(ranks):
                del self._budgets.total[group.name]

    def _give_up(self) -> list[Mapping[str, Any]]:
        self._made.append(_Decision("the end"))
        return []

    def _unhandled(
        self, fresh: list[Mapping[str, Any]], group: GroupPolicy, replica: int
    ) -> set[int]:
        """Other replicas that have failed, but may have retries left."""
        ranks = (data["rank"] for data in fresh)
        return {group.replica_of(rank) for rank in ranks if rank in group.ranks} - {replica}

    def _exceeded(self, group: GroupPolicy, unhandled: set[int]) -> GroupFailure | None:
        """Why the group does not tolerate the failure of another replica; None if it does."""
        if not self._total_left(group):
            return GroupFailure.TOTAL_RETRIES
        desired = desired_replicas(self._step.after, group)
        failed = {group.replica_of(rank) for rank in self._failed if rank in group.ranks}
        failed &= set(desired) - unhandled
        if group.max_failed is not None:
            return GroupFailure.MAX_FAILED if len(failed) > group.max_failed else None
        least = min(group.min_success, len(desired))
        return GroupFailure.MIN_SUCCESS if len(failed) > len(desired) - least else None


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
        if after.native_restarts != step.before.native_restarts:
            continue  # the incident before is over
        towards = {entry.data["towards"] for entry in step.entries if entry.kind == "stopping"}
        if ending is not None:
            towards.add(ending.outcome)
        if RunState.SUCCEEDED in towards:
            continue  # it can only fail because its output is lost
        if not (ended or "restart" in kinds) or after.cause is None or len(slow) > 1:
            continue
        known = [_known(failure) for failure in step.before.failures]
        known += [(data["rank"], _place(data, step.now)) for data in reported]
        if after.cause in (*step.before.tolerated.values(), *after.tolerated.values()):
            continue  # the first cause of an array's failure, before this incident
        if known and after.cause.rank != min(known, key=lambda item: item[1])[0]:
            yield f"step {step.number}: node-{after.cause.rank}, of (rank, (echo, time)) {known}"


def _known(failure: Failure) -> tuple[int, tuple[bool, float]]:
    seen = failure.raised_at
    return failure.rank, (cause.is_consequence(failure), failure.at if seen is None else seen)


def _place(data: Mapping[str, Any], now: float) -> tuple[bool, float]:
    names = ("rank", "group", "reason", "exit_code", "signal", "message")
    failure = Failure(**{name: data[name] for name in names}, at=now)
    return cause.is_consequence(failure), data.get("raised_at", now)
