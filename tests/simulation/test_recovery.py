"""Recovery of a run without a supervisor, on a machine whose clock was set back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from muster.control import recover, unsupervised_steps
from muster.control.controller import Record
from muster.control.ledger import StoreLedger, request_events
from muster.lifecycle.decide import decide
from muster.lifecycle.events import ControllerStarted, ResumeRequested, SuspendRequested
from muster.lifecycle.states import NodeState, RunState
from muster.storage.home import Home
from muster.store.base import Store
from muster.store.records import Lease, RunStep
from muster.store.sqlite.store import SqliteStore
from simulation.harness.fake_ledger import OWNER, RecordedLedger
from simulation.harness.run_plan import run_plan
from support.run_driver import policy

FUTURE = 4_000_000_000.0  # what the clock showed before it was corrected


@pytest.fixture
def run(own_home: Path) -> tuple[Store, Home, Lease]:
    """A run that was accepted in the future; its supervisor recorded the start of its nodes."""
    home = Home(own_home)
    plan = run_plan(1, policy((1, 2, None)))
    store, lease = SqliteStore.open(home.database), Lease.first(plan.run_id, OWNER)
    RecordedLedger(store, plan, FUTURE, suspended=False)
    ledger = StoreLedger(store, plan, lease)
    before = ledger.load()
    made = decide(plan.policy, before, [ControllerStarted()], FUTURE)
    ledger.record(Record(before, made.status, made.entries, FUTURE))
    # so that it can be read back
    store.runs.save(RunStep(lease, {"plan": plan.to_json()}, (), (), FUTURE))
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    return store, home, lease


def test_a_run_that_loses_its_supervisors_repeatedly_fails(
    run: tuple[Store, Home, Lease],
) -> None:
    store, home, lease = run
    states = []
    for _ in range(5):
        recover.record_lost(store, home, lease, "killed")
        states.append(store.runs.get(lease.run_id).state)
    assert states == [*[RunState.ACCEPTED] * 3, RunState.FAILED, RunState.FAILED]
    assert {node.state for node in store.runs.nodes(lease.run_id)} == {NodeState.STOPPED}


def test_recovery_carries_out_a_cancel_of_a_suspended_run(
    run: tuple[Store, Home, Lease],
) -> None:
    store, home, lease = run
    folder = home.run_dir(lease.run_id)
    unsupervised_steps.apply_requests(store, folder, lease, [SuspendRequested("later")])
    recover.record_lost(store, home, lease, "killed")
    assert store.runs.get(lease.run_id).state == RunState.SUSPENDED
    assert recover.recover(store, home, lambda *_: None) == []
    store.runs.request(lease.run_id, "cancel", "enough", FUTURE)
    assert recover.recover(store, home, lambda *_: None) == [lease.run_id]
    assert store.runs.get(lease.run_id).state == RunState.CANCELED


def test_log_times_never_decrease(run: tuple[Store, Home, Lease]) -> None:
    store, home, lease = run
    folder = home.run_dir(lease.run_id)
    recover.record_lost(store, home, lease, "killed")
    unsupervised_steps.apply_requests(store, folder, lease, [SuspendRequested("later")])
    unsupervised_steps.apply_requests(store, folder, lease, [ResumeRequested("now")])
    recover.record_broken(store, folder, lease, "enough")
    times = [entry.time for entry in store.events.since(lease.run_id)]
    assert all(before <= after for before, after in pairwise(times))
    assert store.runs.get(lease.run_id).state == RunState.FAILED


def test_a_suspend_request_of_a_suspended_run_is_dropped_on_resume(
    run: tuple[Store, Home, Lease],
) -> None:
    store, home, lease = run
    folder = home.run_dir(lease.run_id)
    unsupervised_steps.apply_requests(store, folder, lease, [SuspendRequested("later")])
    recover.record_lost(store, home, lease, "killed")
    assert store.runs.get(lease.run_id).state == RunState.SUSPENDED
    store.runs.request(lease.run_id, "suspend", "requested earlier", FUTURE)
    unsupervised_steps.apply_requests(store, folder, lease, [ResumeRequested("now")])
    assert request_events(store.runs.pending_requests(lease.run_id)) == []
