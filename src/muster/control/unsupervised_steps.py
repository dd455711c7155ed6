"""Steps of a run that has no supervisor: while it is suspended, or when its supervisor was lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.control import lease, stored_submission
from muster.control.clock import SteadyClock
from muster.control.controller import Record
from muster.control.ledger import StoreLedger
from muster.control.persist import plan_of
from muster.lifecycle.decide import decide
from muster.lifecycle.events import Event, Request
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus
from muster.plan.model import RunPlan
from muster.storage.home import RunDir
from muster.store.records import CorruptRecord, Lease

if TYPE_CHECKING:
    from muster.store.base import Store


def record_step(
    store: Store, plan: RunPlan, ledger: StoreLedger, before: RunStatus, facts: Sequence[Event]
) -> None:
    """Decide and record one step from the status `before`. The caller has the run's lock. The
    effects are left to the supervisor that drives the run next."""
    now = SteadyClock(store.events.last_time(plan.run_id)).now()
    decision = decide(plan.policy, before, facts, now)
    ledger.record(Record(before, decision.status, decision.entries, now))
    if decision.status.state.terminal and ledger.folder is not None:
        stored_submission.delete(ledger.folder)


def apply_requests(store: Store, folder: RunDir, own: Lease, requests: Sequence[Event]) -> None:
    """Apply requests to a run. The caller has the run's lock."""
    plan = plan_of(store.runs.get(own.run_id))
    ledger = StoreLedger(store, plan, own, folder)
    record_step(store, plan, ledger, ledger.load(), requests)


def apply_to_suspended(
    store: Store, folder: RunDir, run_id: str, name: str, requests: Sequence[Request]
) -> bool:
    """Take the lease of a suspended run and apply requests to it; a run whose record is corrupt is
    ended. False if the run is not suspended. Raises InvalidInput if another process has the
    lease."""
    with lease.held(store, folder, run_id, name) as own:
        try:
            if store.runs.get(run_id).state != RunState.SUSPENDED:
                return False
            apply_requests(store, folder, own, requests)
        except CorruptRecord as error:
            store.runs.end_corrupt(own, str(error), time.time())
        return True
