"""Leases that one process keeps: renewed, lost to another process or for lack of a store, and
requests that only the store shows."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muster.control.keeper import Keeper
from muster.control.lease import expiry
from muster.engines.loop import EventLoop
from muster.identity import Owner
from muster.store.base import Store
from muster.store.postgres.store import PostgresStore
from muster.store.records import Lease, LeaseHeld, LeaseLost
from muster.store.sqlite.store import SqliteStore
from support.postgres import PostgresServer, shared_server
from support.store_records import OWNER, accept, job

ELSEWHERE = Owner("elsewhere", "host-b", "boot-b")
#: Seconds; 15 where runs are driven in earnest.
TERM = 0.6


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    with closing(EventLoop()) as made:
        yield made


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    with shared_server().database() as url, closing(PostgresStore.open(url)) as made:
        made.database.lease_term = TERM
        yield made


def leased(store: Store) -> Lease:
    """The lease of a new run."""
    expires_at = expiry(store)
    return Lease.first(accept(store, job(), owner=OWNER, lease_expires_at=expires_at).id, OWNER)


def run_for(loop: EventLoop, seconds: float) -> None:
    ended: list[bool] = []
    timer = loop.add(lambda _: ended.append(True))
    timer.wake_at(loop.now() + seconds)
    while not ended:
        loop.run_once()


def run_until(loop: EventLoop, reached: Callable[[], object]) -> None:
    """Run the loop until something has happened, for which its participants wake it."""
    while not reached():
        loop.run_once()


def test_a_lease_is_renewed_while_it_is_kept(store: PostgresStore, loop: EventLoop) -> None:
    keeper, lease = Keeper(store, loop, shared=False), leased(store)
    keeper.keep(lease, lambda: None)
    for _ in range(4):
        run_for(loop, TERM)
        keeper.check(lease.run_id)
        with pytest.raises(LeaseHeld, match="on host-a"):
            store.leases.take(lease.run_id, ELSEWHERE, store.leases.now())
    keeper.drop(lease.run_id)
    run_for(loop, 2 * TERM)
    taken = store.leases.take(lease.run_id, ELSEWHERE, store.leases.now())
    assert taken.token == 2
    keeper.check(lease.run_id)


def test_a_lease_is_lost_to_another_process(store: PostgresStore, loop: EventLoop) -> None:
    keeper, lease, other = Keeper(store, loop, shared=False), leased(store), leased(store)
    attended: list[str] = []
    keeper.keep(lease, lambda: attended.append("lost"))
    keeper.keep(other, lambda: attended.append("other"))
    store.leases.take(lease.run_id, ELSEWHERE, 1.0, force=True)
    run_until(loop, lambda: attended)
    assert attended == ["lost"]
    with pytest.raises(LeaseLost, match="a process on host-b drives"):
        keeper.check(lease.run_id)
    keeper.check(other.run_id)


def test_a_lease_that_could_not_be_renewed_is_lost(loop: EventLoop) -> None:
    """Another process may have taken it: this one cannot know."""
    server = PostgresServer()
    try:
        with closing(PostgresStore.open(server.url(server.create()))) as store:
            store.database.lease_term = TERM
            keeper, lease = Keeper(store, loop, shared=False), leased(store)
            attended: list[float] = []
            keeper.keep(lease, lambda: attended.append(loop.now()))
            run_for(loop, TERM / 2)
            server.stop(signal.SIGQUIT)
            stopped = loop.now()
            run_until(loop, lambda: attended)
            assert attended[0] - stopped >= TERM / 2
            with pytest.raises(LeaseLost, match="it has expired: cannot reach the PostgreSQL"):
                keeper.check(lease.run_id)
    finally:
        server.remove()


def test_requests_are_found_in_the_store(store: PostgresStore, loop: EventLoop) -> None:
    """As those of other hosts are, which cannot wake this process."""
    keeper, lease, other = Keeper(store, loop, shared=False), leased(store), leased(store)
    attended: list[str] = []
    keeper.keep(lease, lambda: attended.append(lease.run_id))
    keeper.keep(other, lambda: attended.append(other.run_id))
    run_for(loop, TERM)
    assert attended == []
    store.runs.request(lease.run_id, "cancel", "enough", 2.0)
    run_until(loop, lambda: attended)
    assert attended == [lease.run_id]


def test_nothing_is_looked_for_where_there_is_no_other_host(
    tmp_path: Path, loop: EventLoop
) -> None:
    with closing(SqliteStore.open(tmp_path / "m.db")) as store:
        keeper, lease = Keeper(store, loop, shared=False), leased(store)
        keeper.keep(lease, lambda: pytest.fail("it looks"))
        store.runs.request(lease.run_id, "cancel", "enough", 2.0)
        store.leases.take(lease.run_id, ELSEWHERE, 1.0, force=True)
        run_for(loop, 1.5)
        keeper.check(lease.run_id)


def test_a_lease_without_expiry_is_lost_where_hosts_share_the_file(
    tmp_path: Path, loop: EventLoop
) -> None:
    with closing(SqliteStore.open(tmp_path / "m.db")) as store:
        keeper, lease = Keeper(store, loop, shared=True), leased(store)
        attended: list[str] = []
        keeper.keep(lease, lambda: attended.append("lost"))
        store.leases.take(lease.run_id, ELSEWHERE, 1.0, force=True)
        run_until(loop, lambda: attended)
        with pytest.raises(LeaseLost):
            keeper.check(lease.run_id)
