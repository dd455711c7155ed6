"""The desired number of replicas of a run's groups."""

from __future__ import annotations

from muster.plan.model import RunPlan
from muster.store.records import RunRecord


def desired_replicas(run: RunRecord, plan: RunPlan) -> dict[str, int]:
    """Group -> the number that was requested last; the initial one if none was."""
    requested = {group: request["replicas"] for group, request in run.scale_requested.items()}
    return {**plan.policy.replicas_at_once, **requested}
