"""A run's status as rows of the store, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from muster.lifecycle.model import Failure, NodeStatus, Reason, RunStatus, Stopping
from muster.lifecycle.states import NodeState, RunState
from muster.plan.model import NodePlan, RunPlan
from muster.store.records import NodeRecord, RunRecord


def run_changes(status: RunStatus) -> dict[str, Any]:
    """Columns of the run."""
    return {
        "state": status.state,
        "details": status.details,
        "attempt": status.attempt,
        "started_at": status.started_at,
        "finished_at": status.finished_at,
        "exit_code": status.exit_code,
        "lifecycle": {
            "failure": asdict(status.failure) if status.failure else None,
            "stopping": asdict(status.stopping) if status.stopping else None,
        },
    }


def node_record(plan: NodePlan, node: NodeStatus) -> NodeRecord:
    """The row of one node."""
    return NodeRecord(
        rank=plan.rank,
        group=plan.group,
        replica=plan.replica,
        index=plan.index,
        node_id=plan.node_id,
        fqdn=plan.fqdn,
        address=plan.address,
        state=node.state,
        exit_code=node.exit_code,
        started_at=node.started_at,
        finished_at=node.finished_at,
    )


def changed_nodes(plan: RunPlan, before: RunStatus, after: RunStatus) -> list[NodeRecord]:
    """Rows that differ."""
    pairs = zip(plan.nodes, before.nodes, after.nodes, strict=True)
    return [node_record(node, new) for node, old, new in pairs if new is not old]


def status_of(run: RunRecord, nodes: Sequence[NodeRecord]) -> RunStatus:
    """The status a run was left in."""
    kept = run.lifecycle or {}
    failure, stopping = kept.get("failure"), kept.get("stopping")
    return RunStatus(
        nodes=tuple(
            NodeStatus(
                state=NodeState(node.state),
                exit_code=node.exit_code,
                started_at=node.started_at,
                finished_at=node.finished_at,
            )
            for node in sorted(nodes, key=lambda n: n.rank)
        ),
        state=RunState(run.state),
        details=run.details,
        attempt=run.attempt,
        exit_code=run.exit_code,
        started_at=run.started_at,
        finished_at=run.finished_at,
        failure=Failure(**{**failure, "reason": Reason(failure["reason"])}) if failure else None,
        stopping=Stopping(RunState(stopping["outcome"]), stopping["details"]) if stopping else None,
    )
