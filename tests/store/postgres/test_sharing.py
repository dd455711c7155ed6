"""Threads and processes that use one database at once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from muster.errors import InvalidInput, NotFound
from muster.identity import Owner, new_owner
from muster.store.postgres.store import PostgresStore
from muster.store.records import Lease, LeaseHeld, LeaseLost, RunFilter, RunStep
from support.store_records import OWNER, PROJECT, accept, job, node

WORKERS = 8


def at_once(call: Callable[[int], object], times: int = WORKERS) -> list[object]:
    """Call something in as many threads, which begin together."""
    barrier = threading.Barrier(times)

    def wait_and_call(number: int) -> object:
        barrier.wait()
        return call(number)

    with ThreadPoolExecutor(times) as pool:
        return [*pool.map(wait_and_call, range(times))]


def test_no_number_is_given_twice(store: PostgresStore) -> None:
    of = job()

    def submit(_: int) -> None:
        for _ in range(5):
            accept(store, of, [node(0)], OWNER)

    at_once(submit)
    runs = store.runs.listing(PROJECT, RunFilter())
    names = [run.name for run in runs]
    assert names == [f"train-{number}" for number in range(5 * WORKERS, 0, -1)]
    assert len(store.jobs.listing(PROJECT)) == 1


def test_the_same_content_makes_one_job(store: PostgresStore) -> None:
    for number in range(10):
        content = f"content-{number}"
        at_once(lambda _, content=content: store.jobs.insert(job(content_hash=content)))  # type: ignore[misc]
    assert [one.version for one in store.jobs.listing(PROJECT)] == [*range(10, 0, -1)]


def test_no_run_of_a_deleted_job_starts(store: PostgresStore) -> None:
    for _ in range(10):
        of = store.jobs.insert(job())

        def act(number: int, of: object = of) -> None:
            with suppress(InvalidInput):
                if number == 0:
                    store.jobs.delete(of.id, by="ann", now=2.0)  # type: ignore[attr-defined]
                else:
                    accept(store, of)  # type: ignore[arg-type]

        at_once(act, 3)
        (kept,) = [one for one in store.jobs.listing(PROJECT, deleted=True) if one.id == of.id]
        live = [run for run in store.runs.live() if run.job_id == of.id]
        assert bool(live) != (kept.state == "DELETED")


def test_one_of_many_gets_a_lease(store: PostgresStore) -> None:
    for _ in range(10):
        made = accept(store, job(), owner=OWNER, lease_expires_at=5.0)

        def take(_: int, run_id: str = made.id) -> Lease | None:
            with suppress(LeaseHeld):
                return store.leases.take(run_id, new_owner(), 6.0, expires_at=20.0)
            return None

        (taken,) = [lease for lease in at_once(take) if lease is not None]
        assert store.leases.get(made.id) == taken


def test_a_renewed_lease_is_not_taken(store: PostgresStore) -> None:
    """Either the owner renews it in time, or another process has it."""
    for _ in range(20):
        lease = Lease.first(accept(store, job(), owner=OWNER, lease_expires_at=5.0).id, OWNER, 5.0)

        def act(number: int, lease: Lease = lease) -> bool:
            if number == 0:
                store.leases.renew([lease], 50.0)
                return not store.leases.lost([lease])
            with suppress(LeaseHeld):
                store.leases.take(lease.run_id, new_owner(), 6.0, expires_at=20.0)
                return True
            return False

        renewed, taken = at_once(act, 2)
        found = store.leases.get(lease.run_id)
        assert found is not None
        if taken:
            assert found.owner != OWNER.id
        else:
            assert renewed and (found.owner, found.expires_at) == (OWNER.id, 50.0)


def test_steps_and_requests_of_a_run_have_numbers_of_their_own(store: PostgresStore) -> None:
    made = accept(store, job(), [node(0)], OWNER)
    lease = Lease.first(made.id, OWNER)

    def act(number: int) -> None:
        if number == 0:
            store.runs.request(made.id, "cancel", "enough", 2.0)
        elif number == 1:
            store.runs.request_scale(made.id, "g", 3, "more", 2.0)
        else:
            for _ in range(10):
                store.runs.save(RunStep(lease, {}, [node(0)], [("step", {"by": number})], 2.0))

    at_once(act)
    log = store.events.since(made.id)
    assert [entry.seq for entry in log] == [*range(1, len(log) + 1)]
    assert len(log) == 1 + 2 + 10 * (WORKERS - 2)


def test_steps_of_several_runs_do_not_wait_for_one_another_in_a_circle(
    store: PostgresStore, rng: random.Random
) -> None:
    of = job()
    leases = [Lease.first(accept(store, of, owner=OWNER).id, OWNER) for _ in range(6)]
    orders = [rng.sample(leases, len(leases)) for _ in range(WORKERS)]

    def act(number: int) -> None:
        for _ in range(10):
            steps = [RunStep(one, {"attempt": 1}, [], [("x", {})], 2.0) for one in orders[number]]
            store.runs.save(*steps)
            store.leases.renew(orders[number], 50.0)

    at_once(act)
    assert {store.events.last(lease.run_id) for lease in leases} == {1 + 10 * WORKERS}


def test_runs_are_deleted_while_they_are_recorded(store: PostgresStore) -> None:
    for _ in range(10):
        lease = Lease.first(accept(store, job(), [node(0)], OWNER).id, OWNER)

        def act(number: int, lease: Lease = lease) -> None:
            if number == 0:
                store.runs.delete(lease.run_id)
            with suppress(LeaseLost, NotFound):
                store.runs.save(RunStep(lease, {"attempt": 1}, [node(0)], [("x", {})], 2.0))
                store.leases.take(lease.run_id, Owner("b", "b", "b"), 2.0, force=True)

        at_once(act, 4)
        assert store.runs.listing(PROJECT, RunFilter()) == []
        assert store.leases.get(lease.run_id) is None


def test_a_forked_child_has_connections_of_its_own(store: PostgresStore) -> None:
    accept(store, job())
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        accept(store, job())
        os.write(writer, str(len(store.runs.live())).encode())
        os._exit(0)
    os.close(writer)
    assert os.waitpid(pid, 0)[1] == 0
    with open(reader) as pipe:
        assert pipe.read() == "2"
    accept(store, job())
    assert len(store.runs.live()) == 3


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_process_that_stands_still_in_a_transaction_holds_nobody_up_for_long(
    store: PostgresStore, url: str, how: str
) -> None:
    made = accept(store, job(), owner=OWNER)
    code = (
        "import os, signal, sys\n"
        "from muster.store.postgres.store import PostgresStore\n"
        "from muster.store.sql.database import lock_runs\n"
        "store = PostgresStore.open(sys.argv[1])\n"
        "with store.database.transaction() as connection:\n"
        "    lock_runs(connection, [sys.argv[2]])\n"
        "    connection.execute('SELECT 1').fetchone()\n"
        "    print('locked', flush=True)\n"
        "    os.kill(os.getpid(), getattr(signal, sys.argv[3]))\n"
    )
    argv = [sys.executable, "-c", code, url, made.id, how]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"locked\n"
            assert store.runs.request(made.id, "cancel", "enough", 2.0)
        finally:
            other.kill()


def test_more_threads_than_connections_wait(store: PostgresStore) -> None:
    def act(_: int) -> int:
        return len([store.runs.live() for _ in range(20)])

    assert at_once(act, 30) == [20] * 30


def test_two_stores_see_what_the_other_writes(store: PostgresStore, url: str) -> None:
    with closing(PostgresStore.open(url)) as other:
        made: Sequence[str] = [accept(store, job()).id, accept(other, job()).id]
        assert {run.id for run in store.runs.live()} == {run.id for run in other.runs.live()}
        assert {run.id for run in other.runs.live()} == {*made}
