"""What is true of every simulated run. Each invariant is a function with a name and a sentence; it
tells what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from muster.simulation import decided, lived, owed, recorded, scaled
from muster.simulation.story import Story
from muster.simulation.view import View

Invariant = Callable[[View], Iterator[str]]

INVARIANTS: tuple[Invariant, ...] = (
    recorded.a_run_comes_to_rest,
    recorded.the_end_is_the_end,
    recorded.states_follow_each_other,
    recorded.the_outcome_is_true,
    recorded.a_cancel_is_final,
    recorded.each_pause_is_asked_for,
    recorded.attempts_are_counted,
    recorded.others_may_finish,
    recorded.what_was_interrupted_has_not_succeeded,
    recorded.the_suspended_have_nothing,
    recorded.successes_survive_suspension,
    recorded.nodes_only_go_on,
    recorded.the_census_is_true,
    recorded.the_record_is_complete,
    recorded.the_log_tells_the_status,
    recorded.the_log_has_no_holes,
    recorded.time_does_not_go_back,
    lived.one_life_at_a_time,
    lived.nothing_outlives_its_run,
    lived.a_program_runs_once_a_life,
    lived.old_ones_go_first,
    lived.order_is_kept,
    lived.a_failed_replica_stays_down,
    lived.orders_name_the_present,
    lived.each_is_told_once,
    lived.what_is_decided_is_done,
    lived.grace_is_given,
    lived.grace_is_not_extended,
    lived.saving_has_its_time,
    lived.all_are_told_to_save,
    lived.who_takes_over_gives_time,
    decided.the_policy_decides,
    decided.the_first_cause_is_named,
    owed.restarts_follow_the_rules,
    owed.nothing_else_starts_again,
    owed.budgets_hold,
    owed.only_what_counts_is_counted,
    owed.waits_are_kept,
    owed.waits_grow,
    owed.no_deadline_is_missed,
    owed.the_run_has_its_time,
    owed.deadlines_are_not_early,
    scaled.as_many_as_asked,
    scaled.the_parked_have_nothing,
    scaled.the_parked_do_not_fail,
    scaled.what_is_wanted_starts,
)


class Breach(Struct, frozen=True):
    """An invariant that does not hold, and how."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


def check(story: Story) -> list[Breach]:
    """Everything that is wrong with a run; of each invariant the first."""
    view, found = View(story), []
    for invariant in INVARIANTS:
        text = next(invariant(view), None)
        if text is not None:
            found.append(Breach(name(invariant), text))
    return found


def name(invariant: Invariant) -> str:
    """As it is called in words."""
    return invariant.__name__.replace("_", " ")


def sentence(invariant: Invariant) -> str:
    """What it says, on one line."""
    return " ".join((invariant.__doc__ or "").split())
