"""Maximum runtime: counted from IN_PROGRESS; the run is canceled, not failed, when it is over.

OCI: maximumRuntimeInMinutes, default and upper limit 30 days.
"""

from __future__ import annotations

from muster.lifecycle import stopping
from muster.lifecycle.effects import Effect
from muster.lifecycle.model import Policy, RunStatus
from muster.lifecycle.states import RunState


def at(policy: Policy, status: RunStatus) -> float | None:
    """When the run's time is over (epoch seconds); None while its clock has not started."""
    return None if status.started_at is None else status.started_at + policy.max_runtime


def apply(policy: Policy, status: RunStatus, now: float) -> tuple[RunStatus, tuple[Effect, ...]]:
    """Cancel a run whose time is over."""
    over = at(policy, status)
    if status.stopping is not None or over is None or now < over:
        return status, ()
    details = f"maximum runtime of {policy.max_runtime:g} s exceeded"
    return stopping.begin(policy, status, RunState.CANCELED, details, now)
