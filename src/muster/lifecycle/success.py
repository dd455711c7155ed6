"""Success of a run.

OCI: every group reaches its minimum of successful replicas. JobSet: successPolicy, all or any of
the chosen groups. Groups with a minimum of 0 serve the others (parameter servers, drivers) and are
stopped when the others have ended.
"""

from __future__ import annotations

from muster.lifecycle import counts, failure, start_order, stopping
from muster.lifecycle.states import RunState
from muster.lifecycle.transition import Transition


def apply(transition: Transition) -> None:
    """End the run as SUCCEEDED when its condition is met, or as FAILED if it cannot be met."""
    if transition.stopping or transition.run.state is RunState.SUSPENDED:
        return
    _stop_groups_that_succeeded_early(transition)
    failure.fail_arrays(transition)
    if transition.stopping:
        return
    may_still_succeed = transition.counts.alive or start_order.will_start_more(transition)
    if not counts.has_succeeded(transition.policy, transition.counts):
        if not may_still_succeed:
            failure.fall_short(transition)
    elif not (transition.policy.success.wait and may_still_succeed):
        stopping.begin(transition, RunState.SUCCEEDED, "")


def _stop_groups_that_succeeded_early(transition: Transition) -> None:
    """Stop the other replicas of groups that have succeeded early."""
    policy, node_counts = transition.policy, transition.counts
    for index, group in enumerate(policy.groups):
        if not group.early_success or counts.has_ended(policy, node_counts, index):
            continue
        if counts.succeeded_early(policy, node_counts, index):
            stopping.stop_nodes(transition, group.ranks, "enough replicas have succeeded")
