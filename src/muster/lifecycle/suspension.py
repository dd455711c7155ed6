"""Suspension: a run that rests, and goes on later.

JobSet: suspend. A suspended run keeps the replicas that have succeeded and nothing else: no
process, no node, no supervisor. Resuming begins another attempt, which counts towards no budget
(JobSet: executionAttempts); time spent suspended counts towards no deadline.
"""

from __future__ import annotations

from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus
from muster.lifecycle.turn import Turn


def take(turn: Turn, details: str) -> None:
    """Every node has ended: nothing is left of the run but what has succeeded as a whole."""
    number = turn.run.restarts + 1
    for group in turn.policy.groups:
        for replica in range(group.replicas):
            ranks = group.replica_ranks(replica)
            if turn.nodes[ranks[0]].state is NodeState.PARKED:
                continue
            if all(turn.nodes[rank].state is NodeState.SUCCEEDED for rank in ranks):
                continue
            for rank in ranks:
                if turn.nodes[rank] != NodeStatus():
                    turn.set(rank, NodeStatus(incarnation=number), "suspended")
    since = turn.run.going_since
    turn.become(
        RunState.SUSPENDED,
        details,
        restarts=number,
        stopping=None,
        failures=(),
        attempt_at=None,
        ran=turn.run.ran + (turn.now - since if since is not None else 0.0),
        going_since=None,
    )


def resume(turn: Turn, why: str) -> None:
    """Have a suspended run go on; nothing if it is not suspended."""
    if turn.run.state is not RunState.SUSPENDED:
        return
    again = turn.run.started_at is not None
    turn.become(
        RunState.ACCEPTED,
        attempt=turn.run.attempt + again,
        resumes=turn.run.resumes + again,
    )
    turn.note("resumed", why=why, attempt=turn.run.attempt)
