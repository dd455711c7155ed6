"""Success: when the run has what it was for.

OCI: every group reaches its minimum of successful replicas. JobSet: successPolicy, all or any over
chosen groups. Nodes of a group whose minimum is 0 serve the others (parameter servers, drivers):
they are ended when all the others are done.
"""

from __future__ import annotations

from muster.lifecycle import census, startup, stopping
from muster.lifecycle.states import RunState
from muster.lifecycle.turn import Turn


def apply(turn: Turn) -> None:
    """End the run as SUCCEEDED once it has what it was for, or as FAILED if it never will."""
    if turn.stopping or turn.run.state is RunState.SUSPENDED:
        return
    alive_or_to_come = turn.census.alive or startup.more_to_come(turn)
    if not reached(turn):
        if not alive_or_to_come:  # as when each replica that would have been enough was dispensable
            stopping.begin(turn, RunState.FAILED, "no replica that would be enough has succeeded")
    elif not (turn.policy.success.wait and alive_or_to_come):
        stopping.begin(turn, RunState.SUCCEEDED, "")


def reached(turn: Turn) -> bool:
    """Whether the groups that count have succeeded."""
    rules = turn.policy.success
    if rules.any_replica:
        return any(turn.census.groups[index].succeeded for index in rules.groups)
    return all(census.complete(turn.policy, turn.census, index) for index in rules.groups)
