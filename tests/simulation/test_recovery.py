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
from muster.store.records import Lease
from muster.store.sqlite.store import SqliteStore
from muster.submission import of_this_process
from simulation.harness.fake_ledger import DatabaseLedger
from simulation.harness.run_plan import run_plan
from support.run_driver import policy

#: The store, the home, the plan of the run, and the lease of whoever drives it.
Run = tuple[SqliteStore, Home, RunPlan, Lease]
FUTURE = 4_000_000_000.0  # what the clock showed before it was corrected


@pytest.fixture
def run(own_home: Path) -> Run:
    """A run that was accepted in the future; its supervisor recorded the start of its nodes."""
    home = Home(own_home)
    plan = run_plan(1, policy((1, 2, None)))
    store = SqliteStore.open(home.database)
    ledger = DatabaseLedger(store, plan, FUTURE, suspended=False)
    before = ledger.load()
    made = decide(plan.policy, before, [ControllerStarted()], FUTURE)
    ledger.record(before, made.status, made.entries, FUTURE)
    # so that it can be read back
    store.runs.save(ledger.lease, {"plan": plan.to_json()}, (), (), FUTURE)
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    return store, home, plan, ledger.lease


def test_a_run_that_loses_its_supervisors_repeatedly_fails(
    run: Run,
) -> None:
    store, home, plan, lease = run
    states = []
    for _ in range(5):
        recover.record_lost(store, home, lease, "killed")
        states.append(store.runs.get(plan.run_id).state)
    assert states == [*[RunState.ACCEPTED] * 3, RunState.FAILED, RunState.FAILED]
    assert {node.state for node in store.runs.nodes(plan.run_id)} == {NodeState.STOPPED}


def test_recovery_carries_out_a_cancel_of_a_suspended_run(
    run: Run,
) -> None:
    store, home, plan, lease = run
    folder = home.run_dir(plan.run_id)
    unsupervised_steps.apply_requests(store, folder, lease, [SuspendRequested("later")])
    recover.record_lost(store, home, lease, "killed")
    assert store.runs.get(plan.run_id).state == RunState.SUSPENDED
    assert recover.recover(store, home, lambda *_: None, of_this_process()) == []
    store.runs.request(plan.run_id, "cancel", "enough", FUTURE)
    assert recover.recover(store, home, lambda *_: None, of_this_process()) == [plan.run_id]
    assert store.runs.get(plan.run_id).state == RunState.CANCELED


def test_log_times_never_decrease(run: Run) -> None:
    store, home, plan, lease = run
    folder = home.run_dir(plan.run_id)
    recover.record_lost(store, home, lease, "killed")
    unsupervised_steps.apply_requests(store, folder, lease, [SuspendRequested("later")])
    unsupervised_steps.apply_requests(store, folder, lease, [ResumeRequested("now")])
    recover.record_broken(store, folder, lease, "enough")
    times = [entry.time for entry in store.events.since(plan.run_id)]
    assert all(before <= after for before, after in pairwise(times))
    assert store.runs.get(plan.run_id).state == RunState.FAILED


def test_a_suspend_request_of_a_suspended_run_is_dropped_on_resume(
    run: Run,
) -> None:
    store, home, plan, lease = run
    folder = home.run_dir(plan.run_id)
    unsupervised_steps.apply_requests(store, folder, lease, [SuspendRequested("later")])
    recover.record_lost(store, home, lease, "killed")
    assert store.runs.get(plan.run_id).state == RunState.SUSPENDED
    store.runs.request(
        plan.run_id, "suspend", "requested before the suspension was recorded", FUTURE
    )
    unsupervised_steps.apply_requests(store, folder, lease, [ResumeRequested("now")])
    assert StoreLedger(store, plan, lease).requests() == []
