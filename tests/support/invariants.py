"""Invariants that hold after each step of any run, checked in the plainest way."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster.lifecycle import outstanding
from muster.lifecycle.decide import Decision, decide, wake_at
from muster.lifecycle.effects import (
    Effect,
    KillNodes,
    ReleaseNodes,
    SignalNodes,
    StartNodes,
    StopNodes,
)
from muster.lifecycle.events import Event, NodeReady, NodeStarted, SupervisorLost
from muster.lifecycle.policy import GroupPolicy, Policy, Strategy
from muster.lifecycle.ranks import format_ranks, parse_ranks
from muster.lifecycle.replay import replay
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeRef, NodeStatus, RunStatus

AT_REST = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED, RunState.SUSPENDED)


class InvariantChecker:
    """Observes every step of one run and records its events."""

    def __init__(self, policy: Policy, status: RunStatus) -> None:
        self.policy = policy
        self.first = status
        self.entries: list[tuple[str, dict[str, object]]] = []
        self.last: dict[NodeRef, type] = {}
        self.stopped: dict[NodeRef, float] = {}
        self.suspensions = 0

    def step(self, before: RunStatus, events: Sequence[Event], now: float, made: Decision) -> None:
        after = made.status
        self.entries += [(entry.kind, dict(entry.data)) for entry in made.entries]
        self._pure(before, events, now, made)
        if before.state.terminal:
            assert after is before and not made.effects and not made.entries
            return
        self._nodes(before, after)
        self._replicas(after)
        self._forget(before, events)
        self._effects(made, now)
        self._starts(made, now, before)
        self._outstanding(before, after, events)
        self._log(after)
        self._budgets(after)
        self._rest(after)

    def _pure(self, before: RunStatus, events: Sequence[Event], now: float, made: Decision) -> None:
        assert decide(self.policy, before, events, now) == made
        counted = decide(self.policy, replace(before, counts=None), events, now)
        assert counted.effects == made.effects and counted.entries == made.entries
        assert replace(counted.status, counts=None) == replace(made.status, counts=None)

    def _nodes(self, before: RunStatus, after: RunStatus) -> None:
        assert after.attempt >= before.attempt and after.last_incarnation >= before.last_incarnation
        for old, new in zip(before.nodes, after.nodes, strict=True):
            assert old.incarnation <= new.incarnation <= after.last_incarnation
            if new.incarnation > old.incarnation:
                not_running = (NodeState.PENDING, NodeState.STARTING)
                assert new.state in (*not_running, NodeState.STOPPED, NodeState.SCALED_DOWN)
            elif old.state.ended:
                kept = replace(old, retries=new.retries)  # of its replica
                assert new == kept, "an ended node does not change"

    def _replicas(self, after: RunStatus) -> None:
        """Replicas are desired as a whole; nodes of others do not run or are stopping."""
        for group in self.policy.groups:
            for replica in range(group.replicas):
                ranks = group.replica_ranks(replica)
                assert len({after.nodes[rank].scaled_down for rank in ranks}) == 1
            active = [
                replica
                for replica in range(group.replicas)
                if any(after.nodes[rank].alive for rank in group.replica_ranks(replica))
            ]
            assert group.parallelism is None or len(active) <= group.parallelism
        for node in after.nodes:
            assert not node.scaling_down or (node.leaving and node.next_incarnation is not None)

    def _forget(self, before: RunStatus, events: Sequence[Event]) -> None:
        """Nodes that a lost supervisor had not started are started with the same incarnation."""
        if not any(isinstance(event, SupervisorLost) for event in events):
            return
        for rank, node in enumerate(before.nodes):
            if node.state is NodeState.STARTING and not node.leaving:
                self.last.pop(NodeRef(rank, node.incarnation), None)

    def _effects(self, made: Decision, now: float) -> None:
        effects: Sequence[Effect] = made.effects
        order: list[type] = [StartNodes, RunningNode, SignalNodes, StopNodes, KillNodes]
        for effect in effects:
            assert effect.nodes, "no effect is empty"
            if isinstance(effect, ReleaseNodes):
                scaled_down = [made.status.nodes[ref.rank] for ref in effect.nodes]
                assert all(node.state is NodeState.SCALED_DOWN for node in scaled_down)
                assert [n.incarnation for n in scaled_down] == [r.incarnation for r in effect.nodes]
                continue
            for ref in effect.nodes:
                known = self.last.get(ref)
                assert known is not None or isinstance(effect, StartNodes)
                if known is not None:
                    assert order.index(known) < order.index(type(effect)), (
                        "each effect is decided once"
                    )
                self.last[ref] = type(effect)
                if isinstance(effect, StopNodes):
                    self.stopped[ref] = now
                if isinstance(effect, KillNodes):
                    assert now >= self.stopped[ref] + self.policy.grace_period

    def _starts(self, made: Decision, now: float, before: RunStatus) -> None:
        after = made.status
        for effect in made.effects:
            if not isinstance(effect, StartNodes):
                continue
            assert after.stopping is None and effect.attempt == after.attempt
            for ref in effect.nodes:
                assert after.nodes[ref.rank].state is NodeState.STARTING
                assert self._may_start(after, self.policy.group_index(ref.rank))
                assert not self._awaited(after, ref)
                was = before.nodes[ref.rank]
                if was.incarnation == ref.incarnation and was.not_before is not None:
                    assert now >= was.not_before

    def _may_start(self, status: RunStatus, index: int) -> bool:
        group, groups = self.policy.groups[index], self.policy.groups
        if self.policy.in_order:
            return all(is_up(status, other) for other in groups[:index])
        return all(
            (is_complete if dependency.complete else is_up)(status, groups[dependency.group])
            for dependency in group.depends_on
        )

    def _awaited(self, status: RunStatus, ref: NodeRef) -> bool:
        """Whether an earlier node still runs that must end before this one starts."""
        group = self.policy.group_of(ref.rank)
        ranks = group.replica_ranks(group.replica_of(ref.rank))
        for rank, node in enumerate(status.nodes):
            if self.policy.strategy is Strategy.RECREATE:
                if rank in ranks and node.next_incarnation is not None:
                    return True
            elif node.next_incarnation == ref.incarnation and not node.scaling_down:
                return True
        return False

    def _outstanding(self, before: RunStatus, after: RunStatus, events: Sequence[Event]) -> None:
        """The next supervisor repeats exactly the effects that were decided and not confirmed."""
        for event in events:
            if isinstance(event, NodeStarted | NodeReady):
                ref = NodeRef(event.rank, event.incarnation)
                if before.nodes[ref.rank].incarnation == ref.incarnation and (
                    self.last.get(ref) is StartNodes
                ):
                    self.last[ref] = RunningNode
        repeated = {
            (type(effect), ref)
            for effect in outstanding.effects(self.policy, after)
            for ref in effect.nodes
        }
        scaled_down = {
            (ReleaseNodes, NodeRef(rank, node.incarnation))
            for rank, node in enumerate(after.nodes)
            if node.state is NodeState.SCALED_DOWN
        }
        assert scaled_down <= repeated
        alive = {
            NodeRef(rank, node.incarnation) for rank, node in enumerate(after.nodes) if node.alive
        }
        assert repeated - scaled_down == {
            (self.last[ref], ref) for ref in alive if self.last[ref] is not RunningNode
        }

    def _log(self, after: RunStatus) -> None:
        scaled_down = (
            r for r, node in enumerate(self.first.nodes) if node.state is NodeState.SCALED_DOWN
        )
        initial = {"ranks": format_ranks(scaled_down), "state": "SCALED_DOWN"}
        replayed = replay([("run", {"state": self.first.state}), ("nodes", initial), *self.entries])
        assert (replayed.state, replayed.details) == (after.state, after.details)
        assert replayed.attempt == after.attempt
        for rank, node in enumerate(after.nodes):
            assert replayed.nodes.get(rank, (NodeState.PENDING, 0)) == (
                node.state,
                node.incarnation,
            )

    def _budgets(self, after: RunStatus) -> None:
        policy, spent = self.policy, after.spent
        assert spent.run <= policy.max_restarts
        for group in policy.groups:
            if group.max_restarts is not None:
                assert spent.groups.get(group.name, 0) <= group.max_restarts
            for replica in range(group.replicas):
                first = group.replica_ranks(replica)[0]
                assert after.nodes[first].retries <= group.retries
        for rule in policy.rules:
            if rule.max_restarts is not None:
                assert spent.rules.get(rule.name, 0) <= rule.max_restarts
        logged = sum(kind == "restart" for kind, _ in self.entries)
        paused = sum(
            kind == "run" and data["state"] == RunState.SUSPENDED for kind, data in self.entries
        )
        scaled = any(kind == "scaled" for kind, _ in self.entries)
        assert after.last_incarnation == logged + paused or (
            scaled and after.last_incarnation > logged + paused
        )

    def _rest(self, after: RunStatus) -> None:
        alive = [node for node in after.nodes if node.alive]
        if after.state not in AT_REST:
            waits = any(node.not_before is not None for node in after.nodes)
            assert alive or (waits and wake_at(after) is not None), "something will happen"
            return
        assert not alive and wake_at(after) is None
        if after.state is RunState.SUSPENDED:
            for group in self.policy.groups:
                for replica in range(group.replicas):
                    states = {after.nodes[rank].state for rank in group.replica_ranks(replica)}
                    if group.is_array and NodeState.FAILED in states:
                        assert all(state.ended for state in states), "it has failed for good"
                        continue
                    assert len(states) == 1
                    assert states <= {NodeState.SUCCEEDED, NodeState.PENDING, NodeState.SCALED_DOWN}
            return
        assert all(node.state.ended or node.scaled_down for node in after.nodes)
        assert after.finished_at is not None
        assert (after.exit_code == 0) == (after.state is RunState.SUCCEEDED)
        if after.state is RunState.SUCCEEDED:
            required = [self.policy.groups[index] for index in self.policy.success.groups]
            if self.policy.success.any_replica:
                assert any(
                    succeeded(after, group)
                    if group.parallelism is None
                    else is_complete(after, group)
                    for group in required
                )
            else:
                assert all(
                    succeeded(after, group) >= least(after, group) or succeeded_early(after, group)
                    for group in required
                )


class RunningNode:
    """Stands for no outstanding effect."""


def members(status: RunStatus, group: GroupPolicy) -> list[NodeStatus]:
    return [status.nodes[rank] for rank in group.ranks]


def is_up(status: RunStatus, group: GroupPolicy) -> bool:
    desired = [node for node in members(status, group) if not node.scaled_down]
    up = sum(
        node.state.ended or (node.state is NodeState.READY and node.next_incarnation is None)
        for node in desired
    )
    if group.parallelism is None:
        return up == len(desired)
    return up >= min(len(desired), group.parallelism * group.nodes)


def succeeded(status: RunStatus, group: GroupPolicy) -> int:
    return sum(
        all(status.nodes[r].state is NodeState.SUCCEEDED for r in group.replica_ranks(replica))
        for replica in range(group.replicas)
    )


def is_complete(status: RunStatus, group: GroupPolicy) -> bool:
    ended = all(node.scaled_down or node.state.ended for node in members(status, group))
    return ended and (
        succeeded(status, group) >= least(status, group) or succeeded_early(status, group)
    )


def succeeded_early(status: RunStatus, group: GroupPolicy) -> bool:
    """Kubernetes: successPolicy.rules of a Job."""
    done = {
        replica
        for replica in range(group.replicas)
        if all(status.nodes[r].state is NodeState.SUCCEEDED for r in group.replica_ranks(replica))
    }
    for rule in group.early_success:
        chosen = (
            set(range(group.replicas)) if rule.replicas is None else {*parse_ranks(rule.replicas)}
        )
        if len(done & chosen) >= (len(chosen) if rule.count is None else rule.count):
            return True
    return False


def least(status: RunStatus, group: GroupPolicy) -> int:
    desired = sum(not node.scaled_down for node in members(status, group)) // group.nodes
    return min(group.min_success, desired)
