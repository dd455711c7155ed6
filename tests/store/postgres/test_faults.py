"""Connections that are lost, and a server that is away."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from muster.errors import StoreBusy, StoreError
from muster.store.postgres import database as databases
from muster.store.postgres.database import Connection
from muster.store.postgres.errors import explain
from muster.store.postgres.store import PostgresStore
from muster.store.records import Lease, RunStep
from support.postgres import PostgresServer, shared_server
from support.store_records import OWNER, accept, job, node

KILL_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid() "
    "AND datname = current_database()"
)


def kill_connections(url: str) -> None:
    """Close all connections to a database, at the server."""
    shared_server().execute(url.rpartition("/")[2], KILL_OTHERS)


def test_lost_connections_are_made_again(store: PostgresStore, url: str) -> None:
    made = accept(store, job(), [node(0)], OWNER)
    kill_connections(url)
    assert store.runs.summary(made.id).id == made.id
    kill_connections(url)
    store.runs.save(RunStep(Lease.first(made.id, OWNER), {"attempt": 1}, [], [("x", {})], 2.0))
    assert (store.runs.get(made.id).attempt, store.events.last(made.id)) == (1, 2)
    kill_connections(url)
    with pytest.raises(StoreBusy, match="cannot reach the PostgreSQL database"):
        accept(store, job())
    assert len(store.runs.live()) == 1, "the caller knows that nothing was recorded"
    accept(store, job())


class Cut:
    """Loses the connection when a transaction is committed: before the server has committed it, or
    after that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, committed: bool) -> None:
        self.count = 0
        execute = psycopg.Connection.execute

        def cut(raw: psycopg.Connection[Any], query: Any, *more: Any, **named: Any) -> Any:
            if query != "COMMIT" or self.count:
                return execute(raw, query, *more, **named)
            self.count += 1
            if committed:
                execute(raw, query)
            raw.close()
            raise psycopg.OperationalError("the connection is lost")

        monkeypatch.setattr(psycopg.Connection, "execute", cut)


@pytest.mark.parametrize("committed", [False, True])
def test_a_step_is_recorded_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    made = accept(store, job(), [node(0)], OWNER)
    other = accept(store, job(), [node(0)], OWNER)
    leases = [Lease.first(run.id, OWNER) for run in (made, other)]
    cut = Cut(monkeypatch, committed=committed)
    entries = [("x", {"a": 1}), ("y", {})]
    store.runs.save(*(RunStep(lease, {"attempt": 1}, [], entries, 2.0) for lease in leases))
    assert cut.count == 1
    for run in (made, other):
        assert [entry.kind for entry in store.events.since(run.id)] == ["run", "x", "y"]
        assert store.runs.get(run.id).attempt == 1


@pytest.mark.parametrize("committed", [False, True])
def test_a_run_is_accepted_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    Cut(monkeypatch, committed=committed)
    if committed:
        accept(store, job())
    else:
        with pytest.raises(StoreBusy):
            accept(store, job())
    assert len(store.runs.live()) == committed


def test_a_server_that_is_restarted_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_RESTART_TIMEOUT", 60.0)  # the machine may be busy
    server = PostgresServer()
    try:
        with closing(PostgresStore.open(server.url(server.create()))) as store:
            made = accept(store, job(), [], OWNER)
            server.stop(signal.SIGQUIT)
            starting = threading.Timer(0.3, server.start)
            starting.start()
            store.runs.request(made.id, "cancel", "enough", 2.0)
            starting.join()
            assert store.events.last(made.id) == 2
    finally:
        server.remove()


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """A store whose server has stopped."""
    monkeypatch.setattr(databases, "_RESTART_TIMEOUT", 0.2)
    server = PostgresServer()
    with closing(PostgresStore.open(server.url(server.create()))) as store:
        server.remove()
        yield store


def test_what_is_away_is_named(away: PostgresStore) -> None:
    start = time.monotonic()
    for use in (away.runs.live, lambda: accept(away, job()), lambda: away.runs.delete("x")):
        with pytest.raises(StoreBusy) as error:
            use()  # type: ignore[operator]
        assert str(error.value).startswith("cannot reach the PostgreSQL database test_1 at ")
        assert "Connection refused" in str(error.value)
    assert time.monotonic() - start < 10


def test_defects_are_not_explained(store: PostgresStore) -> None:
    with pytest.raises(psycopg.errors.SyntaxError):
        store.database.read("SELECT FROM WHERE")
    with pytest.raises(psycopg.errors.UniqueViolation):
        store.database.write(_insert_twice)
    with pytest.raises(RuntimeError), store.database.transaction() as connection:
        connection.execute("INSERT INTO numbers (project, name) VALUES ('p', 'n')")
        raise RuntimeError
    assert not store.database.read("SELECT 1 FROM numbers WHERE project = 'p'")


def _insert_twice(connection: Connection) -> None:
    for _ in range(2):
        connection.execute("INSERT INTO numbers (project, name) VALUES ('a', 'b')")


def test_refusals_of_the_server_are_explained() -> None:
    server = shared_server()
    name = server.create()
    try:
        with pytest.raises(StoreError, match="does not exist: create it, with `createdb`"):
            PostgresStore.open(server.url("missing"))
        server.execute(name, "CREATE ROLE reader LOGIN")
        url = server.url(name).replace("//muster@", "//reader@")
        with pytest.raises(StoreError, match="refuses the user: permission denied"):
            PostgresStore.open(url)
        with pytest.raises(StoreError, match="refuses the user or the password"):
            PostgresStore.open(url.replace("reader", "nobody"))
        PostgresStore.open(server.url(name)).close()
        server.execute("postgres", f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with (
            closing(PostgresStore.open(server.url(name))) as store,
            pytest.raises(StoreError, match="read-only, perhaps a standby"),
        ):
            accept(store, job())
    finally:
        server.drop(name)


def test_a_password_is_not_shown() -> None:
    server = shared_server()
    url = server.url("missing").replace("muster@", "muster:very%20secret@")
    with pytest.raises(StoreError) as error:
        PostgresStore.open(url)
    assert "secret" not in str(error.value)


def test_other_errors_of_the_server_are_temporary() -> None:
    assert isinstance(explain("here", psycopg.errors.OutOfMemory("no memory")), StoreBusy)
    assert isinstance(explain("here", psycopg.errors.DiskFull("no space")), StoreBusy)
    assert explain("here", psycopg.errors.DivisionByZero("1/0")) is None
