"""The database file: opening it, transactions, and saying clearly what is wrong with it.

SQLite in WAL mode: a power cut leaves it whole. What was accepted (`durable`) survives the cut
too; the last moments of a run's bookkeeping may not, and are told again by whoever takes over.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakSet

from muster.errors import StoreError, StoreFull
from muster.store.explain import cannot_write, corrupt, explain, trouble_kind
from muster.store.reserve import Reserve
from muster.store.schema import MIGRATIONS, statements

Row = sqlite3.Row
T = TypeVar("T")

_PATIENCE = 30.0  # seconds a writer waits for another


class Database:
    """A connection that may be used by several threads and kept over a fork.

    Opened when first used, again after `close`, and anew in a forked child.
    """

    def __init__(self, path: Path, migrations: Sequence[str], *, create: bool = True) -> None:
        self.path = path
        self._migrations = migrations
        self._create = create
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        #: For those writes that a full disk must not prevent.
        self.reserve = Reserve(path.with_name("reserve"))
        _databases.add(self)

    @classmethod
    def open(
        cls, path: Path, *, create: bool = True, migrations: Sequence[str] = MIGRATIONS
    ) -> Database:
        """Open the file, updating it as needed, making it (mode 0600) if `create`.

        Raises StoreError: missing, not to be read or written, corrupt, of a newer Muster.
        """
        database = cls(path, migrations, create=create)
        database._fetch("PRAGMA user_version", ())
        return database

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """All or nothing; one writer at a time, others wait. Not to be nested.

        durable: on the disk when this returns, whatever happens to the power. Raises StoreError.
        """
        with self._lock, self._explained():
            connection = self._connect()
            self._check_in_place()
            if durable:
                connection.execute("PRAGMA synchronous=FULL")
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                if self._connection is not connection:
                    raise RuntimeError("a transaction cannot be finished by a forked child")
                connection.execute("COMMIT")
            finally:
                if self._connection is connection:
                    # also if COMMIT failed; a full disk may have rolled it back already
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    if durable:
                        connection.execute("PRAGMA synchronous=NORMAL")

    def write(self, step: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
        """A transaction that a full disk must not prevent: it may use the reserve. step: what is
        done in it; it is called again if there was no room. Raises StoreError."""
        try:
            with self.transaction(durable=durable) as connection:
                return step(connection)
        except StoreFull:
            self._give_up_reserve()  # if there is none, another process may just have done so
        with self.transaction(durable=durable) as connection:
            return step(connection)

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows of a query; also where nothing can be written. Raises StoreError."""
        return self._fetch(sql, parameters)

    def _fetch(self, sql: str, parameters: Sequence[Any]) -> list[Row]:
        with self._lock, self._explained():
            try:
                connection = self._connect()
            except sqlite3.OperationalError as error:
                # not kept open: somebody else may write
                with closing(self._open_to_read(error)) as reading:
                    return reading.execute(sql, parameters).fetchall()
            try:
                return connection.execute(sql, parameters).fetchall()
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
            # a damaged row must not be in the way of the others: whoever reads it will notice
            connection.text_factory = _lossy
            try:
                return connection.execute(sql, parameters).fetchall()
            finally:
                connection.text_factory = str

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __del__(self) -> None:
        # a connection is part of a cycle: merely dropped it stays open until it is collected,
        # and a child forked meanwhile inherits it with nobody left to tell
        self.close()

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            _release_inherited()
            self._file = self._locate()
            try:
                self._connection = self._open()
            except sqlite3.Error as error:
                # even to read, SQLite makes the index of the WAL
                if trouble_kind(self.path, error) is not StoreFull:
                    raise
                self._give_up_reserve()
                self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        # threads take turns by our lock; SQLite itself need not insist on one
        connection = sqlite3.connect(
            self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_to_read(self, error: sqlite3.OperationalError) -> sqlite3.Connection:
        """Open a file that cannot be opened as usual: SQLite would have to make the index of the
        WAL, and cannot on a read-only or full disk. Raises `error` if it has another reason."""
        if not cannot_write(error):
            raise error
        if self._wal.exists() and self._wal.stat().st_size:
            connection = self._copy()
        else:  # all there is to read is in the file itself
            uri = f"{self.path.absolute().as_uri()}?immutable=1"
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        try:
            self._check_version(connection)
            old = _version(connection) < len(self._migrations)
        except BaseException:
            connection.close()
            raise
        if old:  # it has to be written to before it can be read
            connection.close()
            raise error
        return connection

    def _copy(self) -> sqlite3.Connection:
        """The content in memory, that of the WAL included: after a crash it may be all there is."""
        import shutil
        from tempfile import TemporaryDirectory

        connection = sqlite3.connect(":memory:", check_same_thread=False)
        with TemporaryDirectory() as folder:
            copied = Path(shutil.copy(self.path, folder))
            shutil.copy(self._wal, folder)
            copied.chmod(0o600)
            with closing(sqlite3.connect(copied)) as source:
                source.backup(connection)
        return connection

    @property
    def _wal(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _give_up_reserve(self) -> None:
        self.reserve.give_up(self._wal)

    def _locate(self) -> tuple[int, int]:
        """Which file it is; made if it may be."""
        try:
            if self._create and not os.path.lexists(self.path):
                _touch(self.path)
            found = self.path.stat()
        except OSError as error:
            raise StoreError(
                f"cannot open the database {self.path}: {error.strerror}; check the folder, "
                "or set MUSTER_HOME to another one"
            ) from None
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise StoreError(f"{self.path} is {kind}, not a database; move it away")
        return found.st_dev, found.st_ino

    def _check_in_place(self) -> None:
        """SQLite would go on writing into a deleted file, and nobody would ever know."""
        if self.gone:
            raise StoreError(
                f"{self.path} was deleted or replaced while it was in use; start this program again"
            )

    @property
    def gone(self) -> bool:
        """Whether the file that is open was deleted, moved away, or replaced."""
        if self._connection is None:
            return False
        try:
            found = self.path.stat()
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self._file

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.row_factory = sqlite3.Row
        self._check_version(connection)
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode != "wal":
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        if _version(connection) < len(self._migrations):
            self._migrate(connection)
        connection.execute("PRAGMA foreign_keys=ON")

    def _check_version(self, connection: sqlite3.Connection) -> None:
        # one statement: the version must be as old as the look at the tables
        sql = "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
        version, tables = connection.execute(sql).fetchone()
        known = len(self._migrations)
        if version < 0:
            raise StoreError(corrupt(self.path, f"schema version {version}"))
        if version > 0 and not tables:
            raise StoreError(corrupt(self.path, "it has no tables", readable=False))
        if version > known:
            raise StoreError(
                f"{self.path} was written by a newer Muster (schema {version}, this one knows "
                f"{known}); upgrade Muster, or set MUSTER_HOME to another folder"
            )
        if version == 0 and tables:
            raise StoreError(
                f"{self.path} is the database of another program; move it away, or set "
                "MUSTER_HOME to another folder"
            )

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the tables up to date, all steps or none. Foreign keys are still off: a step may
        rebuild a table that others refer to."""
        connection.execute("BEGIN IMMEDIATE")
        # somebody else may have done it while we waited
        for number, script in list(enumerate(self._migrations, 1))[_version(connection) :]:
            for statement in statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={number}")
        if connection.execute("PRAGMA foreign_key_check").fetchone():
            raise StoreError(corrupt(self.path, "rows refer to rows that are not there"))
        connection.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text = explain(self.path, error)
            if text is None:
                raise
            raise trouble_kind(self.path, error)(text) from error

    def _forked(self) -> None:
        """In the child: its lock may be held by a thread that is not there."""
        self._lock = RLock()
        if self._connection is not None:
            _inherited.append(self._connection)
            self._connection = None


def _lossy(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _touch(path: Path) -> None:
    """Make the empty file, for its owner's eyes only from the first moment."""
    with suppress(FileExistsError):  # somebody else was faster
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


_databases: WeakSet[Database] = WeakSet()
_inherited: list[sqlite3.Connection] = []


def _after_fork() -> None:
    for database in list(_databases):
        database._forked()


def _release_inherited() -> None:
    """Close the parent's connections, in the child only, before it opens one of its own.

    SQLite keeps its locks' table by file and process. Copied by a fork, it says that the child
    holds the locks of its parent, which the kernel knows nothing of: a new connection would take
    none, and the next process to close the file would delete the WAL under it. Closing an idle
    connection empties the table and leaves the parent's locks alone. A connection in the middle
    of a transaction cannot be closed without harm to it.
    """
    if any(connection.in_transaction for connection in _inherited):
        raise RuntimeError("the store cannot be used by a child forked during a transaction")
    while _inherited:
        _inherited.pop().close()


os.register_at_fork(after_in_child=_after_fork)
