"""Failure: a replica fails with its first failing node; a run, when a group can no longer succeed.

OCI: minimumSuccessReplicas. A replica that fails within what its group tolerates is ended alone;
the others go on.
"""

from __future__ import annotations

from muster.lifecycle import stopping
from muster.lifecycle.effects import Effect
from muster.lifecycle.model import Failure, GroupPolicy, Policy, Reason, RunStatus
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


def describe(failure: Failure) -> str:
    """One sentence with `exit code N` (OCI clients read the number out of it), then the cause."""
    where = f"node-{failure.rank} (group {failure.group}, rank {failure.rank})"
    match failure.reason:
        case Reason.NOT_STARTED:
            text = f"{where} could not be started"
        case Reason.NODE_LOST:
            text = f"{where} was lost"
        case Reason.STARTUP_TIMEOUT:
            text = f"{where} did not become ready"
        case Reason.OUT_OF_MEMORY:
            text = f"{where} ran out of memory and was ended, exit code {failure.exit_code}"
        case Reason.EXIT:
            text = f"{where} failed with exit code {failure.exit_code}"
            if failure.signal:
                text += f" (signal {failure.signal})"
    return f"{text}:\n{failure.message}" if failure.message else text
