"""Leases of processes that drive many runs: renewed, taken when they expire, lost and refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.control.keeper import Keeper
from muster.errors import StoreBusy
from muster.identity import Owner
from muster.store.records import (
    JobRecord,
    Lease,
    LeaseHeld,
    LeaseLost,
    NodeRecord,
    RunRecord,
    RunStep,
)
from muster.store.sqlite.store import SqliteStore

TERM = 15.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "m.db")
    yield opened
    opened.close()


def accept(store: SqliteStore) -> str:
    """A run that nobody drives. Its id."""
    job = JobRecord("jobid", "train", 0, "content", {}, None, None, "", {}, 1.0, 1.0)

    def build(kept: JobRecord, n: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
        rest = ["local", 0, 1.0, None, None, None, 0, {}, {}, {}, {}, {}, [], None, None]
        state = "IN_PROGRESS"
        return RunRecord(f"run{n}", name, n, kept.id, kept.name, state, "", *rest), []

    return store.runs.insert(job, build).id


def keeper(store: SqliteStore, name: str) -> Keeper:
    return Keeper(store, Owner(name, f"host-{name}", f"boot-{name}"), term=TERM)


def record(store: SqliteStore, lease: Lease, at: float = 1.0) -> None:
    store.runs.save(
        RunStep(lease, {}, [], [("step", {"owner": lease.owner, "token": lease.token})], at)
    )


def test_a_lease_is_kept_while_its_owner_renews_it(store: SqliteStore) -> None:
    run_id = accept(store)
    ann, bob = keeper(store, "ann"), keeper(store, "bob")
    lease = ann.take(run_id, 100.0)
    now = 100.0
    for _ in range(20):
        now += ann.step(now).wait
        assert bob.step(now).taken == ()
        with pytest.raises(LeaseHeld, match="driven by another process, on host-ann"):
            bob.take(run_id, now)
    record(store, lease)


def test_the_lease_of_a_dead_owner_is_taken_when_it_expires(store: SqliteStore) -> None:
    run_id = accept(store)
    ann, bob = keeper(store, "ann"), keeper(store, "bob")
    old = ann.take(run_id, 100.0)
    now = 100.0 + TERM / 7
    while not (found := bob.step(now)).taken:
        assert found.wait > 0
        now += found.wait
    assert now == pytest.approx(100.0 + TERM), "the wait ends when the lease does"
    (taken,) = found.taken
    assert (taken.run_id, taken.owner, taken.token) == (run_id, "bob", old.token + 1)
    record(store, taken)
    with pytest.raises(LeaseLost, match="a process on host-bob drives run run1 now"):
        record(store, old)
    assert ann.step(now).lost == (old,), "the old owner wakes up"
    assert ann.step(now).lost == ()
    bob.step(now + TERM / 2)
    assert keeper(store, "cyd").step(now + TERM * 1.2).taken == (), "bob renews what it has taken"
    assert [entry.data["owner"] for entry in store.events.since(run_id, 1)] == ["bob"]


def test_a_loss_is_reported_when_the_store_can_be_used_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = accept(store)
    ann, bob = keeper(store, "ann"), keeper(store, "bob")
    old = ann.take(run_id, 100.0)
    assert bob.step(100.0 + TERM).taken

    def busy(_: float) -> list[Lease]:
        raise StoreBusy("the store is busy")

    with monkeypatch.context() as patch:
        patch.setattr(store.leases, "expiring", busy)
        with pytest.raises(StoreBusy):
            ann.step(100.0 + TERM)
    assert ann.step(100.0 + TERM).lost == (old,)


def test_an_owner_that_wakes_up_before_anybody_took_its_lease_keeps_it(store: SqliteStore) -> None:
    run_id = accept(store)
    ann, bob = keeper(store, "ann"), keeper(store, "bob")
    lease = ann.take(run_id, 100.0)
    assert ann.step(100.0 + 10 * TERM).lost == ()
    assert bob.step(100.0 + 10 * TERM).taken == ()
    record(store, lease)


def test_one_of_many_takes_a_free_lease(store: SqliteStore) -> None:
    run_ids = {accept(store) for _ in range(20)}
    dead = keeper(store, "dead")
    for run_id in run_ids:
        dead.take(run_id, 0.0)
    others = [keeper(store, str(number)) for number in range(3)]
    taken = [lease for one in others for lease in one.step(TERM).taken]
    assert sorted(lease.run_id for lease in taken) == sorted(run_ids)


def test_leases_of_ended_runs_and_those_without_a_term_are_left(store: SqliteStore) -> None:
    ended, local = accept(store), accept(store)
    ann, bob = keeper(store, "ann"), keeper(store, "bob")
    store.runs.save(RunStep(ann.take(ended, 0.0), {"state": "FAILED"}, [], [], 1.0))
    store.leases.take(local, Owner("supervisor", "host-ann", ""), 0.0)
    assert bob.step(1000.0).taken == ()


def test_a_released_lease_is_free(store: SqliteStore) -> None:
    run_id = accept(store)
    ann, bob = keeper(store, "ann"), keeper(store, "bob")
    ann.take(run_id, 0.0)
    ann.release(run_id)
    ann.release(run_id)
    assert ann.step(1.0).lost == ()
    assert bob.take(run_id, 1.0).token == 2


class Process:
    """A process that drives runs by a clock of its own, and sometimes stands still."""

    def __init__(self, store: SqliteStore, name: str) -> None:
        self.keeper = keeper(store, name)
        self.skew = 0.0
        self.asleep_until = 0.0
        self.leases: dict[str, Lease] = {}


def test_one_process_at_a_time_records_steps_of_a_run(
    store: SqliteStore, rng: random.Random
) -> None:
    """Processes sleep, lose their clocks and wake up in the middle of everything."""
    run_ids = [accept(store) for _ in range(3)]
    processes = [Process(store, name) for name in ("ann", "bob", "cho")]
    for run_id in run_ids:
        one = rng.choice(processes)
        one.leases[run_id] = one.keeper.take(run_id, 0.0)
    recorded: dict[str, list[int]] = {run_id: [] for run_id in run_ids}
    refused, now = 0, 0.0
    for _ in range(1500):
        now += rng.uniform(0, TERM / 5)
        one = rng.choice(processes)
        if rng.random() < 0.02:
            one.skew = rng.choice([0.0, rng.uniform(-3 * TERM, 3 * TERM)])
        if rng.random() < 0.02:
            one.asleep_until = now + rng.uniform(0, 4 * TERM)
        if now < one.asleep_until:
            continue
        if rng.random() < 0.5:  # else it continues where it was stopped: it records first
            found = one.keeper.step(now + one.skew)
            for lost in found.lost:
                one.leases.pop(lost.run_id, None)
            one.leases |= {lease.run_id: lease for lease in found.taken}
        for run_id, lease in [*one.leases.items()]:
            try:
                record(store, lease, now)
            except LeaseLost:
                refused += 1
                del one.leases[run_id]
            else:
                recorded[run_id].append(lease.token)
    for run_id, tokens in recorded.items():
        assert tokens == sorted(tokens), "no former owner has recorded a step after another one"
        kept = [entry.data["token"] for entry in store.events.since(run_id, 1)]
        assert kept == tokens, "no step of a loser is recorded, and none is lost"
    assert refused, "some were refused, or the test tests nothing"
    assert max(max(tokens) for tokens in recorded.values()) > 3, "leases changed hands"
