"""The invariants of simulated runs. Each is a function whose docstring states it and which yields
its breaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from simulation.harness.invariants import (
    contacts,
    decisions,
    incarnations,
    native_restarts,
    record,
    restarts,
    scaling,
)
from simulation.harness.trace import Trace
from simulation.harness.view import View

Invariant = Callable[[View], Iterator[str]]

INVARIANTS: tuple[Invariant, ...] = (
    record.every_run_ends,
    record.a_terminal_state_is_final,
    record.run_states_are_in_order,
    record.the_outcome_matches_the_nodes,
    record.a_cancel_is_final,
    record.suspensions_are_requested,
    record.attempts_are_counted,
    record.success_waits_for_others,
    record.interrupted_nodes_have_not_succeeded,
    record.a_suspended_run_has_no_nodes,
    record.failures_survive_suspension,
    record.successes_survive_suspension,
    record.node_states_are_in_order,
    record.node_counts_are_correct,
    record.the_record_is_complete,
    record.the_log_gives_the_status,
    record.the_log_has_no_gaps,
    record.log_times_never_decrease,
    incarnations.one_incarnation_at_a_time,
    incarnations.no_process_outlives_its_run,
    incarnations.a_run_that_is_handed_over_has_no_processes,
    incarnations.a_program_runs_once_per_incarnation,
    incarnations.old_incarnations_end_first,
    incarnations.start_order_is_kept,
    incarnations.a_failed_replica_stays_down,
    incarnations.commands_name_current_incarnations,
    incarnations.commands_are_sent_once,
    incarnations.every_decision_is_carried_out,
    incarnations.grace_period_is_given,
    incarnations.grace_period_is_not_extended,
    incarnations.checkpoint_grace_is_given,
    incarnations.every_node_may_save,
    incarnations.a_new_controller_restarts_ready_timeouts,
    contacts.failures_are_real,
    contacts.every_end_is_recorded_once,
    contacts.contacts_are_recorded,
    contacts.queues_are_recorded,
    contacts.places_are_recorded,
    contacts.no_deadline_counts_time_in_a_queue,
    contacts.unreachable_nodes_are_not_killed,
    contacts.grace_periods_count_from_contact,
    contacts.startup_timeouts_count_time_with_contact,
    contacts.nodes_are_left_alone,
    native_restarts.native_restarts_are_adopted,
    native_restarts.budgets_count_native_restarts,
    native_restarts.a_run_is_not_worse_off,
    decisions.the_policy_decides,
    decisions.the_first_cause_is_named,
    restarts.restarts_follow_the_rules,
    restarts.nothing_else_restarts,
    restarts.budgets_are_kept,
    restarts.only_counted_restarts_are_spent,
    restarts.backoff_is_kept,
    restarts.backoff_grows,
    restarts.no_deadline_is_missed,
    restarts.max_runtime_is_exact,
    restarts.timeouts_are_not_early,
    scaling.replica_counts_match_requests,
    scaling.scaled_down_nodes_have_no_processes,
    scaling.scaled_down_nodes_do_not_fail,
    scaling.desired_nodes_start,
    scaling.arrays_keep_their_parallelism,
    scaling.arrays_start_in_order,
    scaling.arrays_stop_when_they_have_succeeded,
)


class Breach(Struct, frozen=True):
    """A broken invariant."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


def check(trace: Trace) -> list[Breach]:
    """The broken invariants of a run; of each invariant the first breach."""
    view, found = View(trace), []
    for invariant in INVARIANTS:
        text = next(invariant(view), None)
        if text is not None:
            found.append(Breach(name(invariant), text))
    return found


def name(invariant: Invariant) -> str:
    """An invariant's name in words."""
    return invariant.__name__.replace("_", " ")


def sentence(invariant: Invariant) -> str:
    """An invariant's docstring on one line."""
    return " ".join((invariant.__doc__ or "").split())
