"""Runs whose supervisor is gone: whoever notices first records what became of them."""

from __future__ import annotations

import os
import time

from muster.control import lease
from muster.control.watch import wait_for_process
from muster.lifecycle.states import RunState
from muster.storage.home import Home
from muster.store import runs
from muster.store.database import Database

_DYING = 5.0  # seconds; by then the number is somebody else's

WHY = (
    "the run's supervisor was killed, and every process of the run with it; "
    "start it again with `muster run`"
)


def recover(db: Database, home: Home) -> list[str]:
    """Settle every run that says it lives but that nobody drives. Returns their ids."""
    return [run.id for run in runs.live(db) if _settle(db, home, run.id)]


def _settle(db: Database, home: Home, run_id: str) -> bool:
    folder = home.run_dir(run_id)
    if not folder.path.is_dir():
        _record(db, run_id, f"{folder.path} was deleted while the run was going")
        return True
    held = lease.acquire(folder.lease)
    if held is None:
        return False  # somebody drives it
    try:
        pid = lease.holder(folder.lease)
        if pid is not None:
            # a dying process lets go of its files a moment before its namespace is emptied
            wait_for_process(pid, _DYING)
        if RunState(runs.get(db, run_id).state).terminal:
            return False  # it ended between our two looks
        _record(db, run_id, WHY)
        return True
    finally:
        os.close(held)


def _record(db: Database, run_id: str, why: str) -> None:
    # imported here: every command looks for such runs, hardly any finds one
    from muster.control.narrate import narrate
    from muster.control.persist import changed_nodes, run_changes, status_of
    from muster.engines.local import cgroups
    from muster.lifecycle.decide import decide
    from muster.lifecycle.events import SupervisorLost
    from muster.plan.model import RunPlan
    from muster.plan.policy import policy_of

    cgroups.sweep(run_id)
    record = runs.get(db, run_id)
    plan = RunPlan.from_json(record.plan)
    before = status_of(record, runs.nodes(db, run_id))
    now = time.time()
    after, _ = decide(policy_of(plan), before, [SupervisorLost(why)], now)
    nodes = changed_nodes(plan, before, after)
    runs.save(db, run_id, run_changes(after), nodes, narrate(before, after), now)
