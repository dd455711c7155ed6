"""Recovery of a run without a supervisor, on a machine whose clock was set back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from muster.control import recover, unsupervised_steps
from muster.control.ledger import StoreLedger
from muster.lifecycle.decide import decide
from muster.lifecycle.events import ControllerStarted, ResumeRequested, SuspendRequested
from muster.lifecycle.states import NodeState, RunState
from muster.plan.model import RunPlan
from muster.storage.home import Home
from muster.store.sqlite.database import Database
from muster.submission import of_this_process
from simulation.harness.fake_ledger import DatabaseLedger
from simulation.harness.run_plan import run_plan
from support.run_driver import policy

FUTURE = 4_000_000_000.0  # what the clock showed before it was corrected


@pytest.fixture
def run(own_home: Path) -> tuple[Database, Home, RunPlan]:
    """A run that was accepted in the future; its supervisor recorded the start of its nodes."""
    home = Home(own_home)
    plan = run_plan(1, policy((1, 2, None)))
    db = Database.open(home.database)
    DatabaseLedger(db, plan, FUTURE, suspended=False)
    ledger = StoreLedger(db, plan)
    before = ledger.load()
    made = decide(plan.policy, before, [ControllerStarted()], FUTURE)
    ledger.record(before, made.status, made.entries, FUTURE)
    # so that it can be read back
    db.runs.save(plan.run_id, {"plan": plan.to_json()}, (), (), FUTURE)
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    return db, home, plan


def test_a_run_that_loses_its_supervisors_repeatedly_fails(
    run: tuple[Database, Home, RunPlan],
) -> None:
    db, home, plan = run
    states = []
    for _ in range(5):
        recover.record_lost(db, home, plan.run_id, "killed")
        states.append(db.runs.get(plan.run_id).state)
    assert states == [*[RunState.ACCEPTED] * 3, RunState.FAILED, RunState.FAILED]
    assert {node.state for node in db.runs.nodes(plan.run_id)} == {NodeState.STOPPED}


def test_recovery_carries_out_a_cancel_of_a_suspended_run(
    run: tuple[Database, Home, RunPlan],
) -> None:
    db, home, plan = run
    folder = home.run_dir(plan.run_id)
    unsupervised_steps.apply_requests(db, folder, plan.run_id, [SuspendRequested("later")])
    recover.record_lost(db, home, plan.run_id, "killed")
    assert db.runs.get(plan.run_id).state == RunState.SUSPENDED
    assert recover.recover(db, home, lambda *_: None, of_this_process()) == []
    db.runs.request(plan.run_id, "cancel", "enough")
    assert recover.recover(db, home, lambda *_: None, of_this_process()) == [plan.run_id]
    assert db.runs.get(plan.run_id).state == RunState.CANCELED


def test_log_times_never_decrease(run: tuple[Database, Home, RunPlan]) -> None:
    db, home, plan = run
    folder = home.run_dir(plan.run_id)
    recover.record_lost(db, home, plan.run_id, "killed")
    unsupervised_steps.apply_requests(db, folder, plan.run_id, [SuspendRequested("later")])
    unsupervised_steps.apply_requests(db, folder, plan.run_id, [ResumeRequested("now")])
    recover.record_broken(db, folder, plan.run_id, "enough")
    times = [entry.time for entry in db.events.since(plan.run_id)]
    assert all(before <= after for before, after in pairwise(times))
    assert db.runs.get(plan.run_id).state == RunState.FAILED


def test_a_suspend_request_of_a_suspended_run_is_dropped_on_resume(
    run: tuple[Database, Home, RunPlan],
) -> None:
    db, home, plan = run
    folder = home.run_dir(plan.run_id)
    unsupervised_steps.apply_requests(db, folder, plan.run_id, [SuspendRequested("later")])
    recover.record_lost(db, home, plan.run_id, "killed")
    assert db.runs.get(plan.run_id).state == RunState.SUSPENDED
    db.runs.request(plan.run_id, "suspend", "requested before the suspension was recorded")
    unsupervised_steps.apply_requests(db, folder, plan.run_id, [ResumeRequested("now")])
    assert StoreLedger(db, plan).requests() == []
