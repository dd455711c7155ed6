"""Requests to a run that nobody drives: a suspended one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from muster.control import lease
from muster.control.ledger import StoreLedger
from muster.control.persist import plan_of
from muster.control.step import step
from muster.lifecycle.events import Request
from muster.lifecycle.states import RunState
from muster.storage.home import RunDir
from muster.store import runs
from muster.store.database import Database


def tell(db: Database, folder: RunDir, run_id: str, asked: Sequence[Request]) -> None:
    """Have a run take requests in, under its lease; what is to be done is left to a supervisor."""
    plan = plan_of(runs.get(db, run_id))
    ledger = StoreLedger(db, plan, folder)
    step(db, plan, ledger, ledger.load(), asked)


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
