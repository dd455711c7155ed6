"""Recovery of a run without a supervisor, on a machine whose clock was set back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.control import recover, unsupervised_steps
from muster.control.controller import Record
from muster.control.drive import Outcome
from muster.control.keeper import Keeper
from muster.control.ledger import StoreLedger, request_events
from muster.control.persist import plan_of
from muster.control.supervisor import Assignment, SupervisedRun
from muster.engines.base import Capabilities
from muster.engines.loop import EventLoop
from muster.engines.registry import local_engine
from muster.errors import EngineError, NotRecovered
from muster.identity import Owner
from muster.lifecycle.decide import decide
from muster.lifecycle.events import ControllerStarted, ResumeRequested, RunQueued, SuspendRequested
from muster.lifecycle.states import NodeState, RunState
from muster.storage.home import Home
from muster.store.base import Store
from muster.store.records import Lease, LeaseLost, RunStep
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
    recover.record_broken(store, home, lease, "enough")
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


@pytest.fixture
def cleaned_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nodes outlive their supervisors. The runs of which an engine was to end all nodes."""
    found: list[str] = []
    engine = SimpleNamespace(
        capabilities=Capabilities(detached=True),
        clean_up=found.append,
        started_ranks=lambda *_: frozenset(),
        lacking_here=lambda *_: "",
    )
    for name in ("engine_named", "find_engine"):
        monkeypatch.setattr(f"muster.engines.registry.{name}", lambda *_: engine)
    return found


def test_nodes_that_outlive_their_supervisor_are_not_lost(
    run: tuple[Store, Home, Lease], cleaned_up: list[str]
) -> None:
    store, home, lease = run
    store.runs.request(lease.run_id, "cancel", "enough", FUTURE)
    before = store.runs.get(lease.run_id), store.runs.nodes(lease.run_id)
    recover.record_lost(store, home, lease, recover.SUPERVISOR_KILLED)
    after = store.runs.get(lease.run_id), store.runs.nodes(lease.run_id)
    assert after == before, "the next supervisor applies the request"
    entry = store.events.since(lease.run_id)[-1]
    assert (entry.kind, entry.data) == (
        "supervisor_replaced",
        {"why": recover.SUPERVISOR_REPLACED},
    )
    assert cleaned_up == []


def test_a_run_whose_supervisors_are_soon_lost_is_ended_with_its_nodes(
    run: tuple[Store, Home, Lease], cleaned_up: list[str]
) -> None:
    store, home, lease = run
    for _ in range(3):
        recover.record_lost(store, home, lease, "killed")
    assert (store.runs.get(lease.run_id).state, cleaned_up) == (RunState.ACCEPTED, [])
    recover.record_lost(store, home, lease, "killed")
    record = store.runs.get(lease.run_id)
    assert (record.state, record.details) == (RunState.FAILED, recover.LOST_REPEATEDLY)
    assert cleaned_up == [lease.run_id]


def test_detached_nodes_that_no_supervisor_can_attend_to_are_ended(
    run: tuple[Store, Home, Lease], cleaned_up: list[str]
) -> None:
    store, home, lease = run
    pipe = home.run_dir(lease.run_id).liveness_pipe
    assert not pipe.exists()
    assert recover.recover(store, home, lambda *_: None) == [lease.run_id]
    record = store.runs.get(lease.run_id)
    assert (record.state, cleaned_up) == (RunState.FAILED, [lease.run_id])
    assert record.details == f"{pipe} was deleted while the run was in progress"


def test_the_log_of_a_run_whose_supervisor_never_started_says_that_another_one_does(
    run: tuple[Store, Home, Lease], cleaned_up: list[str]
) -> None:
    store, home, lease = run
    recover.record_lost(store, home, lease, recover.NEVER_STARTED)
    entry = store.events.since(lease.run_id)[-1]
    assert entry.data == {"why": recover.SUPERVISOR_STARTED_LATE}
    assert cleaned_up == []


def test_a_suspended_run_with_detached_nodes_is_canceled(
    run: tuple[Store, Home, Lease], cleaned_up: list[str]
) -> None:
    store, home, lease = run
    folder = home.run_dir(lease.run_id)
    for event in (RunQueued("memory"), SuspendRequested("later")):
        unsupervised_steps.apply_requests(store, folder, lease, [event])
    assert store.runs.get(lease.run_id).state == RunState.SUSPENDED
    store.runs.request(lease.run_id, "cancel", "enough", FUTURE)
    recover.record_lost(store, home, lease, "killed")
    assert store.runs.get(lease.run_id).state == RunState.CANCELED
    assert cleaned_up == [lease.run_id]


def test_nodes_whose_run_has_a_corrupt_record_are_ended(
    run: tuple[Store, Home, Lease], cleaned_up: list[str]
) -> None:
    store, home, lease = run
    store.runs.save(RunStep(lease, {"plan": {}}, (), (), FUTURE))
    assert recover.recover(store, home, lambda *_: None) == [lease.run_id]
    assert store.runs.summary(lease.run_id).state == RunState.FAILED
    assert cleaned_up == [lease.run_id]


@pytest.fixture
def keeper(run: tuple[Store, Home, Lease]) -> Iterator[Keeper]:
    with closing(EventLoop()) as loop:
        yield Keeper(run[0], loop, shared=False)


def test_a_supervisor_that_was_replaced_does_not_end_the_nodes_of_the_next_one(
    run: tuple[Store, Home, Lease], cleaned_up: list[str], keeper: Keeper
) -> None:
    store, home, lease = run
    store.leases.take(lease.run_id, Owner("other", "login-2", "another boot"), FUTURE, force=True)
    with pytest.raises(LeaseLost):
        recover.record_broken(store, home, lease, "internal error")
    assignment = Assignment(home, lease, {}, "python3", lock=-1, liveness=-1)
    supervised = SupervisedRun(store, assignment, local_engine(), keeper)
    supervised.fail(EngineError("the scheduler does not answer"))
    assert not supervised.conclude()
    assert cleaned_up == []
    assert store.runs.get(lease.run_id).state == RunState.ACCEPTED


def test_a_supervisor_that_fails_as_it_leaves_its_nodes_does_not_end_them(
    run: tuple[Store, Home, Lease],
    cleaned_up: list[str],
    keeper: Keeper,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    store, home, lease = run
    assignment = Assignment(home, lease, {}, "python3", lock=-1, liveness=-1)
    supervised = SupervisedRun(store, assignment, local_engine(), keeper)
    status = StoreLedger(store, plan_of(store.runs.get(lease.run_id)), lease).load()
    outcome = Outcome(status, error=EngineError("a connection breaks"), left=True)
    monkeypatch.setattr(supervised, "_run", SimpleNamespace(outcome=outcome))
    assert not supervised.conclude()
    assert "a connection breaks" in capfd.readouterr().err
    assert (store.runs.get(lease.run_id).state, cleaned_up) == (RunState.ACCEPTED, [])


def test_nodes_that_cannot_be_ended_are_warned_of(
    run: tuple[Store, Home, Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    def clean_up(_: str) -> None:
        raise EngineError("the scheduler does not answer")

    engine = SimpleNamespace(
        capabilities=Capabilities(detached=True),
        clean_up=clean_up,
        lacking_here=lambda *_: "",
    )
    for name in ("engine_named", "find_engine"):
        monkeypatch.setattr(f"muster.engines.registry.{name}", lambda *_: engine)
    store, home, lease = run
    for _ in range(3):
        recover.record_lost(store, home, lease, "killed")
    with pytest.warns(NotRecovered, match="the scheduler does not answer"):
        assert recover.recover(store, home, lambda *_: None) == []
    assert store.runs.get(lease.run_id).state == RunState.ACCEPTED, "the next command tries again"


def test_nodes_that_are_being_ended_are_not_attached_to(
    run: tuple[Store, Home, Lease], cleaned_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its supervisors were lost long ago by now."""
    store, home, lease = run
    monkeypatch.setattr(recover, "is_under_way", lambda run_id: run_id == lease.run_id)
    recover.record_lost(store, home, lease, "killed")
    record = store.runs.get(lease.run_id)
    assert (record.state, record.details) == (RunState.FAILED, recover.LOST_REPEATEDLY)
    assert cleaned_up == [lease.run_id]


def test_supervisors_that_are_handed_over_or_lost_seldom_do_not_count(
    run: tuple[Store, Home, Lease], cleaned_up: list[str]
) -> None:
    store, home, lease = run
    for number in range(5):  # a reboot each day
        store.runs.save(RunStep(lease, {}, (), [("other", {})], FUTURE + number * 86400.0))
        recover.record_lost(store, home, lease, "killed")
    for _ in range(5):
        recover.record_lost(store, home, lease, "terminated")
        store.runs.save(RunStep(lease, {}, (), [("handed_over", {})], FUTURE))
    assert (store.runs.get(lease.run_id).state, cleaned_up) == (RunState.ACCEPTED, [])
