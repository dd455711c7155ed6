"""Leases: who may take one, and what an owner that has lost it can still record."""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from muster.identity import Owner
from muster.store.base import Store
from muster.store.postgres.store import PostgresStore
from muster.store.records import Lease, LeaseHeld, LeaseLost, RunRecord, RunStep
from muster.store.sqlite.store import SqliteStore
from support.memory_store import MemoryStore
from support.postgres import shared_server
from support.store_records import OWNER, accept, accept_and_drive, job

#: Others than OWNER: on its host, on its host after a restart, in a container of its host, and on
#: another host.
SAME_HOST = Owner("samehost", "host-a", "boot-a")
RESTARTED = Owner("restarted", "host-a", "boot-later")
CONTAINER = Owner("container", "random-name", "boot-a")
ELSEWHERE = Owner("elsewhere", "host-b", "boot-b")
UNKNOWN_BOOT = Owner("unknown", "host-b", "")


def test_the_first_lease_is_that_of_the_process_that_stores_the_run(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    assert store.leases.get(made.id) == lease
    assert (lease.token, lease.expires_at, lease.owner) == (1, None, OWNER.id)
    store.runs.save(RunStep(lease, {"attempt": 1}, [], [], 2.0))
    free = accept(store, job())
    assert store.leases.get(free.id) is None
    with pytest.raises(LeaseLost, match="another process drives"):
        store.runs.save(RunStep(Lease.first(free.id, OWNER), {"attempt": 1}, [], [], 2.0))


@pytest.mark.parametrize("alone", [False, True])
def test_a_lease_without_expiry_is_taken_from_an_owner_that_is_gone(
    store: Store, alone: bool
) -> None:
    """Who has the lock on the run's folder knows that an owner on the same host is gone."""
    for other, same_host in (
        (SAME_HOST, True),
        (RESTARTED, True),
        (CONTAINER, True),
        (ELSEWHERE, False),
        (UNKNOWN_BOOT, False),
    ):
        made, lease = accept_and_drive(store, job())
        if alone and same_host:
            taken = store.leases.take(made.id, other, 2.0, alone=True)
            assert (taken.owner, taken.token) == (other.id, 2)
            with pytest.raises(LeaseLost, match=f"a process on {other.host} drives"):
                store.runs.save(RunStep(lease, {"attempt": 1}, [], [], 3.0))
        else:
            with pytest.raises(LeaseHeld, match="driven by another process, on host-a") as held:
                store.leases.take(made.id, other, 2.0, alone=alone)
            assert held.value.lease == store.leases.get(made.id) == lease


def test_an_unknown_boot_is_not_that_of_another_unknown_one(store: Store) -> None:
    made = accept(store, job(), owner=Owner("first", "host-c", ""))
    with pytest.raises(LeaseHeld):
        store.leases.take(made.id, UNKNOWN_BOOT, 2.0, alone=True)


def test_a_lease_is_taken_by_force(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    taken = store.leases.take(made.id, ELSEWHERE, 2.0, force=True)
    assert (taken.owner, taken.token) == (ELSEWHERE.id, 2)
    with pytest.raises(LeaseLost):
        store.runs.save(RunStep(lease, {"attempt": 1}, [], [], 3.0))


def test_a_lease_can_be_taken_once_it_has_expired(store: Store) -> None:
    made = accept(store, job())
    lease = store.leases.take(made.id, OWNER, 2.0, expires_at=10.0)
    assert lease.expires_at == 10.0
    for other, alone in ((SAME_HOST, False), (ELSEWHERE, False), (ELSEWHERE, True)):
        with pytest.raises(LeaseHeld):
            store.leases.take(made.id, other, 9.999999, alone=alone)
    store.runs.save(RunStep(lease, {"attempt": 1}, [], [], 20.0))  # nobody has taken it yet
    taken = store.leases.take(made.id, ELSEWHERE, 10.0, expires_at=30.0)
    assert (taken.owner, taken.token, taken.expires_at) == (ELSEWHERE.id, 2, 30.0)
    with pytest.raises(LeaseLost):
        store.runs.save(RunStep(lease, {"attempt": 2}, [], [], 20.0))


def test_an_owner_that_takes_its_lease_again_gets_another_token(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    again = store.leases.take(made.id, OWNER, 2.0, expires_at=9.0)
    assert (again.token, again.expires_at) == (2, 9.0)
    store.leases.release(lease)  # the one that it had before
    assert store.leases.get(made.id) == again
    with pytest.raises(LeaseLost):
        store.runs.save(RunStep(lease, {"attempt": 1}, [], [], 3.0))


def test_a_released_lease_can_be_taken_by_anybody(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    store.leases.release(lease)
    store.leases.release(lease)
    assert store.leases.get(made.id) is None
    with pytest.raises(LeaseLost, match="another process drives"):
        store.runs.save(RunStep(lease, {"attempt": 1}, [], [], 2.0))
    taken = store.leases.take(made.id, ELSEWHERE, 2.0)
    assert taken.token == 2
    store.leases.release(lease)  # not its owner's any more
    assert store.leases.get(made.id) == taken


def test_a_lease_of_a_run_that_has_ended_stays_until_it_is_released(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    store.runs.save(RunStep(lease, {"state": "FAILED"}, [], [], 2.0))
    store.runs.save(RunStep(lease, {"notes": ["late"]}, [], [], 3.0))
    assert store.leases.get(made.id) == lease
    store.leases.release(lease)
    with pytest.raises(LeaseLost):
        store.runs.save(RunStep(lease, {"notes": []}, [], [], 4.0))


def test_a_lease_is_taken_before_it_expires_by_who_is_alone_on_its_host(store: Store) -> None:
    made = accept(store, job(), owner=OWNER, lease_expires_at=10.0)
    assert store.leases.get(made.id) == Lease.first(made.id, OWNER, 10.0)
    taken = store.leases.take(made.id, SAME_HOST, 2.0, expires_at=17.0, alone=True)
    assert (taken.owner, taken.token, taken.expires_at) == (SAME_HOST.id, 2, 17.0)


def test_renewing_extends_the_leases_that_their_owners_have(store: Store) -> None:
    of = store.jobs.insert(job())
    runs = [accept(store, of).id for _ in range(4)]
    own = [store.leases.take(run_id, OWNER, 1.0, expires_at=5.0) for run_id in runs]
    kept, taken, released, deleted = runs
    store.leases.take(taken, ELSEWHERE, 6.0, expires_at=20.0)
    store.leases.release(own[2])
    store.runs.delete(deleted)
    store.leases.renew(own, 9.0)
    assert store.leases.get(kept) == replace(own[0], expires_at=9.0), "the token is the same"
    still = store.leases.get(taken)
    assert still is not None and still.expires_at == 20.0
    assert store.leases.get(released) is None
    assert {lease.run_id for lease in store.leases.lost(own)} == {taken, released, deleted}
    assert store.leases.lost([still]) == store.leases.lost([]) == []
    store.leases.renew([], 9.0)


def test_the_time_by_which_leases_expire_goes_on(store: Store) -> None:
    assert abs(store.leases.now() - time.time()) < 60
    assert store.leases.now() <= store.leases.now()


def test_a_lost_lease_changes_nothing(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    store.leases.take(made.id, SAME_HOST, 2.0, alone=True)
    before = store.runs.get(made.id), store.runs.nodes(made.id), store.events.since(made.id)
    with pytest.raises(LeaseLost) as lost:
        store.runs.save(RunStep(lease, {"state": "FAILED", "plan": {}}, [], [("run", {})], 3.0))
    assert lost.value.lease == lease
    with pytest.raises(LeaseLost):
        store.runs.end_corrupt(lease, "why", 3.0)
    after = store.runs.get(made.id), store.runs.nodes(made.id), store.events.since(made.id)
    assert after == before


def test_others_request_something_of_a_run_that_is_driven(store: Store) -> None:
    made, lease = accept_and_drive(store, job())
    assert store.runs.request(made.id, "cancel", "enough", 2.0)
    assert store.runs.request_scale(made.id, "g", 2, "busy", 2.0)
    assert store.leases.get(made.id) == lease
    store.runs.save(RunStep(lease, {"attempt": 1}, [], [("step", {})], 3.0))
    kinds = [entry.kind for entry in store.events.since(made.id)]
    assert kinds == ["run", "cancel_requested", "scale_requested", "step"]
    assert store.runs.pending_requests(made.id).cancel == "enough"


# --- any order, any clocks

OWNERS = [
    Owner(f"owner{number}", host, boot)
    for number, (host, boot) in enumerate(
        [("a", "x"), ("a", "x"), ("a", "y"), ("b", "z"), ("b", ""), ("c", "x")]
    )
]
WHO = st.integers(0, len(OWNERS) - 1)


class Leases(RuleBasedStateMachine):
    """Owners with clocks that disagree and jump. `current` is the lease that is valid by the
    history of calls alone."""

    def make(self) -> Store:
        raise NotImplementedError

    @initialize()
    def start(self) -> None:
        self.store = self.make()
        self.run: RunRecord = accept(self.store, job())
        #: The leases that each owner believes to have, its latest last.
        self.held: dict[str, list[Lease]] = {owner.id: [] for owner in OWNERS}
        self.current: Lease | None = None
        self.tokens = [0]
        self.clocks = [100.0] * len(OWNERS)
        self.steps: list[tuple[str, int]] = []
        self.numbers = count()

    @rule(who=WHO, by=st.sampled_from([-50.0, -0.000001, 0.5, 5.0, 3600.0]))
    def clock_jumps(self, who: int, by: float) -> None:
        self.clocks[who] = round(max(0.0, self.clocks[who] + by), 6)

    @rule(
        who=WHO,
        term=st.sampled_from([None, 0.0, 1.0, 60.0]),
        alone=st.booleans(),
        force=st.sampled_from([False, False, False, True]),
    )
    def take(self, who: int, term: float | None, alone: bool, force: bool) -> None:
        owner, now, before = OWNERS[who], self.clocks[who], self.current
        expires_at = None if term is None else round(now + term, 6)
        more = {"expires_at": expires_at, "alone": alone, "force": force}
        try:
            taken = self.store.leases.take(self.run.id, owner, now, **more)  # type: ignore[arg-type]
        except LeaseHeld as error:
            assert before is not None and before.owner != owner.id and not force
            assert error.lease == before
            assert before.expires_at is None or before.expires_at > now
            same_host = owner.host == before.host or owner.boot == before.boot != ""
            assert not (alone and same_host)
            return
        if before is not None and before.owner != owner.id and not force:
            expired = before.expires_at is not None and before.expires_at <= now
            assert expired or alone
        assert taken.token == self.tokens[-1] + 1
        assert (taken.owner, taken.expires_at) == (owner.id, expires_at)
        self.tokens.append(taken.token)
        self.held[owner.id].append(taken)
        self.current = taken

    @rule(who=WHO, term=st.sampled_from([0.0, 1.0, 60.0]))
    def renew(self, who: int, term: float) -> None:
        """All leases that the owner ever had."""
        own, expires_at = self.held[OWNERS[who].id], round(self.clocks[who] + term, 6)
        self.store.leases.renew(own, expires_at)
        for lease in own:
            if self.current is not None and lease.token == self.current.token:
                self.current = replace(self.current, expires_at=expires_at)
        lost = {lease.token for lease in self.store.leases.lost(own)}
        assert lost == {lease.token for lease in own if not self.is_current(lease)}

    @rule(who=WHO, data=st.data())
    def release(self, who: int, data: st.DataObject) -> None:
        if not (own := self.held[OWNERS[who].id]):
            return
        lease = data.draw(st.sampled_from(own))
        self.store.leases.release(lease)
        if self.is_current(lease):
            self.current = None

    @rule(who=WHO, data=st.data())
    def save(self, who: int, data: st.DataObject) -> None:
        """With any lease that the owner ever had."""
        if not (own := self.held[OWNERS[who].id]):
            return
        lease, number = data.draw(st.sampled_from(own)), next(self.numbers)
        entry = ("step", {"by": lease.owner, "number": number})
        try:
            self.store.runs.save(RunStep(lease, {"attempt": number}, [], [entry], self.clocks[who]))
        except LeaseLost:
            assert not self.is_current(lease)
            return
        assert self.is_current(lease)
        self.steps.append((lease.owner, number))

    def is_current(self, lease: Lease) -> bool:
        """Whether the lease is valid: whose token it is."""
        now = self.current
        return now is not None and (now.owner, now.token) == (lease.owner, lease.token)

    @invariant()
    def the_store_knows_the_owner(self) -> None:
        assert self.store.leases.get(self.run.id) == self.current

    @invariant()
    def steps_are_those_of_owners(self) -> None:
        log = self.store.events.since(self.run.id, 1)
        assert [(entry.data["by"], entry.data["number"]) for entry in log] == self.steps
        assert self.store.runs.get(self.run.id).attempt == (self.steps or [("", 0)])[-1][1]


class MemoryLeasesMachine(Leases):
    def make(self) -> Store:
        return MemoryStore(random.Random(0))


class SqliteLeasesMachine(Leases):
    def make(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteStore.open(Path(self.folder.name) / "m.db")

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


class PostgresLeasesMachine(Leases):
    def make(self) -> Store:
        self.stack = ExitStack()
        return PostgresStore.open(self.stack.enter_context(shared_server().database()))

    def teardown(self) -> None:
        self.store.close()
        self.stack.close()


TestMemoryLeases = MemoryLeasesMachine.TestCase
TestSqliteLeases = SqliteLeasesMachine.TestCase
TestPostgresLeases = PostgresLeasesMachine.TestCase
TestMemoryLeases.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestSqliteLeases.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestPostgresLeases.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
