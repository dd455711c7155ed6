"""Leases that one process keeps: renewed, lost to another process or for lack of a store, and
requests that only the store shows."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from muster.control.keeper import Keeper
from muster.control.lease import expiry
from muster.engines.loop import EventLoop
from muster.identity import Owner
from muster.store.base import Store
from muster.store.postgres import database
from muster.store.postgres.store import PostgresStore
from muster.store.records import Lease, LeaseHeld, LeaseLost
from muster.store.sqlite.store import SqliteStore
from support.postgres import PostgresServer, shared_server
from support.store_records import OWNER, accept, job

ELSEWHERE = Owner("elsewhere", "host-b", "boot-b")
#: Seconds, of a clock that the tests set: they may be held up for longer.
TERM = 15.0


class Clock(EventLoop):
    """A loop whose time passes when a test says so."""

    def __init__(self) -> None:
        self.time = 1000.0
        super().__init__()

    def now(self) -> float:
        return self.time

    def run_for(self, seconds: float) -> None:
        """Run through some seconds, in steps."""
        end = self.time + seconds
        while self.time < end:
            self.step()

    def run_until(self, reached: Callable[[], object]) -> None:
        """Run until something has happened, for which the participants wake the loop."""
        while not reached():
            self.step()

    def step(self) -> None:
        self.time += 0.25
        timer = self.add(lambda _: None)
        timer.wake_at(self.time)  # a round that nothing is to be done in ends, too
        self.run_once()
        timer.close()


@pytest.fixture
def loop() -> Iterator[Clock]:
    with closing(Clock()) as made:
        yield made


@contextmanager
def opened(url: str, clock: Clock) -> Iterator[PostgresStore]:
    """A store by whose clock leases expire."""
    with closing(PostgresStore.open(url)) as made, pytest.MonkeyPatch.context() as patch:
        made.database.lease_term = TERM
        patch.setattr(made.database, "now", clock.now)
        yield made


@pytest.fixture
def store(loop: Clock) -> Iterator[PostgresStore]:
    with shared_server().database() as url, opened(url, loop) as made:
        yield made


def leased(store: Store) -> Lease:
    """The lease of a new run."""
    expires_at = expiry(store)
    return Lease.first(accept(store, job(), owner=OWNER, lease_expires_at=expires_at).id, OWNER)


def test_a_lease_is_renewed_while_it_is_kept(store: PostgresStore, loop: Clock) -> None:
    keeper, lease = Keeper(store, loop, shared=False), leased(store)
    keeper.keep(lease, lambda: None)
    for _ in range(4):
        loop.run_for(TERM)
        keeper.check(lease.run_id)
        with pytest.raises(LeaseHeld, match="on host-a"):
            store.leases.take(lease.run_id, ELSEWHERE, store.leases.now())
    keeper.drop(lease.run_id)
    loop.run_for(2 * TERM)
    taken = store.leases.take(lease.run_id, ELSEWHERE, store.leases.now())
    assert taken.token == 2
    keeper.check(lease.run_id)


def test_a_lease_is_lost_to_another_process(store: PostgresStore, loop: Clock) -> None:
    keeper, lease, other = Keeper(store, loop, shared=False), leased(store), leased(store)
    attended: list[str] = []
    keeper.keep(lease, lambda: attended.append("lost"))
    keeper.keep(other, lambda: attended.append("other"))
    store.leases.take(lease.run_id, ELSEWHERE, 1.0, force=True)
    loop.run_until(lambda: attended)
    assert attended == ["lost"]
    with pytest.raises(LeaseLost, match="a process on host-b drives"):
        keeper.check(lease.run_id)
    keeper.check(other.run_id)


def test_a_lease_that_could_not_be_renewed_is_lost(
    loop: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have taken it: this one cannot know."""
    monkeypatch.setattr(database, "_RESTART_TIMEOUT", 0.0)
    server = PostgresServer()
    try:
        with opened(server.url(server.create()), loop) as store:
            keeper, lease = Keeper(store, loop, shared=False), leased(store)
            attended: list[float] = []
            keeper.keep(lease, lambda: attended.append(loop.now()))
            loop.run_for(TERM / 2)
            server.stop(signal.SIGQUIT)
            stopped = loop.now()
            loop.run_until(lambda: attended)
            assert attended[0] - stopped >= TERM / 2
            with pytest.raises(LeaseLost, match="it has expired: cannot reach the PostgreSQL"):
                keeper.check(lease.run_id)
    finally:
        server.remove()


def test_requests_are_found_in_the_store(store: PostgresStore, loop: Clock) -> None:
    """As those of other hosts are, which cannot wake this process."""
    keeper, lease, other = Keeper(store, loop, shared=False), leased(store), leased(store)
    attended: list[str] = []
    keeper.keep(lease, lambda: attended.append(lease.run_id))
    keeper.keep(other, lambda: attended.append(other.run_id))
    loop.run_for(TERM)
    assert attended == []
    store.runs.request(lease.run_id, "cancel", "enough", 2.0)
    loop.run_until(lambda: attended)
    assert attended == [lease.run_id]


def test_nothing_is_looked_for_where_there_is_no_other_host(tmp_path: Path, loop: Clock) -> None:
    with closing(SqliteStore.open(tmp_path / "m.db")) as store:
        keeper, lease = Keeper(store, loop, shared=False), leased(store)
        keeper.keep(lease, lambda: pytest.fail("it looks"))
        store.runs.request(lease.run_id, "cancel", "enough", 2.0)
        store.leases.take(lease.run_id, ELSEWHERE, 1.0, force=True)
        loop.run_for(1.5)
        keeper.check(lease.run_id)


def test_a_lease_without_expiry_is_lost_where_hosts_share_the_file(
    tmp_path: Path, loop: Clock
) -> None:
    with closing(SqliteStore.open(tmp_path / "m.db")) as store:
        keeper, lease = Keeper(store, loop, shared=True), leased(store)
        attended: list[str] = []
        keeper.keep(lease, lambda: attended.append("lost"))
        store.leases.take(lease.run_id, ELSEWHERE, 1.0, force=True)
        loop.run_until(lambda: attended)
        with pytest.raises(LeaseLost):
            keeper.check(lease.run_id)
