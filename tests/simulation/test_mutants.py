"""Invariants that cannot fail prove nothing: break the heart in many ways, and see each found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from muster.control import persist
from muster.control.controller import Controller
from muster.engines.simulated.clock import VirtualClock
from muster.errors import StoreBusy
from muster.lifecycle import (
    backoff,
    budget,
    cause,
    census,
    deadline,
    failure,
    observe,
    outstanding,
    requests,
    restart,
    scaling,
    startup,
    stopping,
    success,
    suspension,
)
from muster.lifecycle.decide import decide
from muster.lifecycle.effects import SignalNodes, StopNodes
from muster.lifecycle.events import (
    CancelRequested,
    Event,
    NodeEnded,
    NodeReady,
    NodeStarted,
    SupervisorLost,
    SuspendRequested,
)
from muster.lifecycle.policy import Action, Rule
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Failure, NodeStatus, RunStatus
from muster.lifecycle.turn import Turn, failure_of
from muster.simulation.book import MemoryBook
from muster.simulation.harness import Simulation
from muster.simulation.invariants import INVARIANTS, check, name
from muster.simulation.seeds import case_of, play
from muster.simulation.shrink import shrink
from muster.simulation.stage import StagedLedger, StagedSession

SEEDS = 600
Patch = pytest.MonkeyPatch


def breaches(seeds: int = SEEDS) -> Iterator[tuple[int, str]]:
    for seed in range(seeds):
        for breach in check(play(case_of(seed))):
            yield seed, breach.invariant


# --- how to break it


def barrier_ignored(patch: Patch) -> None:
    def may_start(turn: Turn, index: int, rank: int) -> bool:
        node = turn.nodes[rank]
        pending = node.state is NodeState.PENDING
        return pending and (node.not_before is None or turn.past(node.not_before))

    patch.setattr(startup, "_may_start", may_start)
    patch.setattr(startup, "_held", lambda turn, index: not turn.census.groups[index].pending)


def order_ignored(patch: Patch) -> None:
    patch.setattr(startup, "blocked_by", lambda policy, counts, index: None)


def budget_off_by_one(patch: Patch) -> None:
    real = budget.exhausted

    def lax(turn: Turn, rule: Rule, failure: Failure) -> str:
        policy = replace(turn.policy, max_restarts=turn.policy.max_restarts + 1)
        return real(SimpleNamespace(run=turn.run, policy=policy), rule, failure)  # type: ignore[arg-type]

    patch.setattr(budget, "exhausted", lax)


def rules_budget_ignored(patch: Patch) -> None:
    real = budget.exhausted
    patch.setattr(budget, "exhausted", lambda t, r, f: real(t, replace(r, max_restarts=None), f))


def everything_counted(patch: Patch) -> None:
    real = budget.spend
    patch.setattr(budget, "spend", lambda t, r, f: real(t, replace(r, counted=True), f))


def retries_for_ever(patch: Patch) -> None:
    def retry(turn: Turn, failure: Failure) -> str:
        return "retry 1 of 1" if turn.policy.group_of(failure.rank).retries else ""

    patch.setattr(budget, "retry", retry)


def stale_news_believed(patch: Patch) -> None:
    real = observe.apply

    def apply(turn: Turn, events: Sequence[Event]) -> None:
        news = NodeStarted | NodeReady | NodeEnded
        real(turn, [_of_now(turn, e) if isinstance(e, news) else e for e in events])

    def _of_now(turn: Turn, event: Any) -> Event:
        return replace(event, incarnation=turn.nodes[event.rank].incarnation)  # type: ignore[no-any-return]

    patch.setattr(observe, "apply", apply)


def nothing_outstanding(patch: Patch) -> None:
    patch.setattr(outstanding, "effects", lambda policy, status: ())


def begun_forgotten(patch: Patch) -> None:
    real = requests._lose

    def lose(turn: Turn, event: SupervisorLost) -> None:
        real(turn, replace(event, begun=frozenset()))

    patch.setattr(requests, "_lose", lose)


def unbegun_left_starting(patch: Patch) -> None:
    def lose(turn: Turn, event: SupervisorLost) -> None:
        nodes = list(turn.nodes)
        real(turn, event)
        for rank, node in enumerate(nodes):
            if turn.nodes[rank] == replace(node, state=NodeState.PENDING, since=None):
                turn.set(rank, node)

    real = requests._lose
    patch.setattr(requests, "_lose", lose)


def cancel_not_heard(patch: Patch) -> None:
    real = requests.apply

    def apply(turn: Turn, events: Sequence[Event]) -> None:
        real(turn, [e for e in events if not isinstance(e, CancelRequested)])

    patch.setattr(requests, "apply", apply)


def cancel_not_heard_at_rest(patch: Patch) -> None:
    def at_rest(self: Controller) -> bool:
        return self._status.state.terminal or self._status.state is RunState.SUSPENDED

    patch.setattr(Controller, "_at_rest", at_rest)


def waits_forgotten(patch: Patch) -> None:
    real = restart._again
    patch.setattr(
        restart, "_again", lambda t, ranks, number, not_before: real(t, ranks, number, None)
    )


def waits_too_short(patch: Patch) -> None:
    real = backoff.delay
    patch.setattr(backoff, "delay", lambda rules, streak, number: real(rules, streak, number) / 2)


def successes_run_again(patch: Patch) -> None:
    real = suspension.take

    def suspend(turn: Turn, details: str) -> None:
        real(turn, details)
        for rank, node in enumerate(turn.nodes):
            if node.state is NodeState.SUCCEEDED:
                turn.set(rank, NodeStatus(incarnation=turn.run.restarts))

    patch.setattr(suspension, "take", suspend)


def too_early(patch: Patch) -> None:
    real = Turn.past
    patch.setattr(Turn, "past", lambda self, at: real(self, at - 3.0))


def never_awake(patch: Patch) -> None:
    patch.setattr(Turn, "wake", lambda self, at: None)


def no_alarm_for_starting(patch: Patch) -> None:
    patch.setattr(startup, "_watch", lambda turn, starting: None)


def ends_too_early(patch: Patch) -> None:
    def apply(turn: Turn) -> None:
        if turn.due:
            stopping._overdue(turn)
        if turn.run.stopping is not None:
            stopping._finish(turn, turn.run.stopping)

    patch.setattr(stopping, "apply", apply)


def success_too_cheap(patch: Patch) -> None:
    def reached(turn: Turn) -> bool:
        return any(group.ended for group in turn.census.groups)

    patch.setattr(success, "reached", reached)


def census_forgets(patch: Patch) -> None:
    real = census.Census.change

    def change(self: Any, policy: Any, rank: int, old: NodeStatus, new: NodeStatus) -> None:
        if new.state is not NodeState.READY:
            real(self, policy, rank, old, new)

    patch.setattr(census.Census, "change", change)


def log_forgets(patch: Patch) -> None:
    real = Turn._node_entries

    def entries(self: Turn) -> list[Any]:
        return [entry for entry in real(self) if entry.data["state"] != NodeState.STOPPED]

    patch.setattr(Turn, "_node_entries", entries)


def record_forgets_the_run(patch: Patch) -> None:
    real = persist.run_changes

    def changes(status: RunStatus) -> dict[str, Any]:
        return real(replace(status, stopping=None))

    patch.setattr("muster.simulation.book.run_changes", changes)


def record_forgets_nodes(patch: Patch) -> None:
    real = persist.node_record
    patch.setattr(persist, "node_record", lambda plan, node: real(plan, replace(node, again=None)))


def busy_store_ignored(patch: Patch) -> None:
    def record(self: Any, *arguments: Any) -> None:
        try:
            real(self, *arguments)
        except StoreBusy:
            pass

    real = StagedLedger.record
    patch.setattr(StagedLedger, "record", record)


def acts_before_it_records(patch: Patch) -> None:
    def take(self: Any, events: Sequence[Event]) -> None:
        decision = decide(self._policy, self._status, events, self._clock.now())
        for effect in decision.effects:
            self._act(effect)
        real(self, events)

    real = Controller._take
    patch.setattr(Controller, "_take", take)


def attempts_too_short(patch: Patch) -> None:
    def attempt(turn: Turn) -> None:
        if turn.policy.attempt_timeout is not None:
            turn.policy = replace(turn.policy, attempt_timeout=turn.policy.attempt_timeout / 2)
        real(turn)

    real = deadline._attempt
    patch.setattr(deadline, "_attempt", attempt)


def clocks_go_back(patch: Patch) -> None:
    real = VirtualClock.__init__
    patch.setattr(
        VirtualClock, "__init__", lambda self, agenda, ahead, _: real(self, agenda, ahead)
    )


def resumed_too_far(patch: Patch) -> None:
    def resume(turn: Turn, why: str) -> None:
        if turn.run.state is RunState.SUSPENDED:
            turn.become(RunState.IN_PROGRESS)

    patch.setattr(suspension, "resume", resume)


def late_news_believed(patch: Patch) -> None:
    def up(turn: Turn, event: Any, state: NodeState) -> None:
        node = turn.nodes[event.rank]
        if node.alive and node.incarnation == event.incarnation:
            turn.set(event.rank, replace(node, state=state))

    patch.setattr(observe, "_up", up)


def entries_lost(patch: Patch) -> None:
    real = MemoryBook._append

    def append(self: MemoryBook, entries: Sequence[Any], now: float) -> None:
        real(self, entries, now)
        self._log[:] = [entry for entry in self._log if entry.kind != "failure"]

    patch.setattr(MemoryBook, "_append", append)


def session_left_open(patch: Patch) -> None:
    ends_too_early(patch)
    patch.setattr(StagedSession, "close", lambda self: None)


def failed_replicas_start(patch: Patch) -> None:
    real = stopping.stop_nodes

    def stop_nodes(turn: Turn, ranks: Any, why: str = "") -> None:
        ranks = list(ranks)
        again = {rank: turn.nodes[rank].again for rank in ranks}
        real(turn, ranks, why)
        for rank in ranks:
            if turn.nodes[rank].alive and again[rank] is not None:
                turn.set(rank, replace(turn.nodes[rank], again=again[rank]))

    patch.setattr(stopping, "stop_nodes", stop_nodes)


def told_over_and_over(patch: Patch) -> None:
    real = stopping.apply

    def apply(turn: Turn) -> None:
        real(turn)
        leaving = [rank for rank, node in enumerate(turn.nodes) if node.leaving]
        if leaving:
            turn.act(StopNodes(turn.refs(leaving)))

    patch.setattr(stopping, "apply", apply)


def paused_unasked(patch: Patch) -> None:
    real = requests.apply

    def apply(turn: Turn, events: Sequence[Event]) -> None:
        real(turn, [*events, SuspendRequested("no reason")] if turn.run.restarts else events)

    patch.setattr(requests, "apply", apply)


def last_rule_first(patch: Patch) -> None:
    real = failure.choose

    def choose(policy: Any, failures: Sequence[Failure], _: Any) -> Any:
        return real(replace(policy, rules=policy.rules[::-1]), failures)

    patch.setattr(failure, "choose", choose)


def retries_before_all_rules(patch: Patch) -> None:
    real = failure.choose

    def choose(policy: Any, failures: Sequence[Failure], _: Any) -> Any:
        rule, chosen = real(policy, failures)
        return rule and replace(rule, before_retries=False), chosen

    patch.setattr(failure, "choose", choose)


def too_much_starts_again(patch: Patch) -> None:
    real = restart._again

    def again(turn: Turn, ranks: range, number: int, not_before: float | None) -> None:
        real(turn, range(ranks.start, min(ranks.stop + 1, turn.policy.size)), number, not_before)

    patch.setattr(restart, "_again", again)


def paused_by_half(patch: Patch) -> None:
    real = suspension.take

    def suspend(turn: Turn, details: str) -> None:
        real(turn, details)
        pending = [rank for rank, node in enumerate(turn.nodes) if not node.state.ended]
        for rank in pending[:1]:
            turn.set(rank, replace(turn.nodes[rank], state=NodeState.STOPPED))

    patch.setattr(suspension, "take", suspend)


def scaling_not_heard(patch: Patch) -> None:
    patch.setattr(scaling, "ask", lambda turn, event: None)


def highest_wanted_first(patch: Patch) -> None:
    real = scaling._parked
    patch.setattr(scaling, "_parked", lambda t, g, parked: real(t, g, parked=parked)[::-1])


def scaled_away_untold(patch: Patch) -> None:
    def untold(turn: Turn, leaving: Any) -> None:
        for rank, node in leaving.items():
            turn.set(rank, node)

    patch.setattr(scaling, "stopping", SimpleNamespace(tell_to_end=untold))


def parked_alive(patch: Patch) -> None:
    def park(turn: Turn, leaving: Any) -> None:
        real(turn, leaving)
        for rank, node in leaving.items():
            turn.park(rank, node.again)

    real = stopping.tell_to_end
    patch.setattr(scaling, "stopping", SimpleNamespace(tell_to_end=park))


def scaled_away_fails(patch: Patch) -> None:
    def end(turn: Turn, event: NodeEnded) -> None:
        node = turn.nodes[event.rank]
        told = failure_of(turn, event.rank, event.reason, event.message, exit_code=event.exit_code)
        real(turn, event)
        if node.parking and event.exit_code:
            turn.fail(told)

    real = observe.end
    patch.setattr(observe, "end", end)


def parked_waited_for(patch: Patch) -> None:
    def up(policy: Any, counts: Any, group: int) -> bool:
        count = counts.groups[group]
        return bool(count.ready + count.ended == policy.groups[group].size)

    patch.setattr(census, "up", up)


def order_of_failures_first(patch: Patch) -> None:
    def choose(policy: Any, failures: Sequence[Failure], _: Any) -> Any:
        for found in failures:
            for rule in sorted(policy.rules, key=lambda rule: not rule.before_retries):
                if failure.fits(rule, found):
                    return rule, found
        return None, failures[0]

    patch.setattr(failure, "choose", choose)


def save_signal_lost(patch: Patch) -> None:
    real = outstanding.effects

    def effects(policy: Any, status: RunStatus) -> Any:
        return tuple(e for e in real(policy, status) if not isinstance(e, SignalNodes))

    patch.setattr(outstanding, "effects", effects)


def time_anew_after_resume(patch: Patch) -> None:
    real = suspension.take

    def suspend(turn: Turn, details: str) -> None:
        real(turn, details)
        turn.update(ran=0.0)

    patch.setattr(suspension, "take", suspend)


def time_while_suspended_counts(patch: Patch) -> None:
    real = suspension.take

    def suspend(turn: Turn, details: str) -> None:
        since, ran = turn.run.going_since, turn.run.ran
        real(turn, details)
        turn.update(going_since=since, ran=ran)

    patch.setattr(suspension, "take", suspend)


def retries_not_renewed_for(action: Action) -> Callable[[Patch], None]:
    def break_it(patch: Patch) -> None:
        real = restart.begin

        def begin(turn: Turn, what: Action, *arguments: Any) -> None:
            kept = turn.run.spent.retries
            real(turn, what, *arguments)
            if what is action:
                turn.update(spent=replace(turn.run.spent, retries=kept))

        patch.setattr(restart, "begin", begin)

    break_it.__name__ = f"retries_not_renewed_for_{action}"
    return break_it


def tolerable(by: int) -> Callable[[Patch], None]:
    def break_it(patch: Patch) -> None:
        def tolerated(turn: Turn, found: Failure) -> bool:
            index = turn.policy.group_index(found.rank)
            dispensable = census.wanted(turn.policy, turn.census, index)
            dispensable -= census.least(turn.policy, turn.census, index)
            return bool(turn.census.groups[index].failed <= dispensable + by)

        patch.setattr(failure, "_tolerable", tolerated)

    break_it.__name__ = f"tolerable_off_by_{by}"
    return break_it


def grace_extended(patch: Patch) -> None:
    def tell(turn: Turn, leaving: Any) -> None:
        kill_at = turn.now + turn.policy.grace_period
        told = [rank for rank, node in leaving.items() if node.kill_at is None]
        for rank, node in leaving.items():
            turn.set(rank, replace(node, kill_at=kill_at))
        if leaving:
            turn.wake(kill_at)
        if told:
            turn.act(StopNodes(turn.refs(told)))

    patch.setattr(stopping, "tell_to_end", tell)


def succeeded_taken_first(patch: Patch) -> None:
    real = scaling._place

    def place(turn: Turn, index: int, replica: int) -> tuple[int, int]:
        kind, number = real(turn, index, replica)
        return {0: 1, 1: 0}.get(kind, kind), number

    patch.setattr(scaling, "_place", place)


def lowest_taken_first(patch: Patch) -> None:
    real = scaling._place

    def place(turn: Turn, index: int, replica: int) -> tuple[int, int]:
        kind, number = real(turn, index, replica)
        return kind, -number

    patch.setattr(scaling, "_place", place)


def time_of_errors_ignored(patch: Patch) -> None:
    patch.setattr(cause, "order", lambda found: (cause.echo(found), found.at))


def jitter_beyond_the_longest(patch: Patch) -> None:
    real = backoff.delay

    def delay(rules: Any, streak: int, number: int) -> float:
        plain = real(replace(rules, jitter=0.0), streak, number)
        wait = real(replace(rules, longest=1e9), streak, number)
        base = real(replace(rules, longest=1e9, jitter=0.0), streak, number)
        return plain * wait / base if base else plain

    patch.setattr(backoff, "delay", delay)


def servers_dismissed_early(patch: Patch) -> None:
    def dismiss(turn: Turn) -> None:
        served = [rank for group in turn.policy.groups if group.serves for rank in group.ranks]
        stopping.stop_nodes(turn, [r for r in served if turn.nodes[r].term_at is not None])

    patch.setattr(stopping, "_dismiss", dismiss)


def resumed_as_the_same_attempt(patch: Patch) -> None:
    def resume(turn: Turn, why: str) -> None:
        if turn.run.state is RunState.SUSPENDED:
            turn.become(RunState.ACCEPTED)
            turn.note("resumed", why=why, attempt=turn.run.attempt)

    patch.setattr(suspension, "resume", resume)


def not_handed_over(patch: Patch) -> None:
    patch.setattr(observe, "_handed_over", lambda turn: None)


def others_not_waited_for(patch: Patch) -> None:
    real = success.apply

    def apply(turn: Turn) -> None:
        policy = turn.policy
        turn.policy = replace(policy, success=replace(policy.success, wait=False))
        real(turn)
        turn.policy = policy

    patch.setattr(success, "apply", apply)


def servers_never_dismissed(patch: Patch) -> None:
    patch.setattr(stopping, "_dismiss", lambda turn: None)


def saved_is_success(patch: Patch) -> None:
    real = observe._ended

    def ended(turn: Turn, node: NodeStatus, event: NodeEnded) -> NodeStatus:
        made = real(turn, node, event)
        stopped = made.state is NodeState.STOPPED and event.exit_code == 0
        return replace(made, state=NodeState.SUCCEEDED) if stopped else made

    patch.setattr(observe, "_ended", ended)


def exit_code_of_no_cause(patch: Patch) -> None:
    real = stopping._finish

    def finish(turn: Turn, ending: Any) -> None:
        real(turn, ending)
        if turn.run.state is RunState.FAILED:
            turn.update(exit_code=1)

    patch.setattr(stopping, "_finish", finish)


def no_saving_at_the_limit(patch: Patch) -> None:
    real = stopping.begin

    def begin(turn: Turn, outcome: RunState, details: str, **more: Any) -> None:
        real(turn, outcome, details, **{**more, "save": False})

    patch.setattr(stopping, "begin", begin)


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (barrier_ignored, "old ones go first"),
    (order_ignored, "order is kept"),
    (budget_off_by_one, "budgets hold"),
    (rules_budget_ignored, "budgets hold"),
    (everything_counted, "only what counts is counted"),
    (retries_for_ever, "budgets hold"),
    (stale_news_believed, "one life at a time"),
    (nothing_outstanding, "a run comes to rest"),
    (begun_forgotten, "a program runs once a life"),
    (unbegun_left_starting, "a run comes to rest"),
    (cancel_not_heard, "a cancel is final"),
    (cancel_not_heard_at_rest, "a cancel is final"),
    (waits_forgotten, "waits are kept"),
    (waits_too_short, "waits grow"),
    (successes_run_again, "successes survive suspension"),
    (too_early, "grace is given"),
    (too_early, "saving has its time"),
    (too_early, "deadlines are not early"),
    (never_awake, "no deadline is missed"),
    (no_alarm_for_starting, "no deadline is missed"),
    (ends_too_early, "the end is the end"),
    (success_too_cheap, "the outcome is true"),
    (census_forgets, "the census is true"),
    (log_forgets, "the log tells the status"),
    (record_forgets_the_run, "the record is complete"),
    (record_forgets_nodes, "the record is complete"),
    (busy_store_ignored, "the log tells the status"),
    (acts_before_it_records, "orders name the present"),
    (attempts_too_short, "deadlines are not early"),
    (clocks_go_back, "time does not go back"),
    (resumed_too_far, "states follow each other"),
    (late_news_believed, "nodes only go on"),
    (entries_lost, "the log has no holes"),
    (session_left_open, "nothing outlives its run"),
    (failed_replicas_start, "a failed replica stays down"),
    (told_over_and_over, "each is told once"),
    (paused_unasked, "each pause is asked for"),
    (last_rule_first, "restarts follow the rules"),
    (retries_before_all_rules, "restarts follow the rules"),
    (too_much_starts_again, "nothing else starts again"),
    (paused_by_half, "the suspended have nothing"),
    (scaling_not_heard, "as many as asked"),
    (highest_wanted_first, "as many as asked"),
    (scaled_away_untold, "the parked have nothing"),
    (parked_alive, "the parked have nothing"),
    (scaled_away_fails, "the parked do not fail"),
    (parked_waited_for, "what is wanted starts"),
    (order_of_failures_first, "the policy decides"),
    (save_signal_lost, "what is decided is done"),
    (time_anew_after_resume, "the run has its time"),
    (time_while_suspended_counts, "the run has its time"),
    (retries_not_renewed_for(Action.RESTART_REPLICA), "the policy decides"),
    (retries_not_renewed_for(Action.RESTART_GROUP), "the policy decides"),
    (retries_not_renewed_for(Action.RESTART_RUN), "the policy decides"),
    (tolerable(by=1), "the policy decides"),
    (tolerable(by=-1), "the policy decides"),
    (grace_extended, "grace is not extended"),
    (succeeded_taken_first, "as many as asked"),
    (lowest_taken_first, "as many as asked"),
    (time_of_errors_ignored, "the first cause is named"),
    (jitter_beyond_the_longest, "waits grow"),
    (servers_dismissed_early, "saving has its time"),
    (resumed_as_the_same_attempt, "attempts are counted"),
    (not_handed_over, "who takes over gives time"),
    (others_not_waited_for, "others may finish"),
    (servers_never_dismissed, "all are told to save"),
    (saved_is_success, "what was interrupted has not succeeded"),
    (exit_code_of_no_cause, "the outcome is true"),
    (no_saving_at_the_limit, "all are told to save"),
]


@pytest.mark.parametrize(("break_it", "invariant"), MUTANTS)
def test_found(break_it: Callable[[Patch], None], invariant: str, monkeypatch: Patch) -> None:
    break_it(monkeypatch)
    found: dict[str, int] = {}
    for seed, broken in breaches():
        found.setdefault(broken, seed)
        if broken == invariant:
            return
    raise AssertionError(f"{SEEDS} seeds broke only {found}")


def test_every_invariant_can_fail() -> None:
    assert {name(invariant) for invariant in INVARIANTS} == {found for _, found in MUTANTS}


def test_the_heart_as_it_is_breaks_nothing() -> None:
    assert next(breaches(50), None) is None


def test_a_plan_shrinks_to_what_it_takes(monkeypatch: Patch) -> None:
    cancel_not_heard_at_rest(monkeypatch)
    seed = next(seed for seed, broken in breaches() if broken == "a cancel is final")
    least = shrink(seed, "a cancel is final")
    assert 0 < len(least) < len(case_of(seed).plan)
    assert {type(fault).__name__ for fault in least} >= {"AskedMeanwhile"}


def test_a_defect_is_a_finding(monkeypatch: Patch) -> None:
    def broken(self: Simulation, *_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Simulation, "_live", broken)
    (breach, *_) = check(play(case_of(1)))
    assert breach.invariant == "a run comes to rest"
    assert "ZeroDivisionError" in breach.text
