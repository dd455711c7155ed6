"""Runs whose supervisor is gone: whoever notices first records what became of them."""

from __future__ import annotations

import contextlib
import os
import time

from muster.control import lease
from muster.control.watch import wait_for_process
from muster.lifecycle.states import RunState
from muster.storage.home import Home, RunDir
from muster.store import runs
from muster.store.database import Database

_DYING = 5.0  # seconds; by then the number is somebody else's

NEVER = "the run was accepted, but its supervisor never came up; start it again"
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
        record_loss(db, run_id, f"{folder.path} was deleted while the run was going")
        return True
    with contextlib.suppress(FileNotFoundError):
        # whoever waits for the run while we hold its lease waits for this to be let go of
        life = os.open(folder.life, os.O_RDWR | os.O_CLOEXEC)
        try:
            return _settle_alone(db, folder, run_id)
        finally:
            os.close(life)
    return _settle_alone(db, folder, run_id)


def _settle_alone(db: Database, folder: RunDir, run_id: str) -> bool:
    held = lease.acquire(folder.lease)
    if held is None:
        return False  # somebody drives it, or settles it
    try:
        pid = lease.holder(folder.lease)
        if pid is not None:
            # a dying process lets go of its files a moment before its namespace is emptied
            wait_for_process(pid, _DYING)
        return record_loss(db, run_id, WHY if pid is not None else NEVER)
    finally:
        os.close(held)


def record_loss(db: Database, run_id: str, why: str) -> bool:
    """Record the end of a run that nobody drives any more; False if it has ended already. A
    cancel that nobody heard is honoured: it is final."""
    record = runs.get(db, run_id)
    if RunState(record.state).terminal:
        return False
    # imported here: every command looks for such runs, hardly any finds one
    from muster.control.narrate import narrate
    from muster.control.persist import changed_nodes, run_changes, status_of
    from muster.engines.local import cgroups
    from muster.lifecycle.decide import decide
    from muster.lifecycle.events import CancelRequested, Event, SupervisorLost
    from muster.plan.model import RunPlan

    cgroups.sweep(run_id)
    plan = RunPlan.from_json(record.plan)
    before = status_of(record, runs.nodes(db, run_id))
    now = time.time()
    events: list[Event] = [SupervisorLost(why)]
    if record.cancel_reason:
        events.insert(0, CancelRequested(record.cancel_reason))
    after, _ = decide(plan.policy, before, events, now)
    nodes = changed_nodes(plan, before, after)
    runs.save(db, run_id, run_changes(after), nodes, narrate(before, after), now)
    return True
