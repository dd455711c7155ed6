"""A PostgreSQL database: read it, and write it in transactions.

Every transaction is durable: unlike SQLite's, this database may lose power while those who write to
it live on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from threading import Lock, Semaphore
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus

from muster.errors import StoreBusy
from muster.store.postgres import schema
from muster.store.postgres.dialect import POSTGRES
from muster.store.postgres.errors import REPEATABLE, explain, is_connection_error
from muster.store.postgres.rows import row_factory
from muster.store.postgres.url import parameters_of, place_of
from muster.store.sql.database import Cursor, Dialect, Row
from muster.unix_account import as_root

T = TypeVar("T")

#: Connections of one process at most.
_MOST_CONNECTIONS = 10
#: Seconds to wait for a database that is being restarted. Who can wait for longer tries again.
_RESTART_TIMEOUT = 2.0
#: The same, to find out whether a transaction was committed whose connection was lost.
_COMMIT_CHECK_TIMEOUT = 30.0
#: Seconds between attempts.
_INTERVAL = 0.05
#: Attempts at a transaction that others interfere with.
_ATTEMPTS = 10
#: A stopped process must not keep others from its runs; locks are waited for as SQLite's.
_SETTINGS = """
    SET idle_in_transaction_session_timeout = '10s';
    SET lock_timeout = '30s';
    SET default_transaction_isolation = 'read committed';
"""

#: Waits until what was committed before is on the disk, and on replicas if the server is set up so:
#: a transaction of its own that writes a message. So a transaction releases its locks before it is
#: on the disk, and those who wait for them are flushed together.
_FLUSH = "SELECT pg_logical_emit_message(true, 'muster', '')"

Raw = psycopg.Connection[Any]


class Connection:
    """See `sql.database.Connection`."""

    dialect: Dialect = POSTGRES

    def __init__(self, raw: Raw, pipeline: psycopg.Pipeline | None = None) -> None:
        """pipeline: in which statements are sent together until a result is needed."""
        self._raw = raw
        self._pipeline = pipeline

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run a statement with `?` for values."""
        cursor = self._raw.execute(_translated(sql), _without_nul(parameters))
        return cursor if self._pipeline is None else _Pending(cursor, self._pipeline)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of these values."""
        with self._raw.cursor() as cursor:
            cursor.executemany(_translated(sql), map(_without_nul, parameters))


class _Pending:
    """The result of a statement that was sent in a pipeline.

    Fetching it waits for all before it, and tells the server that no more come for now: only then
    `idle_in_transaction_session_timeout` applies.
    """

    def __init__(self, cursor: psycopg.Cursor[Any], pipeline: psycopg.Pipeline) -> None:
        self._cursor = cursor
        self._pipeline = pipeline

    def fetchone(self) -> Any:
        self._pipeline.sync()
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        self._pipeline.sync()
        return self._cursor.fetchall()


class Lost(StoreBusy):
    """The connection was lost, and nothing was recorded."""


class Database:
    """A few connections, which are opened when they are needed; in a forked child, again.

    It survives restarts of the server: what is read is read again, and what was being written is
    written again unless it was recorded.
    """

    dialect: Dialect = POSTGRES
    #: Long enough for a restart of the server.
    lease_term: float | None = 15.0

    def __init__(self, url: str) -> None:
        self._idle: list[Raw] = []
        self._reset()
        #: Whether the tables were found or made.
        self._connected = False
        self._parameters = parameters_of(url)
        self.place = place_of(self._parameters)
        _databases.add(self)

    @classmethod
    def open(cls, url: str, *, timeout: float = 0.0) -> Database:
        """Connect, and create or migrate the tables if needed. timeout: seconds to wait for a
        server that is being restarted.

        Raises InvalidInput for a URL that is none, StoreError: no such database, refused, of a
        newer Muster; StoreBusy if it cannot be reached.
        """
        database = cls(url)
        with database._explain_errors():
            database._give_back(database._take(time.monotonic() + timeout))
        return database

    @property
    def replaced(self) -> bool:
        """See `Store.replaced`."""
        return False

    @property
    def reads_at_once(self) -> bool:
        """See `Store.reads_at_once`."""
        return False

    def now(self) -> float:
        """See `Leases.now`."""
        (row,) = self.read("SELECT extract(epoch FROM clock_timestamp())::float8")
        return float(row[0])

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """See `sql.database.Database.read`."""
        with self._explain_errors():
            deadline = time.monotonic() + _RESTART_TIMEOUT
            while True:
                try:
                    with self._use(deadline) as raw:
                        return Connection(raw).execute(sql, parameters).fetchall()
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    if not is_connection_error(error) or time.monotonic() > deadline:
                        raise

    @contextlib.contextmanager
    def transaction(
        self, *, durable: bool = False, done: Callable[[Any], bool] | None = None
    ) -> Iterator[Connection]:
        """See `sql.database.Database.transaction`. Raises Lost."""
        del durable  # every one is
        committing = False
        try:
            deadline = time.monotonic() + _RESTART_TIMEOUT
            # a pipeline, so that rows are locked for less time
            with self._explain_errors(), self._use(deadline) as raw, raw.pipeline() as pipeline:
                raw.execute("BEGIN")
                raw.execute("SET LOCAL synchronous_commit TO off")
                yield Connection(raw, pipeline)
                committing = True
                raw.execute("COMMIT")
                raw.execute(_FLUSH)
        except StoreBusy as error:
            cause = error.__cause__
            if not is_connection_error(cause):
                raise
            if committing and done is not None and self._was_recorded(done):
                return
            raise Lost(str(error)) from cause

    def write(
        self,
        step: Callable[[Connection], T],
        *,
        durable: bool = False,
        done: Callable[[Any], bool] | None = None,
    ) -> T:
        """See `sql.database.Database.write`."""
        deadline = time.monotonic() + _RESTART_TIMEOUT
        attempt = 0
        while True:
            attempt += 1
            try:
                with self.transaction(durable=durable, done=done) as connection:
                    result = step(connection)
            except StoreBusy as error:
                again = isinstance(error.__cause__, REPEATABLE) and attempt < _ATTEMPTS
                lost = isinstance(error, Lost) and time.monotonic() < deadline
                if not (again or lost):
                    raise
            else:
                return result

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for raw in idle:
            raw.close()

    def __del__(self) -> None:
        if os.getpid() == self._pid:
            self.close()

    def _was_recorded(self, done: Callable[[Any], bool]) -> bool:
        """Whether a transaction was recorded whose connection was lost."""
        deadline = time.monotonic() + _COMMIT_CHECK_TIMEOUT
        with self._explain_errors():
            while True:
                try:
                    with self._use(deadline) as raw:
                        raw.execute(_FLUSH)
                        return done(Connection(raw))
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    if not is_connection_error(error) or time.monotonic() > deadline:
                        raise

    @contextlib.contextmanager
    def _use(self, deadline: float) -> Iterator[Raw]:
        """Have a connection. deadline: for a server that is being restarted."""
        if not self._free.acquire(timeout=30.0):
            raise StoreBusy(f"{self.place}: all {_MOST_CONNECTIONS} connections are in use")
        free = self._free  # another one in a forked child
        try:
            raw = self._take(deadline)
            try:
                yield raw
                if os.getpid() != self._pid:
                    raise RuntimeError("a transaction cannot be finished by a forked child")
            finally:
                self._give_back(raw)
        finally:
            free.release()

    def _take(self, deadline: float) -> Raw:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        while True:
            try:
                return self._connect()
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline or not is_connection_error(error):
                    raise
                time.sleep(_INTERVAL)

    @as_root()  # it may need a certificate, or a file with passwords
    def _connect(self) -> Raw:
        raw: Raw = psycopg.connect(**self._parameters, autocommit=True, row_factory=row_factory)
        try:
            raw.execute(_SETTINGS)
            if not self._connected:
                schema.prepare(raw, self.place)
                self._connected = True
        except BaseException:
            raw.close()
            raise
        return raw

    def _give_back(self, raw: Raw) -> None:
        """Keep a connection for the next who needs one; if it is lost, the others are, too."""
        if os.getpid() != self._pid:
            return
        if not raw.closed and raw.info.transaction_status is not TransactionStatus.IDLE:
            try:
                raw.execute("ROLLBACK")
            except psycopg.Error:
                raw.close()
        if raw.closed:
            self.close()
            return
        with self._lock:
            self._idle.append(raw)

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            explained = explain(self.place, error)
            if explained is None:
                raise
            raise explained from error

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._free = Semaphore(_MOST_CONNECTIONS)

    def _reset_after_fork(self) -> None:
        for raw in self._idle:
            with contextlib.suppress(OSError, psycopg.Error):
                os.close(raw.pgconn.socket)  # the parent's connection stays open
        _inherited.extend(self._idle)  # psycopg warns of those that are collected
        self._idle = []
        self._reset()


@cache
def _translated(sql: str) -> bytes:
    """A statement with `?` for values, as psycopg expects it. No literal has a `?`."""
    return sql.replace("%", "%%").replace("?", "%s").encode()


def _without_nul(values: Sequence[Any]) -> Sequence[Any]:
    """Values with U+FFFD for NUL, which a text of PostgreSQL cannot contain. Texts of JSON have
    escapes for it."""
    if not any(isinstance(value, str) and "\0" in value for value in values):
        return values
    return [value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in values]


_databases: WeakSet[Database] = WeakSet()
_inherited: list[Raw] = []


def _after_fork() -> None:
    for database in list(_databases):
        database._reset_after_fork()


os.register_at_fork(after_in_child=_after_fork)
