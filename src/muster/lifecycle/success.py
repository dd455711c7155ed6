"""Success: every group has its minimum of successful replicas and no node it waits for is left.

OCI: a run succeeds when every group does. Nodes of a group whose minimum is 0 serve the others
(parameter servers, drivers): they are ended when all the others are done.
"""

from __future__ import annotations

from muster.lifecycle import stopping
from muster.lifecycle.effects import Effect
from muster.lifecycle.model import GroupPolicy, Policy, RunStatus
from muster.lifecycle.states import NodeState, RunState


def apply(policy: Policy, status: RunStatus, now: float) -> tuple[RunStatus, tuple[Effect, ...]]:
    """End the run as SUCCEEDED once what it waits for has succeeded."""
    if status.stopping is not None:
        return status, ()
    awaited = [group for group in policy.groups if group.min_success > 0] or policy.groups
    for group in awaited:
        if not all(status.nodes[rank].state.ended for rank in group.ranks):
            return status, ()
        if _succeeded(group, status) < group.min_success:
            return status, ()
    return stopping.begin(policy, status, RunState.SUCCEEDED, "", now)


def _succeeded(group: GroupPolicy, status: RunStatus) -> int:
    return sum(
        all(status.nodes[r].state is NodeState.SUCCEEDED for r in group.replica_ranks(replica))
        for replica in range(group.replicas)
    )
