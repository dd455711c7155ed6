"""What is done for a run that nobody drives, on a machine whose clock was set back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from muster.control import recover, request
from muster.control.ledger import StoreLedger
from muster.lifecycle.decide import decide
from muster.lifecycle.events import ResumeRequested, RunBegan, SuspendRequested
from muster.lifecycle.states import NodeState, RunState
from muster.plan.model import RunPlan
from muster.simulation.book import StoreBook
from muster.simulation.plans import plan_of
from muster.storage.home import Home
from muster.store import events, runs
from muster.store.database import Database
from support.life import policy

FUTURE = 4_000_000_000.0  # what the clock showed before it was set right


@pytest.fixture
def run(own_home: Path) -> tuple[Database, Home, RunPlan]:
    """A run that was accepted in the future; its supervisor recorded that nodes were to start."""
    home = Home(own_home)
    plan = plan_of(1, policy((1, 2, None)))
    db = Database.open(home.database)
    StoreBook(db, plan, FUTURE, suspended=False)
    ledger = StoreLedger(db, plan)
    before = ledger.load()
    made = decide(plan.policy, before, [RunBegan()], FUTURE)
    ledger.record(before, made.status, made.entries, FUTURE)
    # so that it can be read back
    runs.save(db, plan.run_id, {"plan": plan.to_json()}, (), (), FUTURE)
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    return db, home, plan


def test_a_run_whose_supervisors_never_last_is_given_up(
    run: tuple[Database, Home, RunPlan],
) -> None:
    db, home, plan = run
    states = []
    for _ in range(5):
        recover.lose(db, home.run_dir(plan.run_id), plan.run_id, "killed")
        states.append(runs.get(db, plan.run_id).state)
    assert states == [*[RunState.ACCEPTED] * 3, RunState.FAILED, RunState.FAILED]
    assert {node.state for node in runs.nodes(db, plan.run_id)} == {NodeState.STOPPED}


def test_a_cancel_that_a_dying_supervisor_did_not_hear_is_honoured(
    run: tuple[Database, Home, RunPlan],
) -> None:
    db, home, plan = run
    folder = home.run_dir(plan.run_id)
    request.tell(db, folder, plan.run_id, [SuspendRequested("later")])
    recover.lose(db, folder, plan.run_id, "killed")
    assert runs.get(db, plan.run_id).state == RunState.SUSPENDED
    assert recover.recover(db, home, lambda *_: None) == []
    runs.request(db, plan.run_id, "cancel", "enough")
    assert recover.recover(db, home, lambda *_: None) == [plan.run_id]
    assert runs.get(db, plan.run_id).state == RunState.CANCELED


def test_the_log_goes_on_where_it_was(run: tuple[Database, Home, RunPlan]) -> None:
    db, home, plan = run
    folder = home.run_dir(plan.run_id)
    recover.lose(db, folder, plan.run_id, "killed")
    request.tell(db, folder, plan.run_id, [SuspendRequested("later")])
    request.tell(db, folder, plan.run_id, [ResumeRequested("now")])
    recover.record_broken(db, folder, plan.run_id, "enough")
    times = [entry.time for entry in events.since(db, plan.run_id)]
    assert all(before <= after for before, after in pairwise(times))
    assert runs.get(db, plan.run_id).state == RunState.FAILED


def test_a_wish_to_pause_that_came_too_late_is_fulfilled_too(
    run: tuple[Database, Home, RunPlan],
) -> None:
    db, home, plan = run
    folder = home.run_dir(plan.run_id)
    request.tell(db, folder, plan.run_id, [SuspendRequested("later")])
    recover.lose(db, folder, plan.run_id, "killed")
    assert runs.get(db, plan.run_id).state == RunState.SUSPENDED
    runs.request(db, plan.run_id, "suspend", "by one who had seen it going")
    request.tell(db, folder, plan.run_id, [ResumeRequested("now")])
    assert StoreLedger(db, plan).requests() == []
