"""Success of a run.

OCI: every group reaches its minimum of successful replicas. JobSet: successPolicy, all or any of
the chosen groups. Groups with a minimum of 0 serve the others (parameter servers, drivers) and are
stopped when the others have ended.
"""

from __future__ import annotations

from muster.lifecycle import counts, start_order, stopping
from muster.lifecycle.states import RunState
from muster.lifecycle.transition import Transition


def apply(transition: Transition) -> None:
    """End the run as SUCCEEDED when its condition is met, or as FAILED if it cannot be met."""
    if transition.stopping or transition.run.state is RunState.SUSPENDED:
        return
    may_still_succeed = transition.counts.alive or start_order.will_start_more(transition)
    if not reached(transition):
        if not may_still_succeed:  # for instance, because each failure was tolerated by its group
            stopping.begin(
                transition, RunState.FAILED, "too few replicas succeeded, and no others are left"
            )
    elif not (transition.policy.success.wait and may_still_succeed):
        stopping.begin(transition, RunState.SUCCEEDED, "")


def reached(transition: Transition) -> bool:
    """Whether the groups that count have succeeded."""
    rules = transition.policy.success
    if rules.any_replica:
        return any(transition.counts.groups[index].succeeded for index in rules.groups)
    return all(
        counts.is_complete(transition.policy, transition.counts, index) for index in rules.groups
    )
