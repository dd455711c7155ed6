"""The database: read it, and write it in transactions.

SQLite in WAL mode, which stays consistent after a power cut. A power cut loses no durable
transaction. It may lose the latest of the others, which the run's recovery records again. On a file
system that other hosts may share: a rollback journal, with every transaction durable.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakSet

from muster.errors import StoreError, StoreFull
from muster.file_locks import NoLocks
from muster.store.sql.database import Dialect
from muster.store.sqlite import connection as connections
from muster.store.sqlite.dialect import SQLITE
from muster.store.sqlite.disk_reserve import Reserve
from muster.store.sqlite.errors import error_class, explain
from muster.store.sqlite.flush import Flush
from muster.store.sqlite.schema import MIGRATIONS
from muster.unix_account import as_root

Row = sqlite3.Row
T = TypeVar("T")
Done = Callable[[connections.Connection], bool]


class Database:
    """A connection that several threads may use and that survives a fork, and another one to read
    while a thread writes.

    Each is opened when first used; again after `close`, and in a forked child.
    """

    dialect: Dialect = SQLITE
    #: The lock on a run's folder tells others that the owner of its lease has ended.
    lease_term: float | None = None

    def __init__(self, path: Path, migrations: Sequence[str], *, create: bool = True) -> None:
        self.path = path
        self._migrations = migrations
        self._create = create
        self._lock = RLock()
        self._connection: connections.Connection | None = None
        #: Held while a thread reads.
        self._reading = RLock()
        self._reader: connections.Connection | None = None
        self._file = (0, 0)
        self._flush = Flush(connections.wal_of(path))
        #: Reserved space for writes that must succeed on a full disk.
        self.reserve = Reserve(path.with_name("reserve"))
        _databases.add(self)

    @classmethod
    def open(
        cls, path: Path, *, create: bool = True, migrations: Sequence[str] = MIGRATIONS
    ) -> Database:
        """Open the file and migrate it if needed; with `create`, create it (mode 0600) if missing.

        Raises StoreError: missing, not readable or writable, corrupt, of a newer Muster.
        """
        database = cls(path, migrations, create=create)
        database._fetch("PRAGMA user_version", ())
        return database

    @property
    def place(self) -> str:
        """See `sql.database.Database.place`."""
        return str(self.path)

    def now(self) -> float:
        """See `Leases.now`."""
        return time.time()

    @contextmanager
    def transaction(
        self, *, durable: bool = False, done: Done | None = None
    ) -> Iterator[connections.Connection]:
        """A transaction. One writer at a time, others wait. Transactions cannot be nested.

        durable: the data is on the disk when this returns. done: not needed, as the connection to a
        file is never lost. Raises StoreError.
        """
        with self._lock, as_root(), self._explain_errors():
            connection = self._connect()
            self._check_in_place()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                if self._connection is not connection:
                    raise RuntimeError("a transaction cannot be finished by a forked child")
                connection.execute("COMMIT")
            finally:
                # also if COMMIT failed; a full disk may have rolled it back already
                if self._connection is connection and connection.in_transaction:
                    connection.execute("ROLLBACK")
        if durable and connection.has_wal:  # otherwise, COMMIT has done it
            with as_root():
                self._flush.wait()

    def write(
        self,
        step: Callable[[connections.Connection], T],
        *,
        durable: bool = False,
        done: Done | None = None,
    ) -> T:
        """Run `step` in a transaction. If the disk is full, gives up the reserved space and calls
        `step` once more. Raises StoreError."""
        try:
            with self.transaction(durable=durable) as connection:
                return step(connection)
        except StoreFull:
            # try again even if there was none: another process may have just given up its own
            self._give_up_reserve()
        with self.transaction(durable=durable) as connection:
            return step(connection)

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows of a query. Works on a read-only or full disk, too. Raises StoreError."""
        connection = self._connection
        if connection is None or not connection.has_wal:
            return self._fetch(sql, parameters)
        # one thread at a time: Python lets others run at each row, and the more threads read, the
        # longer all take
        with self._reading:
            if not self._lock.acquire(blocking=False):
                return self._fetch_beside(sql, parameters)
            try:
                return self._fetch(sql, parameters)
            finally:
                self._lock.release()

    def _fetch(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        with self._lock, as_root(), self._explain_errors():
            try:
                connection = self._connect()
            except (sqlite3.OperationalError, NoLocks) as error:
                # not kept open: another process may write
                with closing(self._connect_to_read(error)) as reading:
                    return reading.execute(sql, parameters).fetchall()
            return _fetch_all(connection, sql, parameters)

    def _fetch_beside(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        """Read while another thread writes, or waits for another process to do so."""
        with as_root(), self._explain_errors():
            if self._reader is None:
                self._reader = connections.connect(self.path, self._migrations)
            return _fetch_all(self._reader, sql, parameters)

    def close(self) -> None:
        """Close the file."""
        with self._lock, self._reading:
            for connection in (self._connection, self._reader):
                if connection is not None:
                    connection.close()
            self._connection = self._reader = None

    def __del__(self) -> None:
        # a dropped connection is part of a cycle and stays open until it is collected; a child that
        # is forked before that would inherit it unnoticed
        self.close()

    def _connect(self) -> connections.Connection:
        if self._connection is None:
            _release_inherited()
            self._file = connections.locate(self.path, create=self._create)
            try:
                self._connection = connections.connect(self.path, self._migrations)
            except sqlite3.Error as error:
                # even for reading, SQLite creates the index of the WAL
                if error_class(self.path, error) is not StoreFull:
                    raise
                self._give_up_reserve()
                self._connection = connections.connect(self.path, self._migrations)
        return self._connection

    def _connect_to_read(self, error: sqlite3.OperationalError | NoLocks) -> sqlite3.Connection:
        return connections.connect_to_read(self.path, self._migrations, error)

    @as_root()
    def _give_up_reserve(self) -> None:
        self.reserve.give_up(connections.wal_of(self.path))

    def _check_in_place(self) -> None:
        """Refuse to write to a deleted file, which SQLite would do without an error."""
        if self.replaced:
            raise StoreError(
                f"{self.path} was deleted or replaced while it was in use; start this program again"
            )

    @property
    def reads_at_once(self) -> bool:
        """See `Store.reads_at_once`."""
        if self._connection is None or not self._connection.has_wal:
            return False
        if not self._reading.acquire(blocking=False):
            return False  # another thread may read much
        self._reading.release()
        return True

    @property
    def replaced(self) -> bool:
        """Whether the open file was deleted, moved or replaced."""
        if self._connection is None:
            return False
        try:
            found = self.path.stat()
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self._file

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text = explain(self.path, error)
            if text is None:
                raise
            raise error_class(self.path, error)(text) from error

    def _reset_after_fork(self) -> None:
        """Reset the state in a forked child, where no thread exists that could release the lock."""
        self._lock, self._reading = RLock(), RLock()
        self._flush = Flush(connections.wal_of(self.path))
        _inherited.extend(each for each in (self._connection, self._reader) if each is not None)
        self._connection = self._reader = None


def _fetch_all(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[Row]:
    try:
        return connection.execute(sql, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error):
            raise
    # a damaged row must not hide the others; reading its values fails later
    connection.text_factory = _lossy
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.text_factory = str


def _lossy(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


_databases: WeakSet[Database] = WeakSet()
_inherited: list[sqlite3.Connection] = []


def _after_fork() -> None:
    for database in list(_databases):
        database._reset_after_fork()


def _release_inherited() -> None:
    """Close the parent's connections in a forked child before it opens a connection.

    SQLite keeps a table of locks per process. After a fork, the copied table says that the child
    holds the locks of its parent, but the kernel does not know that: a new connection would take
    no locks, and the next process that closes the file would delete the WAL. Closing an idle
    connection empties the table and does not release the parent's locks. A connection with an open
    transaction cannot be closed without damage.
    """
    if any(connection.in_transaction for connection in _inherited):
        raise RuntimeError("the store cannot be used by a child forked during a transaction")
    while _inherited:
        _inherited.pop().close()


os.register_at_fork(after_in_child=_after_fork)
