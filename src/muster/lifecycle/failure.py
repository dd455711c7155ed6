"""Failure: a replica fails with its first failing node; a run, when a group can no longer succeed.

OCI: minimumSuccessReplicas. A replica that fails within what its group tolerates is ended alone;
the others go on.
"""

from __future__ import annotations

from muster.lifecycle import stopping
from muster.lifecycle.describe import describe
from muster.lifecycle.effects import Effect
from muster.lifecycle.model import GroupPolicy, Policy, RunStatus
from muster.lifecycle.states import NodeState, RunState


def apply(policy: Policy, status: RunStatus, now: float) -> tuple[RunStatus, tuple[Effect, ...]]:
    """End the run when a group is lost, else what is left of each failed replica."""
    if status.stopping is not None or status.failure is None:
        return status, ()
    effects: list[Effect] = []
    for group in policy.groups:
        failed = [r for r in range(group.replicas) if replica_failed(group, r, status)]
        if len(failed) > group.replicas - group.min_success:
            details = describe(status.failure)
            return stopping.begin(policy, status, RunState.FAILED, details, now)
        ranks = [rank for replica in failed for rank in group.replica_ranks(replica)]
        status, more = stopping.stop_nodes(policy, status, ranks, now)
        effects += more
    return status, tuple(effects)


def replica_failed(group: GroupPolicy, replica: int, status: RunStatus) -> bool:
    """A replica fails with any of its nodes."""
    ranks = group.replica_ranks(replica)
    return any(status.nodes[rank].state is NodeState.FAILED for rank in ranks)
