"""Requests to a run that nobody drives: a suspended one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from muster.control import lease
from muster.control.clock import SteadyClock
from muster.control.ledger import StoreLedger
from muster.lifecycle.decide import decide
from muster.lifecycle.events import Request
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus
from muster.plan.model import RunPlan
from muster.storage.home import RunDir
from muster.store import events, runs
from muster.store.database import Database


def tell(db: Database, folder: RunDir, run_id: str, asked: Sequence[Request]) -> RunStatus:
    """Have a run take requests in, under its lease; what is to be done is left to a supervisor."""
    plan = RunPlan.from_json(runs.get(db, run_id).plan)
    ledger = StoreLedger(db, plan, folder.pulse)
    before, now = ledger.load(), SteadyClock(events.last_time(db, run_id)).now()
    decision = decide(plan.policy, before, asked, now)
    ledger.record(before, decision.status, decision.entries, now)
    return decision.status


def ask_suspended(
    db: Database, folder: RunDir, run_id: str, name: str, asked: Sequence[Request]
) -> bool:
    """The same for a run that is suspended; False if it is not any more, or not yet."""
    held = lease.take(folder, name)
    try:
        if runs.get(db, run_id).state != RunState.SUSPENDED:
            return False
        tell(db, folder, run_id, asked)
        return True
    finally:
        os.close(held)
