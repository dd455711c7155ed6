"""Suspend and resume a run.

JobSet: suspend. A suspended run has no process, no node and no supervisor; only its succeeded
replicas are kept. Resuming starts another attempt, which counts towards no budget (JobSet:
executionAttempts). Time spent suspended counts towards no deadline.
"""

from __future__ import annotations

from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus
from muster.lifecycle.transition import Transition


def reset_replicas(transition: Transition, details: str) -> None:
    """Suspend a run whose nodes have all ended: reset all replicas that have not succeeded."""
    number = transition.run.last_incarnation + 1
    for group in transition.policy.groups:
        for replica in range(group.replicas):
            ranks = group.replica_ranks(replica)
            if transition.nodes[ranks[0]].state is NodeState.SCALED_DOWN:
                continue
            if all(transition.nodes[rank].state is NodeState.SUCCEEDED for rank in ranks):
                continue
            for rank in ranks:
                if transition.nodes[rank] != NodeStatus():
                    transition.set_node(rank, NodeStatus(incarnation=number), "suspended")
    since = transition.run.running_since
    transition.set_state(
        RunState.SUSPENDED,
        details,
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
