"""Steps of a run that has no supervisor: while it is suspended, or when its supervisor was lost."""

from __future__ import annotations

import os
from collections.abc import Sequence

from muster.control import lease
from muster.control.clock import SteadyClock
from muster.control.ledger import Ledger, StoreLedger
from muster.control.persist import plan_of
from muster.lifecycle.decide import decide
from muster.lifecycle.events import Event, Request
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus
from muster.plan.model import RunPlan
from muster.storage.home import RunDir
from muster.store import events, runs
from muster.store.database import Database


def record_step(
    db: Database, plan: RunPlan, ledger: Ledger, before: RunStatus, facts: Sequence[Event]
) -> None:
    """Decide and record one step from the status `before`. The caller holds the run's lease. The
    effects are left to the supervisor that drives the run next."""
    now = SteadyClock(events.last_time(db, plan.run_id)).now()
    decision = decide(plan.policy, before, facts, now)
    ledger.record(before, decision.status, decision.entries, now)


def apply_requests(db: Database, folder: RunDir, run_id: str, requests: Sequence[Event]) -> None:
    """Apply requests to a run. The caller holds the run's lease."""
    plan = plan_of(runs.get(db, run_id))
    ledger = StoreLedger(db, plan, folder)
    record_step(db, plan, ledger, ledger.load(), requests)


def apply_to_suspended(
    db: Database, folder: RunDir, run_id: str, name: str, requests: Sequence[Request]
) -> bool:
    """Take the lease of a suspended run and apply requests to it. False if the run is not
    suspended. Raises InvalidInput if another process holds the lease."""
    held = lease.acquire_or_refuse(folder, name)
    try:
        if runs.get(db, run_id).state != RunState.SUSPENDED:
            return False
        apply_requests(db, folder, run_id, requests)
        return True
    finally:
        os.close(held)
