"""Suspend and resume a run.

JobSet: suspend. A suspended run has no process, no node and no supervisor. Kept are its succeeded
replicas and, of its arrays, those that have failed for good (Kubernetes: completedIndexes and
failedIndexes of a suspended Job). Resuming starts another attempt, which counts towards no budget
(JobSet: executionAttempts). Time spent suspended counts towards no deadline.
"""

from __future__ import annotations

from muster.lifecycle.ranks import format_ranks, parse_ranks
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Stopping
from muster.lifecycle.transition import Transition


def failed_for_good(transition: Transition) -> dict[str, str]:
    """See `Stopping.failed`. A failure that no rule has handled yet is none: the replica runs
    again, and may have retries left."""
    found: dict[str, str] = {}
    for group, count in zip(transition.policy.groups, transition.counts.groups, strict=True):
        if group.is_array and count.failed:
            unhandled = transition.unhandled_replicas(group)
            kept = [each for each in count.failed_replicas() if each not in unhandled]
            if kept:
                found[group.name] = format_ranks(kept)
    return found


def reset_replicas(transition: Transition, ending: Stopping) -> None:
    """Suspend a run whose nodes have all ended: reset all replicas that have neither succeeded nor
    failed for good."""
    number = transition.run.last_incarnation + 1
    for group in transition.policy.groups:
        failed = {*parse_ranks(ending.failed.get(group.name, ""))}
        for replica in range(group.replicas):
            ranks = group.replica_ranks(replica)
            if replica in failed or transition.nodes[ranks[0]].state is NodeState.SCALED_DOWN:
                continue
            if all(transition.nodes[rank].state is NodeState.SUCCEEDED for rank in ranks):
                continue
            for rank in ranks:
                node = transition.nodes[rank]
                if node != NodeStatus():
                    fresh = NodeStatus(incarnation=number, retries=node.retries)
                    transition.set_node(rank, fresh, "suspended")
    since = transition.run.running_since
    transition.set_state(
        RunState.SUSPENDED,
        ending.details,
        last_incarnation=number,
        stopping=None,
        failures=(),
        attempt_started_at=None,
        ran_before=transition.run.ran_before
        + (transition.now - since if since is not None else 0.0),
        running_since=None,
    )


def resume(transition: Transition, why: str) -> None:
    """Resume a suspended run; nothing if it is not suspended."""
    if transition.run.state is not RunState.SUSPENDED:
        return
    again = transition.run.started_at is not None
    transition.set_state(
        RunState.ACCEPTED,
        why,
        attempt=transition.run.attempt + again,
        resumes=transition.run.resumes + again,
    )
    transition.log("resumed", why=why, attempt=transition.run.attempt)
