"""The ledger of a run in a store: one step of a run, and steps of several runs together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.control.controller import Record
from muster.control.ledger import StoreLedger, record_together
from muster.lifecycle.decide import decide
from muster.lifecycle.events import (
    CancelRequested,
    ControllerStarted,
    Event,
    ScaleRequested,
    SuspendRequested,
)
from muster.lifecycle.states import RunState
from muster.plan.model import RunPlan
from muster.storage.home import Home, RunDir
from muster.store.base import Store
from muster.store.records import Lease, LeaseLost
from muster.store.sqlite.store import SqliteStore
from simulation.harness.fake_ledger import OWNER, RecordedLedger
from simulation.harness.run_plan import run_plan
from support.memory_store import MemoryStore
from support.run_driver import policy


class Run:
    """A run that was accepted at 1.0, with its ledger."""

    def __init__(self, store: Store, home: Home, seed: int) -> None:
        made = run_plan(seed, policy((1, 2, None)))
        self.plan: RunPlan = replace(made, ttl_after_finished=60.0)
        RecordedLedger(store, self.plan, 1.0, suspended=False)
        self.folder: RunDir = home.run_dir(self.plan.run_id)
        self.folder.path.mkdir(parents=True)
        self.store, self.id = store, self.plan.run_id
        self.lease = Lease.first(self.id, OWNER)
        self.ledger = StoreLedger(store, self.plan, self.lease, self.folder)

    def decided(self, event: Event, now: float) -> Record:
        """What to record of a step after an event."""
        before = self.ledger.load()
        decision = decide(self.plan.policy, before, [event], now)
        return Record(before, decision.status, decision.entries, now)

    @property
    def notifications(self) -> int:
        """How often the followers were notified."""
        path = self.folder.event_notification
        return path.stat().st_size if path.exists() else 0

    @property
    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.store.events.since(self.id)]

    @property
    def logged(self) -> int:
        """The lines of the service log."""
        path = self.folder.service_log
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(params=["sqlite", "memory"])
def runs(
    request: pytest.FixtureRequest, own_home: Path, rng: random.Random
) -> Iterator[tuple[Store, Run, Run]]:
    """Two runs in each kind of store."""
    home = Home(own_home)
    store: Store = MemoryStore(rng)
    if request.param == "sqlite":
        store = SqliteStore.open(home.database)
    yield store, Run(store, home, 1), Run(store, home, 2)
    store.close()


Runs = tuple[Store, Run, Run]


def test_a_step_is_read_back_as_it_was_recorded(runs: Runs) -> None:
    _, run, other = runs
    record = run.decided(ControllerStarted(), 2.0)
    run.ledger.record(record)
    assert replace(run.ledger.load(), alarm=record.after.alarm) == record.after
    assert run.kinds == ["run", *(entry.kind for entry in record.entries)]
    assert run.notifications == 1
    assert run.logged >= 1
    assert (other.kinds, other.notifications, other.logged) == (["run"], 0, 0)


def test_steps_of_several_runs_are_recorded_together(runs: Runs) -> None:
    store, *both = runs
    steps = [(run.ledger, run.decided(ControllerStarted(), 2.0)) for run in both]
    record_together(store, steps)
    for run, (ledger, record) in zip(both, steps, strict=True):
        assert ledger.load().nodes == record.after.nodes
        assert run.kinds == ["run", *(entry.kind for entry in record.entries)]
        assert run.notifications == 1
        assert run.logged >= 1


def test_if_one_step_cannot_be_recorded_none_is(runs: Runs) -> None:
    store, one, other = runs
    steps = [(run.ledger, run.decided(ControllerStarted(), 2.0)) for run in (one, other)]
    store.leases.take(other.id, OWNER, 2.0, force=True)
    with pytest.raises(LeaseLost):
        record_together(store, steps)
    for run in (one, other):
        assert run.ledger.load().nodes == steps[0][1].before.nodes
        assert (run.kinds, run.notifications, run.logged) == (["run"], 0, 0)
    one.ledger.record(steps[0][1])
    assert one.notifications == 1


def test_a_run_expires_once_it_has_ended(runs: Runs) -> None:
    store, run, _ = runs
    run.ledger.record(run.decided(CancelRequested("enough"), 5.0))
    assert store.runs.get(run.id).state == RunState.CANCELED
    assert store.runs.get(run.id).expires_at == 65.0


def test_a_request_to_suspend_is_served_by_the_step_that_suspends(runs: Runs) -> None:
    store, run, _ = runs
    store.runs.request(run.id, "suspend", "later", 2.0)
    assert run.ledger.requests() == [SuspendRequested("later")]
    run.ledger.record(run.decided(SuspendRequested("later"), 3.0))
    assert store.runs.get(run.id).state == RunState.SUSPENDED
    assert run.ledger.requests() == []


def test_requests_are_in_an_order_in_which_each_takes_effect(runs: Runs) -> None:
    store, run, _ = runs
    store.runs.request(run.id, "cancel", "enough", 2.0)
    store.runs.request(run.id, "suspend", "later", 2.0)
    store.runs.request_scale(run.id, "g0", 1, "smaller", 2.0)
    assert run.ledger.requests() == [
        ScaleRequested("g0", 1, "smaller"),
        SuspendRequested("later"),
        CancelRequested("enough"),
    ]
