"""Mutants of the lifecycle and the controller, each of which breaks the invariant named with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from muster.control import persist
from muster.control.controller import Controller, Record, Step
from muster.control.drive import DrivenRun
from muster.errors import StoreBusy
from muster.lifecycle import (
    backoff,
    budget,
    cause,
    contact,
    counts,
    deadlines,
    failure,
    native_restarts,
    node_queue,
    observe,
    outstanding,
    requests,
    restart,
    scaling,
    start_order,
    stopping,
    success,
    suspension,
)
from muster.lifecycle.effects import SignalNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    Event,
    NodeEnded,
    NodeReady,
    NodeStarted,
    RunRestarted,
    SessionClosed,
    SupervisorLost,
    SuspendRequested,
)
from muster.lifecycle.policy import Action, GroupFailure, Rule
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, Reason, RunStatus, Stopping
from muster.lifecycle.transition import Transition, failure_of
from simulation.harness.batch import shrink
from simulation.harness.fake_ledger import MemoryLedger
from simulation.harness.injection import FaultyLedger, FaultySession
from simulation.harness.invariants import INVARIANTS, check, name
from simulation.harness.seeds import case_of, play
from simulation.harness.session import VirtualClock
from simulation.harness.simulator import Simulation

SEEDS = 1_200
Patch = pytest.MonkeyPatch


def breaches(seeds: int = SEEDS, first: Sequence[int] = ()) -> Iterator[tuple[int, str]]:
    """The invariants that seeds break. first: seeds to try before the others."""
    for seed in (*first, *range(seeds)):
        for breach in check(play(case_of(seed))):
            yield seed, breach.invariant


# --- mutants


def native_restarts_ignored(patch: Patch) -> None:
    patch.setattr(native_restarts, "adopt", lambda transition, events: None)


def native_restarts_not_logged(patch: Patch) -> None:
    patch.setattr(native_restarts, "_log", lambda transition, event: None)


def native_restarts_are_free(patch: Patch) -> None:
    def count(transition: Transition, event: RunRestarted) -> None:
        counted = event.restarts if event.counted is None else event.counted
        transition.update(spent=replace(transition.run.spent, native=counted))

    patch.setattr(native_restarts, "_count", count)


def preempted_nodes_as_others(patch: Patch) -> None:
    patch.setattr(failure, "_default_rule", lambda policy, failure: None)


def native_restarts_beyond_the_budget(patch: Patch) -> None:
    patch.setattr(native_restarts, "_is_over_budget", lambda transition: False)


def replaced_restarts_counted(patch: Patch) -> None:
    patch.setattr(budget, "restarts_in_progress", lambda transition: ())


def native_restarts_fail_the_run(patch: Patch) -> None:
    patch.setattr(native_restarts, "_is_over_budget", lambda transition: True)


def incarnations_below_those_of_the_engine(patch: Patch) -> None:
    real = native_restarts.adopt

    def adopt(transition: Transition, events: Iterable[RunRestarted]) -> None:
        last = transition.run.last_incarnation
        real(transition, events)
        transition.update(last_incarnation=last)

    patch.setattr(native_restarts, "adopt", adopt)


def older_nodes_kept(patch: Patch) -> None:
    patch.setattr(native_restarts, "_replace_nodes", lambda transition, number, event: None)


def barrier_ignored(patch: Patch) -> None:
    def may_start(transition: Transition, node: NodeStatus) -> bool:
        return node.not_before is None or transition.is_due(node.not_before)

    patch.setattr(start_order, "_may_start", may_start)
    patch.setattr(start_order, "_old_replica_ends", lambda transition, index, rank: False)
    patch.setattr(
        start_order,
        "_has_no_startable_node",
        lambda transition, index: not transition.counts.groups[index].pending,
    )


def handed_over_early(patch: Patch) -> None:
    real = Controller.step

    def step(self: Controller, events: Sequence[Event], now: float) -> Step:
        made = real(self, events, now)
        self._closed = self._closed or self._shadow is not None
        return made

    patch.setattr(Controller, "step", step)


def order_ignored(patch: Patch) -> None:
    patch.setattr(start_order, "blocked_by", lambda policy, counts, index: None)


def budget_off_by_one(patch: Patch) -> None:
    real = budget.exhausted

    def lax(transition: Transition, rule: Rule, failure: Failure) -> str:
        policy = replace(transition.policy, max_restarts=transition.policy.max_restarts + 1)
        return real(SimpleNamespace(run=transition.run, policy=policy), rule, failure)  # type: ignore[arg-type]

    patch.setattr(budget, "exhausted", lax)


def rules_budget_ignored(patch: Patch) -> None:
    real = budget.exhausted
    patch.setattr(budget, "exhausted", lambda t, r, f: real(t, replace(r, max_restarts=None), f))


def every_restart_counted(patch: Patch) -> None:
    real = budget.spend
    patch.setattr(budget, "spend", lambda t, r, f: real(t, replace(r, counted=True), f))


def unlimited_retries(patch: Patch) -> None:
    def retry(transition: Transition, failure: Failure) -> str:
        return "retry 1 of 1" if transition.policy.group_of(failure.rank).retries else ""

    patch.setattr(budget, "retry", retry)


def stale_events_accepted(patch: Patch) -> None:
    real = observe.apply

    def apply(transition: Transition, events: Sequence[Event]) -> None:
        reports = NodeStarted | NodeReady | NodeEnded
        real(
            transition,
            [_updated(transition, e) if isinstance(e, reports) else e for e in events],
        )

    def _updated(transition: Transition, event: Any) -> Event:
        return replace(event, incarnation=transition.nodes[event.rank].incarnation)  # type: ignore[no-any-return]

    patch.setattr(observe, "apply", apply)


def no_outstanding_effects(patch: Patch) -> None:
    patch.setattr(outstanding, "effects", lambda policy, status: ())


def started_nodes_forgotten(patch: Patch) -> None:
    real = requests._lose

    def lose(transition: Transition, event: SupervisorLost) -> None:
        real(transition, replace(event, started=frozenset()))

    patch.setattr(requests, "_lose", lose)


def unstarted_nodes_left_starting(patch: Patch) -> None:
    def lose(transition: Transition, event: SupervisorLost) -> None:
        nodes = list(transition.nodes)
        real(transition, event)
        for rank, node in enumerate(nodes):
            if transition.nodes[rank] == replace(node, state=NodeState.PENDING, since=None):
                transition.set_node(rank, node)

    real = requests._lose
    patch.setattr(requests, "_lose", lose)


def cancel_ignored(patch: Patch) -> None:
    real = requests.apply

    def apply(transition: Transition, events: Sequence[Event]) -> None:
        real(transition, [e for e in events if not isinstance(e, CancelRequested)])

    patch.setattr(requests, "apply", apply)


def cancel_ignored_at_rest(patch: Patch) -> None:
    patch.setattr(DrivenRun, "_late_requests", lambda _: [])


def backoff_ignored(patch: Patch) -> None:
    real = restart._restart_nodes
    patch.setattr(
        restart, "_restart_nodes", lambda t, ranks, number, not_before: real(t, ranks, number, None)
    )


def backoff_halved(patch: Patch) -> None:
    real = backoff.delay
    patch.setattr(backoff, "delay", lambda rules, streak, number: real(rules, streak, number) / 2)


def successes_run_again(patch: Patch) -> None:
    real = suspension.reset_replicas

    def suspend(transition: Transition, ending: Stopping) -> None:
        real(transition, ending)
        for rank, node in enumerate(transition.nodes):
            if node.state is NodeState.SUCCEEDED:
                transition.set_node(rank, NodeStatus(incarnation=transition.run.last_incarnation))

    patch.setattr(suspension, "reset_replicas", suspend)


def failures_run_again(patch: Patch) -> None:
    patch.setattr(suspension, "failed_for_good", lambda _transition: {})


def deadlines_too_early(patch: Patch) -> None:
    real = Transition.is_due
    patch.setattr(Transition, "is_due", lambda self, at: real(self, at - 3.0))


def no_alarms(patch: Patch) -> None:
    patch.setattr(Transition, "wake", lambda self, at: None)


def no_alarm_for_starting_nodes(patch: Patch) -> None:
    patch.setattr(start_order, "schedule_deadlines", lambda transition, starting: None)


def run_ends_before_its_nodes(patch: Patch) -> None:
    def apply(transition: Transition, *, outcome_apart: bool) -> None:
        if transition.alarm_reached:
            stopping._expire_deadlines(transition)
        if transition.run.stopping is not None:
            stopping._finish(transition, transition.run.stopping)

    patch.setattr(stopping, "apply", apply)


def one_replica_is_success(patch: Patch) -> None:
    def has_succeeded(_policy: Any, counted: counts.NodeCounts) -> bool:
        return any(group.ended for group in counted.groups)

    patch.setattr(counts, "has_succeeded", has_succeeded)


def ready_nodes_not_counted(patch: Patch) -> None:
    real = counts.NodeCounts.change

    def change(self: Any, policy: Any, ranks: Any, old: NodeStatus, new: NodeStatus) -> None:
        if new.state is not NodeState.READY:
            real(self, policy, ranks, old, new)

    patch.setattr(counts.NodeCounts, "change", change)


def stopped_nodes_not_logged(patch: Patch) -> None:
    real = Transition._node_entries

    def entries(self: Transition) -> list[Any]:
        return [entry for entry in real(self) if entry.data["state"] != NodeState.STOPPED]

    patch.setattr(Transition, "_node_entries", entries)


def stopping_not_recorded(patch: Patch) -> None:
    real = persist.run_changes

    def changes(before: RunStatus, after: RunStatus) -> dict[str, Any]:
        return real(replace(before, stopping=None), replace(after, stopping=None))

    patch.setattr("simulation.harness.fake_ledger.run_changes", changes)


def next_incarnations_not_recorded(patch: Patch) -> None:
    real = persist._change
    patch.setattr(
        persist,
        "_change",
        lambda node, *more: real(replace(node, next_incarnation=None), *more),
    )


def busy_store_ignored(patch: Patch) -> None:
    def record(self: Any, one: Record) -> None:
        try:
            real(self, one)
        except StoreBusy:
            pass

    real = FaultyLedger.record
    patch.setattr(FaultyLedger, "record", record)


def acts_before_recording(patch: Patch) -> None:
    def carry_out_step(self: Any, step: Step, *, recorded: bool) -> bool:
        for effect in step.effects:
            self._carry_out(effect)
        return real(self, step, recorded=recorded)

    real = DrivenRun._carry_out_step
    patch.setattr(DrivenRun, "_carry_out_step", carry_out_step)


def attempt_timeout_halved(patch: Patch) -> None:
    def attempt(transition: Transition) -> None:
        if transition.policy.attempt_timeout is not None:
            transition.policy = replace(
                transition.policy, attempt_timeout=transition.policy.attempt_timeout / 2
            )
        real(transition)

    real = deadlines._check_attempt
    patch.setattr(deadlines, "_check_attempt", attempt)


def clocks_go_back(patch: Patch) -> None:
    real = VirtualClock.__init__
    patch.setattr(VirtualClock, "__init__", lambda self, queue, ahead, _: real(self, queue, ahead))


def resumed_in_progress(patch: Patch) -> None:
    def resume(transition: Transition, why: str) -> None:
        if transition.run.state is RunState.SUSPENDED:
            transition.set_state(RunState.IN_PROGRESS)

    patch.setattr(suspension, "resume", resume)


def late_events_accepted(patch: Patch) -> None:
    def started(transition: Transition, events: Any, state: NodeState) -> None:
        ranks = {event.rank for event in events}
        transition.change_nodes(ranks, lambda node: replace(node, state=state))

    patch.setattr(observe, "_set_up", started)


def failures_not_logged(patch: Patch) -> None:
    real = MemoryLedger._append

    def append(self: MemoryLedger, entries: Sequence[Any], now: float) -> None:
        real(self, entries, now)
        self._log[:] = [entry for entry in self._log if entry.kind != "failure"]

    patch.setattr(MemoryLedger, "_append", append)


def session_left_open(patch: Patch) -> None:
    run_ends_before_its_nodes(patch)
    patch.setattr(FaultySession, "close", lambda self: self._receive([SessionClosed()]))


def failed_replicas_start(patch: Patch) -> None:
    real = stopping.stop_nodes

    def stop_nodes(transition: Transition, ranks: Any, why: str = "") -> None:
        ranks = list(ranks)
        again = {rank: transition.nodes[rank].next_incarnation for rank in ranks}
        real(transition, ranks, why)
        for rank in ranks:
            if transition.nodes[rank].alive and again[rank] is not None:
                transition.set_node(
                    rank, replace(transition.nodes[rank], next_incarnation=again[rank])
                )

    patch.setattr(stopping, "stop_nodes", stop_nodes)


def stop_repeated(patch: Patch) -> None:
    real = stopping.apply

    def apply(transition: Transition, *, outcome_apart: bool) -> None:
        real(transition, outcome_apart=outcome_apart)
        leaving = [rank for rank, node in enumerate(transition.nodes) if node.leaving]
        if leaving:
            transition.emit(StopNodes(transition.refs(leaving)))

    patch.setattr(stopping, "apply", apply)


def suspended_without_a_request(patch: Patch) -> None:
    real = requests.apply

    def apply(transition: Transition, events: Sequence[Event]) -> None:
        real(
            transition,
            [*events, SuspendRequested("no reason")] if transition.run.last_incarnation else events,
        )

    patch.setattr(requests, "apply", apply)


def last_rule_first(patch: Patch) -> None:
    real = failure.choose

    def choose(policy: Any, failures: Sequence[Failure], _: Any, *more: Any) -> Any:
        return real(replace(policy, rules=policy.rules[::-1]), failures, None, *more)

    patch.setattr(failure, "choose", choose)


def retries_before_all_rules(patch: Patch) -> None:
    real = failure.choose

    def choose(policy: Any, failures: Sequence[Failure], _: Any, *more: Any) -> Any:
        rule, chosen = real(policy, failures, None, *more)
        return rule and replace(rule, before_retries=False), chosen

    patch.setattr(failure, "choose", choose)


def one_node_too_many_restarts(patch: Patch) -> None:
    real = restart._restart_nodes

    def again(
        transition: Transition, ranks: Iterable[int], number: int, not_before: float | None
    ) -> None:
        given = [*ranks]
        one_more = range(given[-1] + 1, min(given[-1] + 2, transition.policy.size))
        real(transition, [*given, *one_more], number, not_before)

    patch.setattr(restart, "_restart_nodes", again)


def suspended_with_a_stopped_node(patch: Patch) -> None:
    real = suspension.reset_replicas

    def suspend(transition: Transition, ending: Stopping) -> None:
        real(transition, ending)
        pending = [rank for rank, node in enumerate(transition.nodes) if not node.state.ended]
        for rank in pending[:1]:
            transition.set_node(rank, replace(transition.nodes[rank], state=NodeState.STOPPED))

    patch.setattr(suspension, "reset_replicas", suspend)


def scaling_ignored(patch: Patch) -> None:
    patch.setattr(scaling, "apply", lambda transition, event: None)


def highest_added_first(patch: Patch) -> None:
    real = scaling._replicas
    patch.setattr(scaling, "_replicas", lambda *args, **state: real(*args, **state)[::-1])


def removed_nodes_not_stopped(patch: Patch) -> None:
    patch.setattr(scaling, "stopping", SimpleNamespace(terminate=Transition.change_nodes))


def scaled_down_while_alive(patch: Patch) -> None:
    def terminate(transition: Transition, ranks: Any, change: Any) -> None:
        real(transition, ranks, change)
        for rank in ranks:
            transition.scale_down(rank, transition.nodes[rank].next_incarnation)

    real = stopping.terminate
    patch.setattr(scaling, "stopping", SimpleNamespace(terminate=terminate))


def removed_nodes_fail(patch: Patch) -> None:
    def end(transition: Transition, events: Any) -> None:
        for event in events:
            node = transition.nodes[event.rank]
            messages = failure_of(
                transition, event.rank, event.reason, event.message, exit_code=event.exit_code
            )
            real(transition, [event])
            if node.scaling_down and event.exit_code:
                transition.add_failure(messages)

    real = observe.end
    patch.setattr(observe, "end", end)


def scaled_down_nodes_awaited(patch: Patch) -> None:
    def is_up(policy: Any, counts: Any, group: int) -> bool:
        count = counts.groups[group]
        return bool(count.ready + count.ended == policy.groups[group].size)

    patch.setattr(counts, "is_up", is_up)


def first_failure_before_first_rule(patch: Patch) -> None:
    def choose(policy: Any, failures: Sequence[Failure], *_: Any) -> Any:
        for found in failures:
            for rule in sorted(policy.rules, key=lambda rule: not rule.before_retries):
                if failure.fits(rule, found):
                    return rule, found
        return None, failures[0]

    patch.setattr(failure, "choose", choose)


def checkpoint_signal_not_repeated(patch: Patch) -> None:
    real = outstanding.effects

    def effects(policy: Any, status: RunStatus) -> Any:
        return tuple(e for e in real(policy, status) if not isinstance(e, SignalNodes))

    patch.setattr(outstanding, "effects", effects)


def runtime_reset_by_suspension(patch: Patch) -> None:
    real = suspension.reset_replicas

    def suspend(transition: Transition, ending: Stopping) -> None:
        real(transition, ending)
        transition.update(ran_before=0.0)

    patch.setattr(suspension, "reset_replicas", suspend)


def suspended_time_counted(patch: Patch) -> None:
    real = suspension.reset_replicas

    def suspend(transition: Transition, ending: Stopping) -> None:
        since, ran = transition.run.running_since, transition.run.ran_before
        real(transition, ending)
        transition.update(running_since=since, ran_before=ran)

    patch.setattr(suspension, "reset_replicas", suspend)


def retries_kept_by(action: Action) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        renew = budget.renew_retries

        def renew_retries(transition: Transition, restarted: Iterable[range]) -> None:
            ranges = [*restarted]
            what = Action.RESTART_REPLICA
            if ranges in [[group.ranks] for group in transition.policy.groups]:
                what = Action.RESTART_GROUP
            if ranges == [range(transition.policy.size)]:
                what = Action.RESTART_RUN
            if what is not action:
                renew(transition, ranges)

        patch.setattr(budget, "renew_retries", renew_retries)

    mutate.__name__ = f"retries_kept_by_{action}"
    return mutate


def tolerable(by: int) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        def exceeded(transition: Transition, found: Failure) -> GroupFailure | None:
            index = transition.policy.group_index(found.rank)
            dispensable = counts.desired_replicas(transition.policy, transition.counts, index)
            dispensable -= counts.required_successes(transition.policy, transition.counts, index)
            failed = transition.counts.groups[index].failed
            return GroupFailure.MIN_SUCCESS if failed > dispensable + by else None

        patch.setattr(failure, "_limit_exceeded", exceeded)

    mutate.__name__ = f"tolerable_off_by_{by}"
    return mutate


def max_failed_off_by_one(patch: Patch) -> None:
    real = failure._limit_exceeded

    def exceeded(transition: Transition, found: Failure) -> GroupFailure | None:
        group = transition.policy.group_of(found.rank)
        limit = real(transition, found)
        failed = transition.counts.groups[transition.policy.group_index(found.rank)].failed
        if limit is GroupFailure.MAX_FAILED and failed == (group.max_failed or 0) + 1:
            return None
        return limit

    patch.setattr(failure, "_limit_exceeded", exceeded)


def total_retries_ignored(patch: Patch) -> None:
    patch.setattr(budget, "total_left", lambda transition, group: True)


def failed_replicas_free(patch: Patch) -> None:
    """The failure of a replica does not count towards `total_retries`."""
    real = failure._fail_replica

    def fail(transition: Transition, found: Failure, texts: Any) -> None:
        spent = transition.run.spent
        real(transition, found, texts)
        kept = {**transition.run.spent.retries}
        name = found.group
        if kept.get(name, 0) > spent.retries.get(name, 0):
            kept[name] -= 1
            transition.update(spent=replace(transition.run.spent, retries=kept))

    patch.setattr(failure, "_fail_replica", fail)


def rules_about_groups_for_nodes(patch: Patch) -> None:
    patch.setattr(failure, "_is_about", lambda rule, group_failure: True)


def only_the_first_failed_replica_restarts(patch: Patch) -> None:
    real = failure._carry_out

    def carry_out(*args: Any, replicas: Sequence[int] = (), **options: Any) -> None:
        real(*args, replicas=replicas[:1], **options)

    patch.setattr(failure, "_carry_out", carry_out)


def failures_with_retries_left_count(patch: Patch) -> None:
    patch.setattr(failure, "_unhandled", lambda *_: set())


def arrays_never_fall_short(patch: Patch) -> None:
    patch.setattr(failure, "fail_arrays", lambda transition: None)


def retries_before_fail_replica(patch: Patch) -> None:
    real = failure._fail_replica

    def fail(transition: Transition, found: Failure, texts: Any) -> None:
        if how := failure._retry(transition, found):
            restart.begin(transition, Action.RESTART_NODE, found, how)
            failure._drop_restarted(transition)
        else:
            real(transition, found, texts)

    patch.setattr(failure, "_fail_replica", fail)


def parallelism_ignored(patch: Patch) -> None:
    patch.setattr(
        start_order,
        "_within_parallelism",
        lambda transition, index, group: transition.pending_ranks(group.ranks),
    )


def last_replica_first(patch: Patch) -> None:
    def within(transition: Transition, index: int, group: Any) -> list[int]:
        free = group.parallelism - transition.counts.groups[index].active
        pending = list(transition.pending_ranks(group.ranks))
        waiting = {group.replica_of(rank): None for rank in reversed(pending)}
        active = transition.counts.groups[index].alive_in
        begun = [replica for replica in waiting if not active[replica]][: max(0, free)]
        chosen = {*begun, *(replica for replica in waiting if active[replica])}
        return [rank for rank in pending if group.replica_of(rank) in chosen]

    patch.setattr(start_order, "_within_parallelism", within)


def early_success_ignored(patch: Patch) -> None:
    patch.setattr(success, "_stop_groups_that_succeeded_early", lambda transition: None)


def replicas_of_arrays_wait_together(patch: Patch) -> None:
    patch.setattr(restart, "_delay", lambda transition, *_: backoff.next_delay(transition))


def grace_period_extended(patch: Patch) -> None:
    def terminate(transition: Transition, ranks: Any, change: Any) -> None:
        kill_at = transition.now + transition.policy.grace_period
        running = [rank for rank in ranks if transition.nodes[rank].kill_at is None]
        transition.change_nodes(ranks, lambda node: replace(change(node), kill_at=kill_at))
        if ranks:
            transition.wake(kill_at)
        if running:
            transition.emit(StopNodes(transition.refs(running)))

    patch.setattr(stopping, "terminate", terminate)


def succeeded_removed_first(patch: Patch) -> None:
    real = scaling._removal_order

    def place(transition: Transition, index: int, replica: int) -> tuple[int, int]:
        kind, number = real(transition, index, replica)
        return {0: 1, 1: 0}.get(kind, kind), number

    patch.setattr(scaling, "_removal_order", place)


def lowest_removed_first(patch: Patch) -> None:
    real = scaling._removal_order

    def place(transition: Transition, index: int, replica: int) -> tuple[int, int]:
        kind, number = real(transition, index, replica)
        return kind, -number

    patch.setattr(scaling, "_removal_order", place)


def error_times_ignored(patch: Patch) -> None:
    patch.setattr(cause, "order", lambda found: (cause.is_consequence(found), found.at))


def jitter_above_the_longest_delay(patch: Patch) -> None:
    real = backoff.delay

    def delay(rules: Any, streak: int, number: int) -> float:
        plain = real(replace(rules, jitter=0.0), streak, number)
        wait = real(replace(rules, longest=1e9), streak, number)
        base = real(replace(rules, longest=1e9, jitter=0.0), streak, number)
        return plain * wait / base if base else plain

    patch.setattr(backoff, "delay", delay)


def serving_nodes_stopped_early(patch: Patch) -> None:
    def stop_serving_groups(transition: Transition) -> None:
        served = [
            rank for group in transition.policy.groups if group.serves for rank in group.ranks
        ]
        stopping.stop_nodes(
            transition, [r for r in served if transition.nodes[r].term_at is not None]
        )

    patch.setattr(stopping, "_stop_serving_groups", stop_serving_groups)


def resumed_as_the_same_attempt(patch: Patch) -> None:
    def resume(transition: Transition, why: str) -> None:
        if transition.run.state is RunState.SUSPENDED:
            transition.set_state(RunState.ACCEPTED)
            transition.log("resumed", why=why, attempt=transition.run.attempt)

    patch.setattr(suspension, "resume", resume)


def ready_timeouts_not_restarted(patch: Patch) -> None:
    patch.setattr(observe, "_restart_startup_timeouts", lambda transition: None)


def others_not_awaited(patch: Patch) -> None:
    real = success.apply

    def apply(transition: Transition) -> None:
        policy = transition.policy
        transition.policy = replace(policy, success=replace(policy.success, wait=False))
        real(transition)
        transition.policy = policy

    patch.setattr(success, "apply", apply)


def serving_nodes_never_stopped(patch: Patch) -> None:
    patch.setattr(stopping, "_stop_serving_groups", lambda transition: None)


def saving_nodes_succeed(patch: Patch) -> None:
    real = observe._ended_node

    def ended(transition: Transition, node: NodeStatus, event: NodeEnded) -> NodeStatus:
        made = real(transition, node, event)
        stopped = made.state is NodeState.STOPPED and event.exit_code == 0
        return replace(made, state=NodeState.SUCCEEDED) if stopped else made

    patch.setattr(observe, "_ended_node", ended)


def exit_code_always_1(patch: Patch) -> None:
    real = stopping._finish

    def finish(transition: Transition, ending: Any) -> None:
        real(transition, ending)
        if transition.run.state is RunState.FAILED:
            transition.update(exit_code=1)

    patch.setattr(stopping, "_finish", finish)


def no_checkpoint_at_max_runtime(patch: Patch) -> None:
    real = stopping.begin

    def begin(transition: Transition, outcome: RunState, details: str, **more: Any) -> None:
        real(transition, outcome, details, **{**more, "save": False})

    patch.setattr(stopping, "begin", begin)


def unreachable_nodes_killed(patch: Patch) -> None:
    def expire(transition: Transition) -> None:
        for rank in transition.alive_ranks(transition.all_ranks):
            node = transition.nodes[rank]
            if node.unreachable_since is not None and (node.term_at or node.kill_at):
                transition.set_node(rank, replace(node, unreachable_since=None))
                real(transition)
                again = transition.nodes[rank]
                since = node.unreachable_since
                transition.set_node(rank, replace(again, unreachable_since=since))
        real(transition)

    real = stopping._expire_deadlines
    patch.setattr(stopping, "_expire_deadlines", expire)


def unreachable_nodes_lost(patch: Patch) -> None:
    def lose(transition: Transition, events: Any, changes: contact.Changes) -> None:
        events = [*events]
        real(transition, events, changes)
        observe.end(
            transition,
            [
                NodeEnded(e.rank, None, 0, Reason.NODE_LOST, "no contact", e.incarnation)
                for e in events
            ],
        )

    real = contact.lose
    patch.setattr(contact, "lose", lose)


def ends_of_unreachable_nodes_ignored(patch: Patch) -> None:
    def end(transition: Transition, events: Iterable[NodeEnded]) -> None:
        nodes = transition.nodes
        real(transition, [e for e in events if nodes[e.rank].unreachable_since is None])

    real = observe.end
    patch.setattr(observe, "end", end)


def nodes_stay_unreachable(patch: Patch) -> None:
    patch.setattr(contact, "find", lambda *_: None)


def contacts_not_logged(patch: Patch) -> None:
    patch.setattr(contact, "log", lambda *_: None)


def startup_clock_goes_on_without_contact(patch: Patch) -> None:
    real = contact._found
    patch.setattr(contact, "_found", lambda node, now: replace(real(node, now), away=node.away))


def late_without_contact(patch: Patch) -> None:
    def check(transition: Transition, group: Any) -> None:
        away = {
            rank: node.unreachable_since
            for rank in transition.alive_ranks(group.ranks)
            if (node := transition.nodes[rank]).unreachable_since is not None
        }
        for rank in away:
            transition.set_node(rank, replace(transition.nodes[rank], unreachable_since=None))
        real(transition, group)
        for rank, since in away.items():
            transition.set_node(rank, replace(transition.nodes[rank], unreachable_since=since))

    real = deadlines._check_startup
    patch.setattr(deadlines, "_check_startup", check)


def grace_period_goes_on_without_contact(patch: Patch) -> None:
    def found(node: NodeStatus, now: float) -> NodeStatus:
        return replace(real(node, now), kill_at=node.kill_at, term_at=node.term_at)

    real = contact._found
    patch.setattr(contact, "_found", found)


def grace_period_counts_twice_without_contact(patch: Patch) -> None:
    patch.setattr(contact, "standing", lambda node, now: now)


def no_alarm_for_nodes_that_are_found(patch: Patch) -> None:
    patch.setattr(contact, "wake_at_deadlines", lambda *_: None)


def clocks_go_on_when_attached(patch: Patch) -> None:
    patch.setattr(contact, "attach", lambda _: None)


def only_startup_restarts_when_attached(patch: Patch) -> None:
    real = contact._attached
    patch.setattr(contact, "_attached", lambda t, node: node if node.leaving else real(t, node))


def supervisor_lost_with_its_detached_nodes(patch: Patch) -> None:
    def replace_supervisor(self: Simulation) -> None:
        self._decide([*self.ledger.requests(), SupervisorLost("its supervisor died")], "recovery")

    patch.setattr(Simulation, "_replace_supervisor", replace_supervisor)


def detached_nodes_stopped_by_a_hand_over(patch: Patch) -> None:
    real = Controller.__init__
    patch.setattr(
        Controller, "__init__", lambda self, policy, status, **_: real(self, policy, status)
    )


def events_recorded_while_leaving(patch: Patch) -> None:
    def step(self: Controller, why: str, now: float) -> Step:
        made = real(self, why, now)
        if made.record is None:
            return made
        changed = replace(self._status, handed_over=why)
        return replace(made, record=replace(made.record, after=changed))

    real = Controller._leave_step
    patch.setattr(Controller, "_leave_step", step)


def as_starting(function: Callable[..., None]) -> Callable[..., None]:
    """The function, for which queued nodes are starting."""

    def changed(transition: Transition, group: Any) -> None:
        queued = [
            rank
            for rank in transition.alive_ranks(group.ranks)
            if transition.nodes[rank].state is NodeState.QUEUED
        ]
        for rank in queued:
            node = replace(transition.nodes[rank], state=NodeState.STARTING)
            transition.set_node(rank, node)
        function(transition, group)
        for rank in queued:
            transition.set_node(rank, replace(transition.nodes[rank], state=NodeState.QUEUED))

    return changed


def queued_nodes_are_late(patch: Patch) -> None:
    patch.setattr(deadlines, "_check_startup", as_starting(deadlines._check_startup))


def queued_replicas_are_late(patch: Patch) -> None:
    patch.setattr(deadlines, "_check_replicas", as_starting(deadlines._check_replicas))


def clocks_count_the_queue(patch: Patch) -> None:
    real = node_queue.scheduled

    def scheduled(transition: Transition, ranks: Any, node: NodeStatus, *more: Any) -> NodeStatus:
        return replace(real(transition, ranks, node, *more), since=node.since)

    patch.setattr(node_queue, "scheduled", scheduled)


def nodes_stay_queued(patch: Patch) -> None:
    patch.setattr(node_queue, "schedule", lambda *_: None)


def places_ignored(patch: Patch) -> None:
    patch.setattr(observe, "_locate", lambda *_: None)


def later_reasons_ignored(patch: Patch) -> None:
    real = node_queue.wait

    def wait(transition: Transition, events: Iterable[Any]) -> None:
        nodes = transition.nodes
        real(transition, [e for e in events if nodes[e.rank].state is not NodeState.QUEUED])

    patch.setattr(node_queue, "wait", wait)


def no_alarm_for_scheduled_nodes(patch: Patch) -> None:
    patch.setattr(observe, "start_order", SimpleNamespace(schedule_deadlines=lambda *_: None))
    patch.setattr(node_queue, "start_order", SimpleNamespace(schedule_deadlines=lambda *_: None))


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (places_ignored, "places are recorded"),
    (barrier_ignored, "old incarnations end first"),
    (order_ignored, "start order is kept"),
    (budget_off_by_one, "budgets are kept"),
    (rules_budget_ignored, "budgets are kept"),
    (every_restart_counted, "only counted restarts are spent"),
    (unlimited_retries, "budgets are kept"),
    (stale_events_accepted, "one incarnation at a time"),
    (no_outstanding_effects, "every run ends"),
    (started_nodes_forgotten, "a program runs once per incarnation"),
    (unstarted_nodes_left_starting, "every run ends"),
    (cancel_ignored, "a cancel is final"),
    (cancel_ignored_at_rest, "a cancel is final"),
    (backoff_ignored, "backoff is kept"),
    (backoff_halved, "backoff grows"),
    (successes_run_again, "successes survive suspension"),
    (failures_run_again, "failures survive suspension"),
    (deadlines_too_early, "grace period is given"),
    (deadlines_too_early, "checkpoint grace is given"),
    (deadlines_too_early, "timeouts are not early"),
    (no_alarms, "no deadline is missed"),
    (no_alarm_for_starting_nodes, "no deadline is missed"),
    (run_ends_before_its_nodes, "a terminal state is final"),
    (one_replica_is_success, "the outcome matches the nodes"),
    (ready_nodes_not_counted, "node counts are correct"),
    (stopped_nodes_not_logged, "the log gives the status"),
    (stopping_not_recorded, "the record is complete"),
    (next_incarnations_not_recorded, "the record is complete"),
    (busy_store_ignored, "the log gives the status"),
    (acts_before_recording, "commands name current incarnations"),
    (attempt_timeout_halved, "timeouts are not early"),
    (clocks_go_back, "log times never decrease"),
    (resumed_in_progress, "run states are in order"),
    (late_events_accepted, "node states are in order"),
    (failures_not_logged, "the log has no gaps"),
    (session_left_open, "no process outlives its run"),
    (failed_replicas_start, "a failed replica stays down"),
    (stop_repeated, "commands are sent once"),
    (suspended_without_a_request, "suspensions are requested"),
    (last_rule_first, "restarts follow the rules"),
    (retries_before_all_rules, "restarts follow the rules"),
    (one_node_too_many_restarts, "nothing else restarts"),
    (suspended_with_a_stopped_node, "a suspended run has no nodes"),
    (scaling_ignored, "replica counts match requests"),
    (highest_added_first, "replica counts match requests"),
    (removed_nodes_not_stopped, "scaled down nodes have no processes"),
    (scaled_down_while_alive, "scaled down nodes have no processes"),
    (removed_nodes_fail, "scaled down nodes do not fail"),
    (scaled_down_nodes_awaited, "desired nodes start"),
    (first_failure_before_first_rule, "the policy decides"),
    (checkpoint_signal_not_repeated, "every decision is carried out"),
    (runtime_reset_by_suspension, "max runtime is exact"),
    (suspended_time_counted, "max runtime is exact"),
    (retries_kept_by(Action.RESTART_REPLICA), "the policy decides"),
    (retries_kept_by(Action.RESTART_GROUP), "the policy decides"),
    (retries_kept_by(Action.RESTART_RUN), "the policy decides"),
    (tolerable(by=1), "the policy decides"),
    (tolerable(by=-1), "the policy decides"),
    (max_failed_off_by_one, "the policy decides"),
    (total_retries_ignored, "budgets are kept"),
    (failed_replicas_free, "the policy decides"),
    (rules_about_groups_for_nodes, "restarts follow the rules"),
    (only_the_first_failed_replica_restarts, "the policy decides"),
    (failures_with_retries_left_count, "the policy decides"),
    (arrays_never_fall_short, "the policy decides"),
    (retries_before_fail_replica, "restarts follow the rules"),
    (parallelism_ignored, "arrays keep their parallelism"),
    (last_replica_first, "arrays start in order"),
    (early_success_ignored, "arrays stop when they have succeeded"),
    (replicas_of_arrays_wait_together, "backoff grows"),
    (grace_period_extended, "grace period is not extended"),
    (succeeded_removed_first, "replica counts match requests"),
    (lowest_removed_first, "replica counts match requests"),
    (error_times_ignored, "the first cause is named"),
    (jitter_above_the_longest_delay, "backoff grows"),
    (serving_nodes_stopped_early, "checkpoint grace is given"),
    (resumed_as_the_same_attempt, "attempts are counted"),
    (ready_timeouts_not_restarted, "a new controller restarts ready timeouts"),
    (others_not_awaited, "success waits for others"),
    (serving_nodes_never_stopped, "every node may save"),
    (saving_nodes_succeed, "interrupted nodes have not succeeded"),
    (exit_code_always_1, "the outcome matches the nodes"),
    (no_checkpoint_at_max_runtime, "every node may save"),
    (handed_over_early, "a run that is handed over has no processes"),
    (queued_nodes_are_late, "no deadline counts time in a queue"),
    (queued_replicas_are_late, "no deadline counts time in a queue"),
    (clocks_count_the_queue, "no deadline counts time in a queue"),
    (nodes_stay_queued, "queues are recorded"),
    (later_reasons_ignored, "queues are recorded"),
    (no_alarm_for_scheduled_nodes, "no deadline is missed"),
    (native_restarts_ignored, "native restarts are adopted"),
    (native_restarts_not_logged, "native restarts are adopted"),
    (native_restarts_are_free, "budgets count native restarts"),
    (preempted_nodes_as_others, "the policy decides"),
    (native_restarts_beyond_the_budget, "budgets count native restarts"),
    (replaced_restarts_counted, "budgets count native restarts"),
    (replaced_restarts_counted, "a run is not worse off"),
    (native_restarts_fail_the_run, "a run is not worse off"),
    (incarnations_below_those_of_the_engine, "node states are in order"),
    (older_nodes_kept, "native restarts are adopted"),
    (unreachable_nodes_killed, "unreachable nodes are not killed"),
    (unreachable_nodes_lost, "one incarnation at a time"),
    (unreachable_nodes_lost, "failures are real"),
    (unreachable_nodes_lost, "every end is recorded once"),
    (ends_of_unreachable_nodes_ignored, "every run ends"),
    (nodes_stay_unreachable, "contacts are recorded"),
    (contacts_not_logged, "contacts are recorded"),
    (startup_clock_goes_on_without_contact, "startup timeouts count time with contact"),
    (late_without_contact, "startup timeouts count time with contact"),
    (grace_period_goes_on_without_contact, "grace periods count from contact"),
    (grace_period_counts_twice_without_contact, "grace period is not extended"),
    (no_alarm_for_nodes_that_are_found, "no deadline is missed"),
    (clocks_go_on_when_attached, "a new controller restarts ready timeouts"),
    (clocks_go_on_when_attached, "startup timeouts count time with contact"),
    (only_startup_restarts_when_attached, "grace periods count from contact"),
    (supervisor_lost_with_its_detached_nodes, "failures are real"),
    (supervisor_lost_with_its_detached_nodes, "one incarnation at a time"),
    (detached_nodes_stopped_by_a_hand_over, "nodes are left alone"),
    (events_recorded_while_leaving, "nodes are left alone"),
]

#: Seeds that have shown mutants which few seeds show. One that does not any more costs time only.
SHOWN_BY: dict[Callable[[Patch], None], int] = {
    arrays_never_fall_short: 87,
    cancel_ignored_at_rest: 238,
    deadlines_too_early: 82,
    error_times_ignored: 74,
    failures_run_again: 219,
    grace_period_counts_twice_without_contact: 358,
    handed_over_early: 192,
    last_rule_first: 150,
    native_restarts_beyond_the_budget: 649,
    only_the_first_failed_replica_restarts: 868,
    preempted_nodes_as_others: 349,
    replicas_of_arrays_wait_together: 67,
    retries_before_fail_replica: 242,
    rules_about_groups_for_nodes: 197,
    runtime_reset_by_suspension: 137,
    serving_nodes_never_stopped: 358,
    serving_nodes_stopped_early: 385,
    started_nodes_forgotten: 335,
    succeeded_removed_first: 218,
    unstarted_nodes_left_starting: 148,
}


# it tests the invariants, which change seldom
@pytest.mark.slow
@pytest.mark.parametrize(("mutate", "invariant"), MUTANTS)
def test_each_mutant_breaks_its_invariant(
    mutate: Callable[[Patch], None], invariant: str, monkeypatch: Patch
) -> None:
    mutate(monkeypatch)
    found: dict[str, int] = {}
    first = [SHOWN_BY[mutate]] if mutate in SHOWN_BY else []
    for seed, broken in breaches(first=first):
        found.setdefault(broken, seed)
        if broken == invariant:
            return
    raise AssertionError(f"{SEEDS} seeds broke only {found}")


def test_every_invariant_has_a_mutant() -> None:
    assert {name(invariant) for invariant in INVARIANTS} == {found for _, found in MUTANTS}


def test_the_unchanged_lifecycle_breaks_no_invariant() -> None:
    assert next(breaches(50), None) is None


def test_a_plan_is_reduced_to_the_faults_that_matter(monkeypatch: Patch) -> None:
    cancel_ignored_at_rest(monkeypatch)
    found = (seed for seed, broken in breaches() if broken == "a cancel is final")
    seed = next(seed for seed in found if not case_of(seed).detached)
    least = shrink(seed, "a cancel is final")
    assert 0 < len(least) < len(case_of(seed).plan)
    assert {type(fault).__name__ for fault in least} <= {"UserRequests", "UserRequestsDuringStep"}


def test_a_defect_is_a_finding(monkeypatch: Patch) -> None:
    def broken(self: Simulation, *_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Simulation, "_run_controller", broken)
    (breach, *_) = check(play(case_of(1)))
    assert breach.invariant == "every run ends"
    assert "ZeroDivisionError" in breach.text
